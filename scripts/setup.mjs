// Brings a checkout to where it can run: npm packages, native build, TypeScript build. Does only what is
// missing or stale, and needs no package itself. With --packages: npm packages only; with --typescript: all but the
// native build.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import native from '../src/native/platforms.js'

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..')
const NODE_NEEDED = [20, 19]
const FINGERPRINTS = 'target/fingerprints'

class SetupError extends Error {}

process.chdir(ROOT)
try {
  checkNode()
  await installPackages()
  const isWithout = (...options) => options.every((option) => !process.argv.includes(option))
  if (isWithout('--packages', '--typescript')) await buildNative()
  if (isWithout('--packages')) await buildTypeScript()
} catch (error) {
  if (!(error instanceof SetupError)) throw error
  console.error(`\nset-up: ${error.message}`)
  process.exitCode = 1
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major > NODE_NEEDED[0] || (major === NODE_NEEDED[0] && minor >= NODE_NEEDED[1])) return
  throw new SetupError(`Node.js ${NODE_NEEDED.join('.')} or newer is needed; this is ${process.versions.node}.`)
}

async function cargoVersion() {
  try {
    return await capture('cargo', ['--version', '--verbose'])
  } catch {
    throw new SetupError(
      'a Rust toolchain is needed: `cargo` was not found in PATH, or does not run. See https://rustup.rs.',
    )
  }
}

async function installPackages() {
  const installed = 'node_modules/.package-lock.json'
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync('package-lock.json').mtimeMs) return
  // NODE_ENV or a user's npm settings may leave these kinds out; the build needs them.
  const kinds = ['--include=dev', '--include=optional']
  await withProgress('npm packages', 'npm', ['ci', ...kinds, '--loglevel=error', '--no-audit', '--no-fund'])
}

async function buildNative() {
  const cargo = await cargoVersion()
  const host = /^host: (.+)$/m.exec(cargo)?.[1]
  const platform = native.platforms.find(({ target }) => target === host)
  if (platform === undefined) {
    const known = native.platforms.map(({ target }) => target).join(', ')
    throw new SetupError(`no native build is described for ${host} (known: ${known}).`)
  }
  const addon = join('npm', platform.name, native.addonOf(platform))
  const helper = join('npm', platform.name, native.helperFile)
  const sources = ['Cargo.toml', 'Cargo.lock', '.cargo', 'crates', 'scripts/setup.mjs', 'src/native/platforms.js']
  const salt = cargo + (process.env.RUSTFLAGS ?? '')
  const print = fingerprint(sources, salt)
  if (existsSync(addon) && existsSync(helper) && isCurrent('native', print)) return

  // --locked, so that a Cargo.lock that was not committed with its Cargo.toml fails here and not at the user's.
  const locked = existsSync('Cargo.lock') ? ['--locked'] : []
  const napi = ['node_modules/@napi-rs/cli/dist/cli.js', 'build', '--platform', '--release', '--no-js']
  const napiPaths = ['--package', 'holdfast-node', '--manifest-path', 'crates/node/Cargo.toml']
  await withProgress('native build, addon', process.execPath, [
    ...[...napi, ...napiPaths, '--target-dir', 'target', '--output-dir', 'target/addon'],
    ...['--', ...locked],
  ])
  const helperCrate = ['--package', 'holdfast-helper', '--bin', 'holdfast-helper', '--profile', 'helper']
  await withProgress('native build, helper', 'cargo', [
    ...['rustc', ...helperCrate, ...locked, '--'],
    ...['-C', 'target-feature=+crt-static', '-C', 'relocation-model=static'],
  ])
  install(join('target/addon', native.addonOf(platform)), addon, 0o644)
  install('target/helper/holdfast-helper', helper, 0o755)
  // What was edited during the build is not in it. Without a Cargo.lock the build has written one.
  remember('native', locked.length > 0 ? print : fingerprint(sources, salt))
}

async function buildTypeScript() {
  const sources = ['src', 'index.d.ts', 'session.d.ts', 'tsconfig.json', 'tsconfig.build.json', 'package-lock.json']
  const print = fingerprint(sources, '')
  if (existsSync('dist/index.js') && isCurrent('dist', print)) return
  rmSync('dist', { recursive: true, force: true })
  await withProgress('TypeScript build', process.execPath, [
    'node_modules/typescript/bin/tsc',
    '-p',
    'tsconfig.build.json',
  ])
  if (existsSync('dist/cli.js')) chmodSync('dist/cli.js', 0o755)
  remember('dist', print)
}

/** Into place by rename: a running process may have the old file mapped or be executing it. */
function install(from, to, mode) {
  const temporary = `${to}.${process.pid}.tmp`
  copyFileSync(from, temporary)
  chmodSync(temporary, mode)
  renameSync(temporary, to)
}

/** Contents, not times: a checkout of another branch and back is not a change. */
function fingerprint(paths, salt) {
  const hash = createHash('sha256').update(salt)
  const add = (path) => {
    if (!existsSync(path)) return
    if (statSync(path).isDirectory()) {
      for (const name of readdirSync(path).sort()) add(join(path, name))
    } else {
      hash.update(`\0${path}\0`).update(readFileSync(path))
    }
  }
  for (const path of paths) add(path)
  return hash.digest('hex')
}

function isCurrent(name, print) {
  const file = join(FINGERPRINTS, name)
  return existsSync(file) && readFileSync(file, 'utf8') === print
}

function remember(name, print) {
  mkdirSync(FINGERPRINTS, { recursive: true })
  writeFileSync(join(FINGERPRINTS, name), print)
}

/** Runs a command with its output held back, shown only when it fails, and a progress line meanwhile. */
async function withProgress(title, command, args) {
  const start = Date.now()
  const elapsed = () => `${Math.round((Date.now() - start) / 1000)} s`
  let lastLine = ''
  const show = () => {
    const text = `${title}: ${elapsed()}${lastLine && `, ${lastLine}`}`
    if (process.stdout.isTTY) process.stdout.write(`\r\x1b[K${text.slice(0, process.stdout.columns - 1)}`)
    else console.log(text)
  }
  console.log(`${title} …`)
  const timer = setInterval(show, process.stdout.isTTY ? 500 : 10_000)
  try {
    await capture(command, args, (line) => {
      lastLine = line
    })
  } catch (error) {
    if (process.stdout.isTTY) process.stdout.write('\r\x1b[K')
    console.error(error.output ?? '')
    throw new SetupError(`${title} failed (${error.message}): ${[command, ...args].join(' ')}`)
  } finally {
    clearInterval(timer)
  }
  if (process.stdout.isTTY) process.stdout.write('\r\x1b[K')
  console.log(`${title}: done in ${elapsed()}`)
}

function capture(command, args, onLine = () => {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    const take = (chunk) => {
      output += chunk
      const line = String(chunk).trimEnd().split('\n').pop().trim()
      if (line) onLine(line)
    }
    child.stdout.setEncoding('utf8').on('data', take)
    child.stderr.setEncoding('utf8').on('data', take)
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if (code === 0) resolve(output)
      else reject(Object.assign(new Error(signal ?? `exit code ${code}`), { output }))
    })
  })
}
