// scripts/release/check.mjs refuses what must not be published: each time a package that is good but for one thing.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkPlatform, checkRoot, isAbove } from '../scripts/release/check.mjs'
import { addonOf, helperFile, platforms } from '../scripts/release/manifests.mjs'
import { stagePlatform, stageRoot } from '../scripts/release/stage.mjs'
import { readTarball } from '../scripts/release/tarball.mjs'
import { folder } from './support/suite.mjs'
import { packed } from './support/tar.mjs'
import test from './support/test.mjs'

process.chdir(fileURLToPath(new URL('..', import.meta.url)))

const main = JSON.parse(readFileSync('package.json', 'utf8'))
const built = platforms.find((platform) => existsSync(join('npm', platform.name, addonOf(platform))))
const ADDON = addonOf(built)
/** What is built here is linked against the glibc of this machine. */
const lax = { ...built, floor: '999' }

function filesIn(at, below = '') {
  return readdirSync(join(at, below)).flatMap((name) => {
    const path = join(below, name)
    const { mode, isFile } = { mode: statSync(join(at, path)).mode & 0o777, isFile: statSync(join(at, path)).isFile() }
    return isFile ? [[path, { mode, bytes: readFileSync(join(at, path)) }]] : filesIn(at, path)
  })
}

function platformFiles(t) {
  const at = folder(t)
  const from = (name) => join('npm', built.name, name)
  stagePlatform(built, main, { addon: from(ADDON), helper: from(helperFile) }, at)
  return new Map(filesIn(at))
}

function rootFiles(t) {
  const at = folder(t)
  stageRoot(main, at)
  return new Map(filesIn(at))
}

const checkedPlatform = (files, platform = lax) => checkPlatform(packed(files), platform, main, { limit: false })
const checkedRoot = (files) => checkRoot(packed(files), main, existsSync)

const edited = (change) => (file) => ({ ...file, bytes: Buffer.from(change(Buffer.from(file.bytes))) })
const manifest = (change) =>
  edited((bytes) => {
    const value = JSON.parse(bytes)
    change(value)
    return JSON.stringify(value)
  })

/** Each: the file that is changed, how, and what is to be said. */
const PLATFORM = {
  'a missing helper': [helperFile, () => undefined, `${helperFile} is missing`],
  'a missing addon': [ADDON, () => undefined, `${ADDON} is missing`],
  'a missing licence': ['LICENSE', () => undefined, 'LICENSE is missing'],
  'missing notices': ['THIRD-PARTY-NOTICES', () => undefined, 'THIRD-PARTY-NOTICES is missing'],
  'a helper that is not executable': [
    helperFile,
    (file) => ({ ...file, mode: 0o644 }),
    `${helperFile} has the mode 644, not 755`,
  ],
  'an addon that anybody may write': [
    ADDON,
    (file) => ({ ...file, mode: 0o666 }),
    `${ADDON} has the mode 666, not 644`,
  ],
  'an undeclared file': ['.env', () => ({ mode: 0o644, bytes: Buffer.from('') }), '.env is not declared'],
  'a helper with a feature for tests': [
    helperFile,
    edited((bytes) => Buffer.concat([bytes, Buffer.from('HOLDFAST_STOP')])),
    `${helperFile} has a feature for tests: HOLDFAST_STOP`,
  ],
  'an addon of another architecture': [
    ADDON,
    edited((bytes) => {
      bytes.writeUInt16LE(built.cpu === 'arm64' ? 62 : 183, 18)
      return bytes
    }),
    `${ADDON} is for ${built.cpu === 'arm64' ? 'x64' : 'arm64'}, not for ${built.cpu}`,
  ],
  'a cut addon': [ADDON, edited((bytes) => bytes.subarray(0, 1000)), `${ADDON}: it is cut`],
  'a text in the place of the helper': [helperFile, edited(() => 'text'), `${helperFile}: it is no ELF file`],
  'another version': [
    'package.json',
    manifest((value) => Object.assign(value, { version: '9.9.9' })),
    'another version',
  ],
  'another libc': ['package.json', manifest((value) => Object.assign(value, { libc: ['musl'] })), 'another libc'],
  'a script of its own': [
    'package.json',
    manifest((value) => Object.assign(value, { scripts: { install: 'x' } })),
    'another scripts',
  ],
}
for (const [what, [name, change, problem]] of Object.entries(PLATFORM)) {
  test(`a platform package is refused for ${what}`, (t) => {
    const files = platformFiles(t)
    t.deepEqual(checkedPlatform(files), [], 'without it')
    const file = change(files.get(name))
    if (file === undefined) files.delete(name)
    else files.set(name, file)
    const problems = checkedPlatform(files)
    t.is(problems.length, 1, problems.join('\n'))
    t.true(problems[0].includes(problem), problems[0])
  })
}

test('a platform package is refused for a symbol above the floor, and for glibc in one for musl', (t) => {
  const files = platformFiles(t)
  const problems = checkedPlatform(files, { ...built, floor: '2.1' })
  t.is(problems.length, 1)
  t.regex(problems[0], /needs glibc (2\.\d+(\.\d+)?(, )?)+; the floor is 2\.1$/)
  t.true(checkedPlatform(files, { ...built, libc: 'musl', floor: '' }).some((one) => /no glibc at all/.test(one)))
})

test('a platform package is refused for a helper that is not static', (t) => {
  const files = platformFiles(t)
  files.set(helperFile, { mode: 0o755, bytes: readFileSync('/bin/sh') })
  const [problem, ...others] = checkedPlatform(files)
  t.true(problem.startsWith(`${helperFile} is not static: it needs /`), problem)
  t.deepEqual(others, [])
})

test('a package is refused for its size, and for being no package', (t) => {
  const files = platformFiles(t)
  const noise = Buffer.from(Array.from({ length: 700_000 }, (_, index) => Math.imul(index, 2654435761) >>> 13))
  files.set('README.md', { mode: 0o644, bytes: noise })
  t.regex(checkPlatform(packed(files), lax, main).join(), /it has \d+ bytes, and may have 600000/)
  t.regex(checkPlatform(Buffer.from('text'), lax, main).join(), /it cannot be read/)
  t.regex(checkRoot(packed(files).subarray(0, 2000), main, existsSync).join(), /it cannot be read/)
})

const readme = (text) => edited((bytes) => `${bytes}\n${text}\n`)
const ROOT = {
  'a missing entry': ['dist/session.mjs', () => undefined, 'package.json names dist/session.mjs'],
  'a missing README': ['README.md', () => undefined, 'README.md is missing'],
  'an undeclared file': [
    'src/index.ts',
    () => ({ mode: 0o644, bytes: Buffer.from('') }),
    'src/index.ts is not declared',
  ],
  'a command that is not executable': [
    'dist/cli.js',
    (file) => ({ ...file, mode: 0o644 }),
    'dist/cli.js has the mode 644',
  ],
  'a folder in the place of a version': [
    'package.json',
    manifest(({ optionalDependencies }) => {
      optionalDependencies[Object.keys(optionalDependencies)[0]] = 'file:npm/linux-x64-gnu'
    }),
    'optionalDependencies are',
  ],
  'a platform that is not named': [
    'package.json',
    manifest(({ optionalDependencies }) => {
      delete optionalDependencies[Object.keys(optionalDependencies)[0]]
    }),
    'optionalDependencies are',
  ],
  'an install script': [
    'package.json',
    manifest((value) => Object.assign(value, { scripts: { postinstall: 'x' } })),
    'package.json has scripts',
  ],
  'a link into the checkout': ['README.md', readme('[x](docs/cases.md)'), 'docs/cases.md is no absolute link'],
  'a dangling link': [
    'README.md',
    readme(`[x](https://github.com/holdfast/holdfast/blob/v${main.version}/docs/none.md)`),
    'docs/none.md leads nowhere',
  ],
  'a dangling anchor': ['README.md', readme('[x](#no-such-heading)'), '#no-such-heading is no heading'],
}
for (const [what, [name, change, problem]] of Object.entries(ROOT)) {
  test(`the root package is refused for ${what}`, (t) => {
    const files = rootFiles(t)
    t.deepEqual(checkedRoot(files), [], 'without it')
    const file = change(files.get(name))
    if (file === undefined) files.delete(name)
    else files.set(name, file)
    const problems = checkedRoot(files)
    t.is(problems.length, 1, problems.join('\n'))
    t.true(problems[0].includes(problem), problems[0])
  })
}

test('a tarball is read as it was written, and versions are compared by number', (t) => {
  const files = new Map([
    ['a', { mode: 0o755, bytes: Buffer.from('one') }],
    ['b/c', { mode: 0o644, bytes: Buffer.alloc(1024, 'x') }],
  ])
  t.deepEqual([...readTarball(packed(files))], [...files])
  t.true(isAbove('2.34', '2.17'))
  t.true(isAbove('2.2.5', '2.2'))
  t.false(isAbove('2.4', '2.17'))
  t.false(isAbove('2.17', '2.17'))
})
