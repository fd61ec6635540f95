// Runs __test__/conformance/ in every runtime, and prints one table.
//   --only NAME         a runtime whose name begins so; several times for several
//   --packages DIR      tarballs of `npm run release:pack`; default: dist-packages, or what was built here
//   --platform NAME     the platform package that is taken; default: this system's
//   --command NAME=CMD  one more runtime, by the command line that runs a script in it
//   --write             writes the table into docs/runtimes.md
// ELECTRON_PATH names an Electron; without it that row is skipped.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { pinned } from './pinned.mjs'
import { addonOf, helperFile, packageOf, platforms } from './release/manifests.mjs'
import { stagePlatform, stageRoot } from './release/stage.mjs'

process.chdir(join(dirname(fileURLToPath(import.meta.url)), '..'))

const CONFORMANCE = '__test__/conformance'
const PAGE = 'docs/runtimes.md'
const LIMIT = 600_000
const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    packages: { type: 'string' },
    platform: { type: 'string' },
    command: { type: 'string', multiple: true, default: [] },
    write: { type: 'boolean' },
  },
})
const main = JSON.parse(readFileSync('package.json', 'utf8'))
const { libcOfProcess } = createRequire(import.meta.url)('../dist/native/executable.js')
const platform = platforms.find(({ name, os, cpu, libc }) =>
  values.platform
    ? name === values.platform
    : os === process.platform && cpu === process.arch && libc === libcOfProcess(),
)
if (platform === undefined) throw new Error(`no such platform: ${values.platform}`)

const project = mkdtempSync(join(tmpdir(), 'holdfast-matrix-'))
const results = []
try {
  console.log(`packages: ${install(project)}`)
  for (const runtime of runtimes()) {
    if (values.only && !values.only.some((only) => runtime.name.startsWith(only))) continue
    results.push({ ...runtime, ...(runtime.reason === undefined ? await conform(runtime) : {}) })
    report(results.at(-1))
  }
} finally {
  rmSync(project, { recursive: true, force: true })
}
const table = tableOf(results)
console.log(`\n${table}`)
if (values.write) write(table)
if (results.some(({ failed }) => failed?.length > 0)) process.exitCode = 1

/** As a package manager lays it out; conformance beside it. */
function install(folder) {
  const packages = values.packages ?? (existsSync('dist-packages') ? 'dist-packages' : undefined)
  const tarball = (name) => join(packages, `${name.replace('@', '').replace('/', '-')}-${main.version}.tgz`)
  const [root, native] = ['holdfast', packageOf(platform)].map((name) => join(folder, 'node_modules', name))
  const isPacked = packages !== undefined && existsSync(tarball(packageOf(platform)))
  if (isPacked) {
    for (const [name, into] of [
      ['holdfast', root],
      [packageOf(platform), native],
    ]) {
      mkdirSync(into, { recursive: true })
      execFileSync('tar', ['-xzf', tarball(name), '-C', into, '--strip-components', '1'])
    }
  } else {
    const from = (name) => join('npm', platform.name, name)
    stageRoot(main, root)
    stagePlatform(platform, main, { addon: from(addonOf(platform)), helper: from(helperFile) }, native)
  }
  for (const name of readdirSync(CONFORMANCE).filter((one) => one.endsWith('js')))
    cpSync(join(CONFORMANCE, name), join(folder, name))
  writeFileSync(join(folder, 'package.json'), '{"private":true,"main":"electron.cjs"}')
  chmodSync(folder, 0o755)
  return isPacked ? packages : 'built here'
}

/** A runtime has a reason when it cannot be run; `again` is what runs a further script in it. */
function* runtimes() {
  // Those that are npm packages are for this platform.
  if (platform.name === 'linux-x64-gnu' && process.arch === 'x64' && values.command.length === 0) {
    const at = (name, path) => join(pinned(join(CONFORMANCE, 'runtimes'), 'runtimes'), 'node_modules', name, path)
    for (const version of ['20', '22', '24', '26']) {
      const node = at(`node-${version}`, 'bin/node')
      yield { name: `Node.js ${said([node, '--version']).slice(1)}`, again: [node] }
    }
    const bun = at('@oven/bun-linux-x64', 'bin/bun')
    yield { name: `Bun ${said([bun, '--version'])}`, again: [bun] }
    const deno = at('@deno/linux-x64-glibc', 'deno')
    yield {
      name: `Deno ${said([deno, '--version']).split(' ')[1]}`,
      again: [deno, 'run', '--allow-all', '--no-prompt'],
    }
    const least = ['--allow-ffi=node_modules/@holdfast', '--allow-read=node_modules', '--allow-env']
    yield {
      name: `Deno ${said([deno, '--version']).split(' ')[1]}, ${least.join(' ')}`,
      again: [deno],
      first: [deno, 'run', '--no-prompt', ...least, 'least.cjs'],
    }
    const limited = ['--permission', '--allow-fs-read=*', '--allow-child-process', '--allow-addons']
    const node = at('node-24', 'bin/node')
    yield { name: `Node.js 24, ${limited.join(' ')}`, again: [node], first: [node, ...limited, 'least.cjs'] }
    yield* electrons()
  }
  for (const command of values.command) {
    const [name, words] = [command.slice(0, command.indexOf('=')), command.slice(command.indexOf('=') + 1).split(' ')]
    yield { name, again: words }
  }
}

function* electrons() {
  const electron = process.env.ELECTRON_PATH
  if (!electron) {
    yield { name: 'Electron', reason: 'ELECTRON_PATH names none' }
    return
  }
  const asNode = { ELECTRON_RUN_AS_NODE: '1' }
  const version = said([electron, '-p', 'process.versions.electron'], asNode)
  // Scripts that a case starts run as Node.js: an Electron has no other way to run one.
  const again = ['/usr/bin/env', 'ELECTRON_RUN_AS_NODE=1', electron]
  yield { name: `Electron ${version}, as Node.js`, again }
  const needs = spawnSync('xvfb-run', ['--help']).error ? 'xvfb-run is missing' : undefined
  // An application of its own, in the place where Electron looks for one. Links, since it is large.
  const application = join(project, 'electron')
  const own = join(application, basename(electron))
  if (spawnSync('cp', ['-al', dirname(electron), application]).status !== 0) {
    execFileSync('cp', ['-a', dirname(electron), application])
  }
  rmSync(join(application, 'resources'), { recursive: true, force: true })
  for (const name of [...readdirSync(project)].filter((one) => one !== 'electron')) {
    cpSync(join(project, name), join(application, 'resources/app', name), { recursive: true })
  }
  for (const where of ['main', 'utility', 'renderer']) {
    const first = ['xvfb-run', '-a', own, '--no-sandbox', '--disable-gpu', where]
    yield { name: `Electron ${version}, ${where}`, again, first, reason: needs }
  }
}

function said([command, ...args], env = {}) {
  return execFileSync(command, args, { encoding: 'utf8', env: { ...process.env, ...env } })
    .trim()
    .split('\n')[0]
}

/** @returns how many passed, and what failed with its reason */
function conform({ again, first = [...again, 'main.cjs'] }) {
  return new Promise((done) => {
    const env = { ...process.env, CONFORMANCE_AGAIN: JSON.stringify(again) }
    const child = spawn(first[0], first.slice(1), {
      cwd: project,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: LIMIT,
    })
    let [output, errors] = ['', '']
    child.stdout.setEncoding('utf8').on('data', (data) => (output += data))
    child.stderr.setEncoding('utf8').on('data', (data) => (errors = (errors + data).slice(-2000)))
    child.on('error', (error) => done({ passed: [], failed: [{ name: 'the runtime starts', reason: error.message }] }))
    child.on('close', (code, signal) => {
      const lines = output
        .split('\n')
        .filter((line) => line.startsWith('{"name"'))
        .map((line) => JSON.parse(line))
      const failed = lines.filter(({ ok }) => !ok)
      if (code !== 0 || lines.length === 0) failed.push({ name: 'the runtime', reason: `${code ?? signal}: ${errors}` })
      const skipped = lines.filter((one) => one.skipped !== undefined)
      done({ passed: lines.filter((one) => one.ok && one.skipped === undefined), failed, skipped })
    })
  })
}

function report({ name, reason, passed, failed = [] }) {
  console.log(
    reason === undefined ? `${name}: ${passed.length} passed, ${failed.length} failed` : `${name}: skipped: ${reason}`,
  )
  for (const one of failed) console.log(`    ${one.name}: ${one.reason}`)
}

function tableOf(all) {
  const rows = all.map(({ name, reason, passed, failed = [], skipped = [] }) => {
    if (reason !== undefined) return [name, 'not run', reason]
    const others = [
      ...failed.map((one) => `${one.name}: failed`),
      ...skipped.map((one) => `${one.name}: ${one.skipped}`),
    ]
    return [name, `${passed.length} of ${passed.length + others.length}`, others.join('; ') || 'none']
  })
  const lines = [['runtime', 'passed', 'and the others'], ...rows]
  const widths = [0, 1, 2].map((column) => Math.max(...lines.map((line) => line[column].length)))
  const text = (line) => `| ${line.map((cell, column) => cell.padEnd(widths[column])).join(' | ')} |`
  return [text(lines[0]), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...rows.map(text)].join('\n')
}

function write(table) {
  const page = readFileSync(PAGE, 'utf8')
  writeFileSync(PAGE, page.replace(/(<!-- matrix -->\n)[\s\S]*?(\n<!-- end -->)/, `$1\n${table}\n$2`))
}
