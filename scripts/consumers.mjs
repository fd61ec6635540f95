// What those who use the package do with it: types under every resolution and TypeScript, and bundlers. Each bundle runs
// beside the platform package, runs elsewhere when HOLDFAST_BINARY_PATH names its folder, and says so when it has neither.
//   --only NAME   a part of a check's name
import { execFileSync, spawnSync } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { pinned } from './pinned.mjs'
import { addonOf, helperFile, packageOf, platforms } from './release/manifests.mjs'
import { pack, stagePlatform, stageRoot } from './release/stage.mjs'

process.chdir(join(dirname(fileURLToPath(import.meta.url)), '..'))

const { values } = parseArgs({ options: { only: { type: 'string', default: '' } } })
const main = JSON.parse(readFileSync('package.json', 'utf8'))
const built = platforms.find((platform) => existsSync(join('npm', platform.name, addonOf(platform))))
const tools = pinned('__test__/consumers', 'consumers')
const tool = createRequire(join(tools, 'package.json'))
const load = async (name) => import(pathToFileURL(tool.resolve(name)).href)
const project = mkdtempSync(join(tmpdir(), 'holdfast-consumers-'))
const modules = join(project, 'node_modules')
const native = join(modules, packageOf(built))
const results = []

const ENTRY = `import { run } from 'holdfast'
run('echo', ['works']).then(({ stdout }) => console.log(stdout.trim()), ({ message }) => console.log(message))
`
const CONSUMER = `import 'holdfast/engine'
import { HoldfastError, run, spawn } from 'holdfast'
import { startSession } from 'holdfast/session'
spawn('true').stdout.pipe(process.stdout)
run('true').then((result) => result.stdout.trim(), (error) => HoldfastError.is(error))
startSession('engine').then((session) => session.stdout.pipe(process.stdout))
`

try {
  stageRoot(main, join(modules, 'holdfast'))
  const from = (name) => join('npm', built.name, name)
  stagePlatform(built, main, { addon: from(addonOf(built)), helper: from(helperFile) }, native)
  writeFileSync(join(project, 'entry.mjs'), ENTRY)
  writeFileSync(join(project, 'package.json'), '{"private":true}')
  await formats()
  await types()
  await bundles()
  await executables()
} finally {
  rmSync(project, { recursive: true, force: true })
}
if (results.some((ok) => !ok)) process.exitCode = 1

async function check(name, act) {
  if (!name.includes(values.only)) return
  let problem = ''
  try {
    problem = (await act()) ?? ''
  } catch (error) {
    problem = error.stack
  }
  results.push(problem === '')
  console.log(`${problem === '' ? 'ok    ' : 'FAILED'}  ${name}${problem && `: ${problem}`}`)
}

function ran(command, args, options = {}) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: project, encoding: 'utf8', ...options })
  return status === 0 ? '' : `${error ?? status}: ${stdout}${stderr}`.slice(-1500)
}

async function formats() {
  const tarball = pack(join(modules, 'holdfast'), project)
  await check('publint', async () => {
    const { publint } = await load('publint')
    const { messages } = await publint({ pkgDir: join(modules, 'holdfast'), pack: false, strict: true })
    return messages.map(({ code, path }) => `${code} ${path}`).join('; ')
  })
  const attw = join(tools, 'node_modules/@arethetypeswrong/cli/dist/index.js')
  await check('@arethetypeswrong/cli', () => ran(process.execPath, [attw, tarball]))
}

/** Each resolution, for a CommonJS and an ES module file, without skipLibCheck. */
async function types() {
  cpSync(join(tools, 'node_modules/@types'), join(modules, '@types'), { recursive: true })
  cpSync(join(tools, 'node_modules/undici-types'), join(modules, 'undici-types'), { recursive: true })
  for (const name of ['consumer.cts', 'consumer.mts']) writeFileSync(join(project, name), CONSUMER)
  for (const typescript of ['5.4', '5.9', '6', '7']) {
    for (const [resolution, module] of [
      ['node16', 'node16'],
      ['nodenext', 'nodenext'],
      ['bundler', 'esnext'],
    ]) {
      const tsc = join(tools, `node_modules/typescript-${typescript}/bin/tsc`)
      const options = ['--noEmit', '--strict', '--target', 'es2022', '--types', 'node', '--rootDir', '.']
      const files = resolution === 'bundler' ? ['consumer.mts'] : ['consumer.cts', 'consumer.mts']
      await check(`types: TypeScript ${typescript}, ${resolution}`, () =>
        ran(process.execPath, [tsc, ...options, '--module', module, '--moduleResolution', resolution, ...files]),
      )
    }
  }
}

// ---- bundlers
async function bundles() {
  const out = join(project, 'out')
  const entry = join(project, 'entry.mjs')
  const at = (name) => join(out, name)
  const makers = {
    'esbuild, cjs': async (file) => {
      const { build } = tool('esbuild')
      await build({
        entryPoints: [entry],
        outfile: file,
        bundle: true,
        platform: 'node',
        format: 'cjs',
        logLevel: 'error',
      })
    },
    'esbuild, esm': async (file) => {
      const { build } = tool('esbuild')
      const banner = {
        js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url)",
      }
      await build({
        entryPoints: [entry],
        outfile: file,
        bundle: true,
        platform: 'node',
        format: 'esm',
        banner,
        logLevel: 'error',
      })
    },
    'rollup, cjs': (file) => rollup(file, 'cjs'),
    'rollup, esm': (file) => rollup(file, 'es'),
    webpack: (file) => webpack(tool('webpack'), file),
    rspack: (file) => webpack(tool('@rspack/core').rspack, file),
    'vite, library mode': async (file) => {
      const { build } = await load('vite')
      const { builtinModules } = createRequire(import.meta.url)('node:module')
      const external = [...builtinModules, ...builtinModules.map((name) => `node:${name}`)]
      await build({
        root: project,
        logLevel: 'error',
        build: {
          lib: { entry, formats: ['cjs'], fileName: () => 'vite.cjs' },
          outDir: join(out, 'vite'),
          minify: false,
          rollupOptions: { external },
        },
      })
      copyFileSync(join(out, 'vite/vite.cjs'), file)
    },
    ncc: async (file) => {
      const { code } = await tool('@vercel/ncc')(entry, { quiet: true, esm: false })
      writeFileSync(file, code)
    },
  }
  async function rollup(file, format) {
    const [{ rollup: bundle }, { default: commonjs }, { nodeResolve }] = await Promise.all(
      ['rollup', '@rollup/plugin-commonjs', '@rollup/plugin-node-resolve'].map(load),
    )
    const plugins = [nodeResolve({ preferBuiltins: true }), commonjs({ ignoreDynamicRequires: true })]
    const made = await bundle({ input: entry, plugins, onwarn() {} })
    await made.write({ file, format, inlineDynamicImports: true })
  }
  async function webpack(compile, file) {
    const options = {
      mode: 'production',
      target: 'node',
      context: project,
      entry,
      output: { path: dirname(file), filename: 'webpacked.cjs' },
    }
    await new Promise((resolve, reject) =>
      compile(options, (error, stats) =>
        error || stats.hasErrors()
          ? reject(error ?? new Error(stats.toString({ all: false, errors: true })))
          : resolve(),
      ),
    )
    copyFileSync(join(dirname(file), 'webpacked.cjs'), file)
  }
  mkdirSync(out)
  for (const [name, make] of Object.entries(makers)) {
    await check(`bundle: ${name}`, async () => {
      const file = at(`${name.replace(/\W+/g, '-')}.${/esm/.test(name) ? 'mjs' : 'cjs'}`)
      await make(file)
      return threeWays((where) => {
        const moved = join(where, file.slice(out.length + 1))
        if (moved !== file) copyFileSync(file, moved)
        return [process.execPath, moved]
      }, out)
    })
  }
}

/** @param command the command line, when the bundle is in a folder */
function threeWays(command, beside) {
  const elsewhere = mkdtempSync(join(tmpdir(), 'holdfast-elsewhere-'))
  try {
    const said = (words, env = {}) => {
      const options = { cwd: dirname(words.at(-1)), encoding: 'utf8', env: { PATH: process.env.PATH, ...env } }
      const { stdout, stderr } = spawnSync(words[0], words.slice(1), options)
      return stdout.trim() || stderr.trim()
    }
    const problems = []
    const first = said(command(beside))
    if (first !== 'works') problems.push(`beside the packages: ${first}`)
    const words = command(elsewhere)
    const named = said(words, { HOLDFAST_BINARY_PATH: native })
    if (named !== 'works') problems.push(`with HOLDFAST_BINARY_PATH: ${named}`)
    // Bun keeps the names of the files that it has taken: what was beside them must be gone as well.
    renameSync(modules, `${modules}.hidden`)
    const alone = said(words)
    renameSync(`${modules}.hidden`, modules)
    if (!/was bundled into another file.*external.*HOLDFAST_BINARY_PATH/.test(alone)) problems.push(`alone: ${alone}`)
    return problems.join('\n').slice(0, 3000)
  } finally {
    rmSync(elsewhere, { recursive: true, force: true })
  }
}

// ---- one file
async function executables() {
  const out = join(project, 'out')
  mkdirSync(out, { recursive: true })
  await check('Node.js single executable application', async () => {
    const { build } = tool('esbuild')
    const bundle = join(out, 'sea.cjs')
    await build({
      entryPoints: [join(project, 'entry.mjs')],
      outfile: bundle,
      bundle: true,
      platform: 'node',
      format: 'cjs',
      logLevel: 'error',
    })
    const config = join(out, 'sea.json')
    writeFileSync(
      config,
      JSON.stringify({ main: bundle, output: join(out, 'sea.blob'), disableExperimentalSEAWarning: true }),
    )
    execFileSync(process.execPath, ['--experimental-sea-config', config], { stdio: 'ignore' })
    const file = join(out, 'sea')
    copyFileSync(process.execPath, file)
    const { inject } = tool('postject')
    const fuse = { sentinelFuse: 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2' }
    await inject(file, 'NODE_SEA_BLOB', readFileSync(join(out, 'sea.blob')), fuse)
    return threeWays((where) => moved(file, where), out)
  })
  await check('bun build --compile', () => {
    const bun = join(pinned('__test__/conformance/runtimes', 'runtimes'), 'node_modules/@oven/bun-linux-x64/bin/bun')
    const file = join(out, 'bunned')
    const problem = ran(bun, ['build', '--compile', join(project, 'entry.mjs'), '--outfile', file])
    return problem || threeWays((where) => moved(file, where), out)
  })
}

function moved(file, where) {
  const to = join(where, 'program')
  copyFileSync(file, to)
  return [to]
}
