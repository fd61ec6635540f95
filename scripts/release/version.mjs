// One version everywhere: node scripts/release/version.mjs 0.2.0. Without an argument the files below npm/ are written
// anew for the version that there is. `npm run check` fails where any of them differs.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { manifestOf, packageOf, platforms, readmeOf } from './manifests.mjs'

process.chdir(join(dirname(fileURLToPath(import.meta.url)), '../..'))

const json = (path) => JSON.parse(readFileSync(path, 'utf8'))
const write = (path, value) => writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`)
function replace(path, pattern, replacement, times) {
  const text = readFileSync(path, 'utf8')
  const count = text.match(pattern)?.length ?? 0
  if (count !== times) throw new Error(`${path}: ${pattern} is there ${count} times, not ${times}`)
  writeFileSync(path, text.replace(pattern, replacement))
}

const main = json('package.json')
const before = main.version
const version = process.argv[2] ?? before
if (!/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/.test(version)) {
  console.error(`no version: ${version}`)
  process.exit(1)
}

main.version = version
for (const platform of platforms) main.optionalDependencies[packageOf(platform)] = `file:npm/${platform.name}`
write('package.json', main)
for (const platform of platforms) {
  mkdirSync(`npm/${platform.name}`, { recursive: true })
  write(`npm/${platform.name}/package.json`, manifestOf(platform, main))
  writeFileSync(`npm/${platform.name}/README.md`, readmeOf(platform, main))
}

const lock = json('package-lock.json')
lock.version = version
lock.packages[''].version = version
for (const { name } of platforms) {
  const entry = lock.packages[`npm/${name}`]
  if (entry !== undefined) entry.version = version
}
write('package-lock.json', lock)

const quoted = `version = "${before.replaceAll('.', '\\.')}"`
const now = `version = "${version}"`
replace('Cargo.toml', new RegExp(`(?<=\\[workspace\\.package\\]\\n)${quoted}`, 'g'), now, 1)
replace('Cargo.lock', new RegExp(`(?<=name = "holdfast-\\w+"\\n)${quoted}`, 'g'), now, 4)
writeFileSync(
  'src/native/version.ts',
  `/** Of this package; addon and helper have the same. */\nexport const version = '${version}'\n`,
)

console.log(`${before} -> ${version}`)
