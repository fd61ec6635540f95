// One version everywhere (addon, helper and package shake hands on it), a platform package per folder of npm/,
// no dependencies at run time, no registry's host in what is committed.
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { manifestOf, packageOf, platforms, readmeOf } from './release/manifests.mjs'

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

const names = platforms.map(({ name }) => name)
expect(
  JSON.stringify(readdirSync('npm').sort()) === JSON.stringify([...names].sort()),
  `npm/ has other folders than src/native/platforms.js: ${readdirSync('npm')}`,
)
for (const platform of platforms) {
  const folder = `npm/${platform.name}`
  const written = (name, text) =>
    expect(
      readFileSync(`${folder}/${name}`, 'utf8') === text,
      `${folder}/${name}: run node scripts/release/version.mjs`,
    )
  written('package.json', `${JSON.stringify(manifestOf(platform, main), null, 2)}\n`)
  written('README.md', readmeOf(platform, main))
  // A local path while the packages are unpublished; the release replaces it by the version.
  expect(main.optionalDependencies[packageOf(platform)] === `file:${folder}`, `${folder} is not in package.json`)
  expect(main.napi.targets.includes(platform.target), `${platform.target} is not among napi.targets`)
  expect(lock.packages[folder]?.version === main.version, `${folder} is not in package-lock.json`)
}
expect(
  Object.keys(main.optionalDependencies).length === platforms.length && main.napi.targets.length === platforms.length,
  'package.json names platforms that are not in src/native/platforms.js',
)
const source = readFileSync('src/native/version.ts', 'utf8')
sameVersion('src/native/version.ts', /'(.+)'/.exec(source)?.[1])
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
