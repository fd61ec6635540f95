// What must not be published, by a look into the tarballs. Each problem is one line that says what, and where it has to
// be put right.

import { readElf } from './elf.mjs'
import { addonOf, helperFile, manifestOf, packageOf, platforms, repositoryOf } from './manifests.mjs'
import { readTarball } from './tarball.mjs'

export const ROOT_LIMIT = 150_000
export const PLATFORM_LIMIT = 600_000
/** What an addon may need of the system. Node.js has all of them loaded. */
const LIBRARIES = {
  glibc: /^(lib(c|dl|m|rt|pthread|gcc_s)\.so\.\d+|ld-linux-(x86-64|aarch64)\.so\.\d)$/,
  musl: /^libc\.(so|musl-\w+\.so\.1)$/,
}
/** Names that only a build with a feature for tests has. */
const NEVER_SHIPPED = ['HOLDFAST_STOP']
const [FILE, EXECUTABLE] = [0o644, 0o755]

/**
 * @param {Buffer} packed
 * @param main the root's manifest, as in the repository
 * @param {{ limit?: boolean }} options limit false: a build of this checkout, which is larger than a release's
 * @returns {string[]} problems; none: it may be published
 */
export function checkPlatform(packed, platform, main, { limit = true } = {}) {
  const { files, problems, expect } = open(packed)
  if (limit) expect(packed.length <= PLATFORM_LIMIT, `it has ${packed.length} bytes, and may have ${PLATFORM_LIMIT}`)
  const addon = addonOf(platform)
  const modes = { 'package.json': FILE, 'README.md': FILE, LICENSE: FILE, 'THIRD-PARTY-NOTICES': FILE }
  checkFiles(files, { ...modes, [addon]: FILE, [helperFile]: EXECUTABLE }, expect)

  const manifest = manifestIn(files)
  const wanted = manifestOf(platform, main)
  for (const key of new Set([...Object.keys(manifest), ...Object.keys(wanted)])) {
    expect(JSON.stringify(manifest[key]) === JSON.stringify(wanted[key]), `package.json has another ${key}`)
  }
  for (const [name, check] of [
    [addon, checkAddon],
    [helperFile, checkHelper],
  ]) {
    const file = files.get(name)
    if (file === undefined) continue
    for (const word of NEVER_SHIPPED) expect(!file.bytes.includes(word), `${name} has a feature for tests: ${word}`)
    try {
      const elf = readElf(file.bytes)
      expect(elf.cpu === platform.cpu, `${name} is for ${elf.cpu}, not for ${platform.cpu}`)
      check(name, elf, platform, expect)
    } catch (error) {
      problems.push(`${name}: ${error.message}`)
    }
  }
  return problems
}

function checkAddon(name, { needed, versions }, { libc, floor }, expect) {
  for (const library of needed)
    expect(LIBRARIES[libc].test(library), `${name} needs ${library}, which is not of ${libc}`)
  const found = versions.filter((version) => /^GLIBC_\d/.test(version)).map((version) => version.slice('GLIBC_'.length))
  const above = found.filter((version) => libc === 'musl' || isAbove(version, floor))
  expect(above.length === 0, `${name} needs glibc ${above.join(', ')}; the floor is ${floor || 'no glibc at all'}`)
  expect(libc === 'musl' || found.length > 0, `${name} has no versions of symbols to check`)
}

function checkHelper(name, { needed, interpreter }, _platform, expect) {
  expect(
    needed.length === 0 && interpreter === '',
    `${name} is not static: it needs ${interpreter} ${needed.join(' ')}`,
  )
}

export function isAbove(version, floor) {
  const [one, other] = [version, floor].map((text) => text.split('.').map(Number))
  for (let index = 0; index < Math.max(one.length, other.length); index++) {
    const [a, b] = [one[index] ?? 0, other[index] ?? 0]
    if (a !== b) return a > b
  }
  return false
}

/** @param {(path: string) => boolean} exists whether the repository has a file, for links that point there */
export function checkRoot(packed, main, exists) {
  const { files, problems, expect } = open(packed)
  expect(packed.length <= ROOT_LIMIT, `it has ${packed.length} bytes, and may have ${ROOT_LIMIT}`)
  const manifest = manifestIn(files)
  expect(manifest.version === main.version, `package.json is of version ${manifest.version}, not ${main.version}`)
  for (const key of ['scripts', 'devDependencies', 'dependencies', 'napi']) {
    expect(manifest[key] === undefined, `package.json has ${key}`)
  }
  const optional = Object.fromEntries(platforms.map((platform) => [packageOf(platform), main.version]))
  expect(
    JSON.stringify(manifest.optionalDependencies) === JSON.stringify(optional),
    `optionalDependencies are ${JSON.stringify(manifest.optionalDependencies)}`,
  )
  for (const path of [...pathsIn(manifest.exports), ...pathsIn(manifest.bin), manifest.main, manifest.types]) {
    const name = path?.replace(/^\.\//, '')
    expect(files.has(name), `package.json names ${name}, which is not in it`)
  }
  const bins = new Set(pathsIn(manifest.bin))
  const declared = [...(manifest.files ?? []), 'package.json', 'README.md', 'LICENSE']
  const modes = Object.fromEntries([...files.keys()].map((name) => [name, bins.has(name) ? EXECUTABLE : FILE]))
  for (const name of files.keys()) {
    if (!declared.some((one) => name === one || name.startsWith(`${one}/`))) delete modes[name]
  }
  for (const name of ['README.md', 'LICENSE', ...bins]) modes[name] ??= FILE
  checkFiles(files, modes, expect)
  for (const [name, { bytes }] of files) {
    for (const word of NEVER_SHIPPED) expect(!bytes.includes(word), `${name} has a feature for tests: ${word}`)
  }
  checkLinks(files.get('README.md')?.bytes.toString('utf8') ?? '', main, exists, expect)
  return problems
}

/** A reader on a registry's page is in no folder. */
function checkLinks(readme, main, exists, expect) {
  const home = repositoryOf(main)
  for (const [, link] of readme.matchAll(/\]\(([^)\s]+)\)/g)) {
    if (link.startsWith('#')) {
      expect(headings(readme).includes(link.slice(1)), `README.md: ${link} is no heading of it`)
    } else if (!/^https:\/\//.test(link)) {
      expect(false, `README.md: ${link} is no absolute link`)
    } else {
      const path = new RegExp(`^(?:${home}/(?:blob|tree|raw)/[^/]+)/([^#]+)`).exec(link)?.[1]
      expect(path === undefined || exists(decodeURIComponent(path)), `README.md: ${link} leads nowhere`)
    }
  }
}

const headings = (text) =>
  [...text.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\- ]/gu, '')
      .replaceAll(' ', '-'),
  )

function open(packed) {
  const problems = []
  const expect = (condition, problem) => {
    if (!condition) problems.push(problem)
  }
  let files = new Map()
  try {
    files = readTarball(packed)
  } catch (error) {
    problems.push(`it cannot be read: ${error.message}`)
  }
  return { files, problems, expect }
}

function checkFiles(files, modes, expect) {
  for (const [name, mode] of Object.entries(modes)) {
    const found = files.get(name)
    expect(found !== undefined, `${name} is missing`)
    if (found === undefined) continue
    expect(found.mode === mode, `${name} has the mode ${found.mode.toString(8)}, not ${mode.toString(8)}`)
  }
  for (const name of files.keys()) expect(Object.hasOwn(modes, name), `${name} is not declared`)
}

function manifestIn(files) {
  try {
    return JSON.parse(files.get('package.json').bytes.toString('utf8'))
  } catch {
    return {}
  }
}

function pathsIn(value) {
  if (value === undefined) return []
  return typeof value === 'string' ? [value] : Object.values(value).flatMap(pathsIn)
}
