// Installs the packed tarballs from a registry on 127.0.0.1 into empty projects, by every installer and in the ways that go
// wrong, with nothing in PATH but the runtime. Needs dist-packages (npm run release:pack). Prints one table.
//   --only NAME      an installer whose name begins so
//   --packages DIR   default: dist-packages
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { pinned } from './pinned.mjs'
import { addonOf, packageOf, platforms } from './release/manifests.mjs'

process.chdir(join(dirname(fileURLToPath(import.meta.url)), '..'))

const { values } = parseArgs({
  options: { only: { type: 'string', default: '' }, packages: { type: 'string', default: 'dist-packages' } },
})
const main = JSON.parse(readFileSync('package.json', 'utf8'))
const packages = resolve(values.packages)
const NEXT = main.version.replace(/\d+$/, (patch) => `${(Number(patch) + 1) % 10}`)
const tools = pinned('__test__/installers', 'installers')
const runtimes = pinned('__test__/conformance/runtimes', 'runtimes')
const ground = mkdtempSync(join(tmpdir(), 'holdfast-installers-'))
const at = (...path) => join(tools, 'node_modules', ...path)

/** PATH: the runtime, and nothing else. */
const PATH = join(ground, 'bin')
const environment = { PATH, HOME: ground, CI: '1', NO_UPDATE_NOTIFIER: '1', TMPDIR: ground }
const node = process.execPath

// ---- installers: each with the ways that it has. A way is a list of command lines.
const berry = (linker) => ({
  files: (registry) => ({
    '.yarnrc.yml': [
      `npmRegistryServer: "${registry}"`,
      'unsafeHttpWhitelist: ["127.0.0.1"]',
      'enableGlobalCache: false',
      'enableTelemetry: false',
      // What was published a moment ago is not waited for, here and in Deno.
      'npmMinimalAgeGate: 0',
      'enableImmutableInstalls: false',
      `nodeLinker: ${linker}`,
      '',
    ].join('\n'),
  }),
  run: linker === 'pnp' ? ['--require', './.pnp.cjs'] : [],
  ways: (yarn) => ({
    normal: [[...yarn, 'install']],
    'ignore-scripts': [[...yarn, 'install', '--mode=skip-build']],
    foreign: [
      [
        ...yarn,
        'config',
        'set',
        'supportedArchitectures',
        '--json',
        JSON.stringify({ os: ['linux'], cpu: ['arm64'], libc: ['musl'] }),
      ],
      [...yarn, 'install'],
    ],
    'foreign undone': [
      [...yarn, 'config', 'unset', 'supportedArchitectures'],
      [...yarn, 'install'],
    ],
  }),
})
const YARN = [node, at('@yarnpkg/cli-dist/bin/yarn.js')]
const NPM = [node, at('npm/bin/npm-cli.js'), '--no-audit', '--no-fund', '--loglevel=error']
const PNPM = [node, at('pnpm/bin/pnpm.cjs'), '--store-dir', join(ground, 'pnpm-store')]
const YARN1 = [node, at('yarn/bin/yarn.js'), '--cache-folder', join(ground, 'yarn1'), '--non-interactive', '--silent']
const BUN = [join(runtimes, 'node_modules/@oven/bun-linux-x64/bin/bun')]
const DENO = [join(runtimes, 'node_modules/@deno/linux-x64-glibc/deno')]
const INSTALLERS = {
  npm: {
    ways: {
      normal: [[...NPM, 'install']],
      'ignore-scripts': [[...NPM, 'install', '--ignore-scripts']],
      'omit optional': [[...NPM, 'install', '--omit=optional']],
      foreign: [[...NPM, 'install', '--cpu=arm64', '--os=linux', '--libc=musl']],
      'foreign undone': [[...NPM, 'ci']],
    },
  },
  pnpm: {
    ways: {
      normal: [[...PNPM, 'install', '--no-frozen-lockfile']],
      'ignore-scripts': [[...PNPM, 'install', '--ignore-scripts']],
      'omit optional': [[...PNPM, 'install', '--no-optional']],
      foreign: [[...PNPM, 'install', '--cpu=arm64', '--os=linux', '--libc=musl']],
      'foreign undone': [[...PNPM, 'install', '--frozen-lockfile']],
    },
  },
  'yarn 1': {
    ways: {
      normal: [[...YARN1, 'install']],
      'ignore-scripts': [[...YARN1, 'install', '--ignore-scripts']],
      'omit optional': [[...YARN1, 'install', '--ignore-optional']],
    },
  },
  'yarn 4, PnP': { ...berry('pnp'), ways: berry('pnp').ways(YARN) },
  'yarn 4, node_modules': { ...berry('node-modules'), ways: berry('node-modules').ways(YARN) },
  bun: {
    ways: {
      normal: [[...BUN, 'install']],
      'ignore-scripts': [[...BUN, 'install', '--ignore-scripts']],
      'omit optional': [[...BUN, 'install', '--omit=optional']],
      foreign: [[...BUN, 'install', '--cpu=arm64', '--os=linux']],
    },
    runtime: [...BUN],
  },
  deno: {
    ways: { normal: [[...DENO, 'install', '--min-dep-age=0']] },
    runtime: [...DENO, 'run', '--allow-all', '--no-prompt'],
  },
}

const PROBE = `
const { run, capabilities } = require('holdfast')
const { version } = require('holdfast/package.json')
run('/bin/echo', ['works']).then(({ stdout }) => console.log(stdout.trim(), version), ({ message }) => console.log(message))
`
/** Lives through an upgrade: a call for each line. */
const HOST = `
const { run, spawn } = require('holdfast')
spawn('/bin/sleep', ['50']).unref()
process.stdin.on('data', () => run('/bin/echo', ['works']).then(({ stdout }) => console.log(stdout.trim()), ({ message }) => console.log(message)))
`

const rows = []
try {
  mkdirSync(PATH)
  symlinkSync(node, join(PATH, 'node'))
  const registry = await startRegistry()
  try {
    publish(registry.url)
    for (const [name, installer] of Object.entries(INSTALLERS)) {
      if (name.startsWith(values.only)) await tryOut(name, installer, registry.url)
    }
  } finally {
    registry.stop()
  }
} finally {
  rmSync(ground, { recursive: true, force: true })
}
console.log(`\n${table(rows)}`)
if (rows.some(({ problem }) => problem !== '')) process.exitCode = 1

async function startRegistry() {
  const folder = join(ground, 'registry')
  mkdirSync(folder)
  const port = await freePort()
  const config = {
    storage: join(folder, 'storage'),
    uplinks: {},
    packages: { '**': { access: '$all', publish: '$all' } },
    max_body_size: '50mb',
    log: { type: 'stdout', format: 'pretty', level: 'error' },
    self_path: folder,
  }
  writeFileSync(join(folder, 'config.yaml'), JSON.stringify(config))
  const verdaccio = [
    at('verdaccio/bin/verdaccio'),
    '--config',
    join(folder, 'config.yaml'),
    '--listen',
    `127.0.0.1:${port}`,
  ]
  const child = spawn(node, verdaccio, { stdio: ['ignore', 'inherit', 'inherit'] })
  const url = `http://127.0.0.1:${port}/`
  for (const deadline = Date.now() + 30_000; ; ) {
    if (
      await fetch(`${url}-/ping`).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      break
    if (Date.now() > deadline || child.exitCode !== null) throw new Error('the registry does not answer')
    await new Promise((done) => setTimeout(done, 100))
  }
  return { url, stop: () => child.kill() }
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  return port
}

/** What was packed, and the same again as the next version. */
function publish(url) {
  writeFileSync(join(ground, '.npmrc'), npmrc(url))
  const tarballs = readdirSync(packages).filter((name) => name.endsWith('.tgz'))
  if (tarballs.length !== platforms.length + 1) throw new Error(`${packages} has not what npm run release:pack makes`)
  for (const tarball of tarballs) {
    const folder = join(ground, 'next')
    mkdirSync(folder)
    execFileSync('tar', ['-xzf', join(packages, tarball), '-C', folder])
    raise(join(folder, 'package'))
    const npm = [...NPM.slice(1), 'publish', '--fetch-retries', '0']
    for (const what of [join(packages, tarball), join(folder, 'package')]) {
      execFileSync(node, [...npm, '--tag', what.endsWith('.tgz') ? 'latest' : 'next', what], {
        env: environment,
        stdio: 'pipe',
      })
    }
    rmSync(folder, { recursive: true })
  }
}

/** Version by version: in the manifest, in the JavaScript, and in what the addon says of itself. */
function raise(folder) {
  const replaced = (name) => {
    const path = join(folder, name)
    if (!existsSync(path)) return
    const bytes = readFileSync(path)
    for (let from = bytes.indexOf(main.version); from >= 0; from = bytes.indexOf(main.version, from + 1))
      bytes.write(NEXT, from)
    writeFileSync(path, bytes)
  }
  for (const name of ['package.json', 'dist/native/version.js', ...platforms.map(addonOf)]) replaced(name)
}

function npmrc(url) {
  return `registry=${url}\n${url.replace('http:', '')}:_authToken=none\nfetch-retries=0\n`
}

async function tryOut(name, installer, url) {
  const { ways, files = () => ({}), run = [], runtime = [node] } = installer
  const project = (version = main.version) => {
    const folder = mkdtempSync(join(ground, 'project-'))
    write(folder, version)
    for (const [file, text] of Object.entries({ '.npmrc': npmrc(url), ...files(url) }))
      writeFileSync(join(folder, file), text)
    writeFileSync(join(folder, 'probe.cjs'), PROBE)
    writeFileSync(join(folder, 'host.cjs'), HOST)
    return folder
  }
  const write = (folder, version) =>
    writeFileSync(
      join(folder, 'package.json'),
      JSON.stringify({ name: 'project', private: true, dependencies: { holdfast: version } }),
    )
  const command = (script) => [...runtime, ...run, script]
  const install = (folder, way) => {
    for (const [program, ...args] of ways[way]) {
      const { status, stdout, stderr, error } = spawnSync(program, args, {
        cwd: folder,
        env: environment,
        encoding: 'utf8',
      })
      if (status !== 0)
        throw new Error(`${args.slice(-3).join(' ')}: ${error ?? status} ${stdout}${stderr}`.slice(0, 1500))
    }
  }
  const said = (folder) => {
    const [program, ...args] = command('probe.cjs')
    const { stdout, stderr } = spawnSync(program, args, { cwd: folder, env: environment, encoding: 'utf8' })
    return stdout.trim() || stderr.trim()
  }
  const works = (folder, version = main.version) =>
    expect(said(folder), new RegExp(`^works ${version.replaceAll('.', '\\.')}$`))
  const missing = /the package @holdfast\/linux-x64-gnu is not installed.*install again/
  const clean = (folder) => rmSync(join(folder, 'node_modules'), { recursive: true, force: true })

  const scenarios = {
    normal: (folder) => {
      install(folder, 'normal')
      works(folder)
    },
    'ignore-scripts': (folder) => {
      install(folder, 'ignore-scripts')
      works(folder)
    },
    'omit optional': (folder) => {
      install(folder, 'omit optional')
      expect(said(folder), missing)
    },
    'node_modules of another platform': (folder) => {
      install(folder, 'foreign')
      expect(said(folder), missing)
    },
    'lockfile of another platform': (folder) => {
      install(folder, 'foreign')
      clean(folder)
      install(folder, ways['foreign undone'] ? 'foreign undone' : 'normal')
      works(folder)
    },
    'kept in a zip archive': (folder) => {
      const dependenciesMeta = Object.fromEntries(platforms.map((one) => [packageOf(one), { unplugged: false }]))
      const dependencies = { holdfast: main.version }
      writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'project', dependencies, dependenciesMeta }))
      install(folder, 'normal')
      expect(said(folder), /is inside a zip archive.*yarn unplug @holdfast\/linux-x64-gnu/)
    },
    // https://github.com/npm/cli/issues/4828
    'lockfile that has forgotten them': (folder) => {
      install(folder, 'normal')
      const path = join(folder, 'package-lock.json')
      const lock = JSON.parse(readFileSync(path, 'utf8'))
      for (const entry of Object.keys(lock.packages)) if (entry.includes('@holdfast/')) delete lock.packages[entry]
      writeFileSync(path, JSON.stringify(lock))
      clean(folder)
      install(folder, 'foreign undone')
      expect(said(folder), missing)
      // What the message says.
      clean(folder)
      rmSync(path)
      install(folder, 'normal')
      works(folder)
    },
    'clean reinstall': (folder) => {
      install(folder, 'normal')
      clean(folder)
      install(folder, 'normal')
      works(folder)
    },
    'upgrade under a running host': async (folder) => {
      install(folder, 'normal')
      const [program, ...args] = command('host.cjs')
      const host = spawn(program, args, { cwd: folder, env: environment, stdio: ['pipe', 'pipe', 'inherit'] })
      try {
        const call = async () => {
          host.stdin.write('\n')
          const [line] = await once(host.stdout, 'data')
          expect(String(line).trim(), /^works$/)
        }
        await call()
        write(folder, NEXT)
        install(folder, 'normal')
        works(folder, NEXT)
        await call()
      } finally {
        host.stdin.end()
        host.kill()
      }
    },
  }
  const needs = {
    'ignore-scripts': 'ignore-scripts',
    'omit optional': 'omit optional',
    'node_modules of another platform': 'foreign',
    'lockfile of another platform': 'foreign',
  }
  for (const [scenario, act] of Object.entries(scenarios)) {
    const only = { 'lockfile that has forgotten them': 'npm', 'kept in a zip archive': 'yarn 4, PnP' }[scenario]
    const isOther = only !== undefined && only !== name
    if (isOther || (needs[scenario] !== undefined && ways[needs[scenario]] === undefined)) {
      rows.push({ name, scenario, problem: '', skipped: isOther ? '-' : 'no such option' })
      continue
    }
    let problem = ''
    const folder = project()
    try {
      await act(folder)
    } catch (error) {
      problem = error.message
    }
    rmSync(folder, { recursive: true, force: true })
    rows.push({ name, scenario, problem })
    console.log(`${problem === '' ? 'ok    ' : 'FAILED'}  ${name}: ${scenario}${problem && `: ${problem}`}`)
  }
}

function expect(text, pattern) {
  if (!pattern.test(text)) throw new Error(`it said: ${text.slice(0, 700)}`)
}

function table(all) {
  const names = [...new Set(all.map(({ name }) => name))]
  const scenarios = [...new Set(all.map(({ scenario }) => scenario))]
  const cell = (name, scenario) => {
    const row = all.find((one) => one.name === name && one.scenario === scenario)
    return row.problem !== '' ? 'FAILED' : (row.skipped ?? 'ok')
  }
  const lines = [
    ['', ...names],
    ['-', ...names.map(() => '-')],
    ...scenarios.map((scenario) => [scenario, ...names.map((name) => cell(name, scenario))]),
  ]
  return lines.map((line) => `| ${line.join(' | ')} |`).join('\n')
}
