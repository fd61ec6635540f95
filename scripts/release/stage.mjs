// Puts a package together in a folder of its own, as it is to be published, and packs it.
import { execFileSync } from 'node:child_process'
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { addonOf, helperFile, manifestOf, packageOf, platforms, readmeOf, repositoryOf } from './manifests.mjs'

/** Manifest entries that serve a checkout alone. */
const OF_A_CHECKOUT = ['scripts', 'devDependencies', 'napi']
const LICENCES = ['LICENSE', 'THIRD-PARTY-NOTICES']

/**
 * @param built paths of addon and helper
 * @param {string} into an empty folder, or none
 */
export function stagePlatform(platform, main, built, into) {
  empty(into)
  write(join(into, 'package.json'), `${JSON.stringify(manifestOf(platform, main), null, 2)}\n`)
  write(join(into, 'README.md'), readmeOf(platform, main))
  for (const name of LICENCES) copy(name, join(into, name), 0o644)
  copy(built.addon, join(into, addonOf(platform)), 0o644)
  copy(built.helper, join(into, helperFile), 0o755)
}

/** What the manifest's `files` names, with the versions of the platform packages in the place of their folders. */
export function stageRoot(main, into) {
  empty(into)
  const manifest = Object.fromEntries(Object.entries(main).filter(([key]) => !OF_A_CHECKOUT.includes(key)))
  manifest.optionalDependencies = Object.fromEntries(platforms.map((one) => [packageOf(one), main.version]))
  write(join(into, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  write(join(into, 'README.md'), absolute(readFileSync('README.md', 'utf8'), main))
  copy('LICENSE', join(into, 'LICENSE'), 0o644)
  const executables = Object.values(main.bin)
  for (const name of main.files.flatMap(filesBelow)) {
    copy(name, join(into, name), executables.includes(name) ? 0o755 : 0o644)
  }
}

/** Links into the repository, at the version's tag. A picture is fetched, and not shown in its page. */
function absolute(readme, main) {
  const home = repositoryOf(main)
  return readme.replace(/(!?)\[([^\]]*)\]\(([^)\s]+)\)/g, (whole, picture, text, link) => {
    if (/^(https?:|#)/.test(link)) return whole
    const [path, anchor] = link.split('#')
    const kind = picture === '!' ? 'raw' : path.endsWith('/') || statSync(path).isDirectory() ? 'tree' : 'blob'
    return `${picture}[${text}](${home}/${kind}/v${main.version}/${path}${anchor === undefined ? '' : `#${anchor}`})`
  })
}

/** @returns the tarball's path */
export function pack(folder, into) {
  mkdirSync(into, { recursive: true })
  const env = { ...process.env, npm_config_update_notifier: 'false' }
  const packed = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', into, folder], {
    env,
    encoding: 'utf8',
  })
  return join(into, JSON.parse(packed)[0].filename)
}

function filesBelow(path) {
  if (!statSync(path).isDirectory()) return [path]
  return readdirSync(path)
    .sort()
    .flatMap((name) => filesBelow(join(path, name)))
}

function empty(folder) {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
}

function write(path, text) {
  writeFileSync(path, text)
  chmodSync(path, 0o644)
}

function copy(from, to, mode) {
  mkdirSync(dirname(to), { recursive: true })
  copyFileSync(from, to)
  chmodSync(to, mode)
}
