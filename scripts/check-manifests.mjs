// One version everywhere (addon, helper and package shake hands on it), a platform package per folder of npm/,
// no dependencies at run time, no registry's host in what is committed.
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'

const json = (path) => JSON.parse(readFileSync(path, 'utf8'))
const problems = []
const expect = (condition, problem) => {
  if (!condition) problems.push(problem)
}

const main = json('package.json')
const sameVersion = (what, version) =>
  expect(version === main.version, `${what} is ${version}, package.json is ${main.version}`)

const lock = json('package-lock.json')
sameVersion('package-lock.json', lock.version)
const metadata = execFileSync('cargo', ['metadata', '--format-version=1', '--no-deps'])
for (const crate of JSON.parse(metadata).packages) sameVersion(`crate ${crate.name}`, crate.version)

const folders = readdirSync('npm')
for (const folder of folders) {
  const manifest = json(`npm/${folder}/package.json`)
  sameVersion(manifest.name, manifest.version)
  expect(manifest.name === `@holdfast/${folder}`, `npm/${folder}/package.json is named ${manifest.name}`)
  // A local path while the packages are unpublished; the release replaces it by the version.
  expect(main.optionalDependencies[manifest.name] === `file:npm/${folder}`, `${manifest.name} is not in package.json`)
}
expect(
  Object.keys(main.optionalDependencies).length === folders.length,
  'package.json names platform packages that have no folder in npm/',
)
expect(!main.dependencies, 'package.json has run-time dependencies')
for (const [name, range] of Object.entries(main.devDependencies)) {
  expect(/^\d/.test(range), `${name} is not pinned: ${range}`)
}
for (const [path, entry] of Object.entries(lock.packages)) {
  expect(!/^https?:/.test(entry.resolved ?? ''), `package-lock.json names a host for ${path}`)
}

for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exitCode = 1
else console.log(`version ${main.version} everywhere`)
