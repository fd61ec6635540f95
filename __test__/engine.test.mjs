// The Engine's side: `holdfast/engine` and containRequestedSession(). Whoever starts these Engines knows the variable and
// the line, and nothing of holdfast.
import { fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, copyFileSync, mkdirSync, openSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startSession } from '../dist/session.js'
import { holdfast, within } from './support/command-line.mjs'
import { comm, marked, newMark, noneMarked, stat, until } from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { ACK, HELPER, sdk, VARIABLE } from './support/session.mjs'
import { folderOfFile, has, suite } from './support/suite.mjs'
import { NO_TERMINAL, openTerminal } from './support/terminal.mjs'
import test from './support/test.mjs'

const CHECKOUT = fileURLToPath(new URL('..', import.meta.url)).replace(/\/$/, '')
const node = process.execPath
/** A project that has holdfast among its packages. */
const project = folderOfFile(test)
const file = (name, text, mode = 0o644) => {
  const path = join(project, name)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}
mkdirSync(join(project, 'node_modules/.bin'), { recursive: true })
symlinkSync(CHECKOUT, join(project, 'node_modules/holdfast'))
file('package.json', '{"name":"engines","private":true}')

suite(test)

// ---- Engines
/** Speaks of itself in one line of JSON, stays until something comes (or ends) on its stdin or channel, and exits with 7. */
const BODY = programOf('engine/body', { VARIABLE })
const plain = file('plain.js', BODY)
const commonjs = file('commonjs.js', `require('holdfast/engine')\n${BODY}`)
const module = file('module.mjs', `import 'holdfast/engine'\n${BODY}`)
const called = file('called.js', `globalThis.answered = require('holdfast/session').containRequestedSession()\n${BODY}`)
const calledModule = file(
  'called.mjs',
  `import { containRequestedSession } from 'holdfast/session'\nglobalThis.answered = containRequestedSession()\n${BODY}`,
)
file('bin.mjs', `#!/usr/bin/env node\nimport 'holdfast/engine'\n${BODY}`, 0o755)
symlinkSync('../../bin.mjs', join(project, 'node_modules/.bin/engine-bin'))
const QUIET = {
  npm_config_cache: join(project, 'cache'),
  npm_config_update_notifier: 'false',
  npm_config_offline: 'true',
}

const FORMS = {
  '--import': { command: [node, '--import', 'holdfast/engine', plain] },
  '--require': { command: [node, '--require', 'holdfast/engine', plain] },
  'first import of a module': { command: [node, module] },
  'first require': { command: [node, commonjs] },
  'NODE_OPTIONS --import': { command: [node, plain], env: { NODE_OPTIONS: '--import holdfast/engine' } },
  'NODE_OPTIONS --require': { command: [node, plain], env: { NODE_OPTIONS: '--require holdfast/engine' } },
  'containRequestedSession()': { command: [node, called], answered: false },
  'containRequestedSession(), module': { command: [node, calledModule], answered: false },
  'node -e': { command: [node, '-e', `require('holdfast/engine')\n${BODY}`] },
  '#!/usr/bin/env node': { command: [join(project, 'bin.mjs')] },
  // npm keeps the channel to itself.
  npx: { command: ['npx', '--no', 'engine-bin'], env: QUIET, hasNoChannel: true },
}
const asking = { [VARIABLE]: '1' }

/** Starts an Engine; `about()` is what it says of itself, after the acknowledgement or without. */
function start({ command, env = {} }, options = {}) {
  const started = holdfast([], { command, cwd: project, ...options, env: { ...env, ...options.env } })
  return started
}
async function aboutOf(text) {
  const line = await until(() => text().match(/^\{"pid":.*\}\r?$/m), 'what the Engine says of itself')
  return JSON.parse(line[0])
}
/** Between the Engine and whoever started it are a keeper and a starter. */
function startedBy({ ppid }) {
  const above = stat(ppid).ppid
  return { keeper: comm(ppid), starter: comm(above), pid: above }
}

for (const [form, how] of Object.entries(FORMS)) {
  test(`it answers: ${form}, with pipes`, async (t) => {
    const started = start(how, { env: asking })
    const about = await aboutOf(started.out)
    const { keeper, starter, pid } = startedBy(about)
    t.deepEqual([keeper, starter], ['holdfast-helper', 'holdfast-helper'])
    if (form !== 'npx') t.is(pid, started.child.pid)
    t.deepEqual([about.asked, about.hasAddon, about.answered], [null, false, how.answered ?? null])
    started.child.stdin.end('\n')
    t.deepEqual(await started.closed, { code: 7, signal: null })
    t.true(started.out().startsWith(ACK), started.out())
    t.is(started.out().split('\n').length, 3)
    t.is(started.err(), '')
    t.deepEqual(marked(started.mark), [])
  })

  test(`it answers: ${form}, with files`, async (t) => {
    const output = join(project, 'output')
    const [input, out] = [openSync(file('input', 'x'), 'r'), openSync(output, 'w')]
    const started = start(how, { env: asking, stdio: [input, out, out] })
    t.deepEqual(await started.exited, { code: 7, signal: null })
    const [ack, about, rest] = readFileSync(output, 'utf8').split('\n')
    t.is(`${ack}\n`, ACK)
    t.is(JSON.parse(about).asked, null)
    t.is(rest, '')
  })

  test(`it answers: ${form}, in a terminal`, async (t) => {
    if (!has(t, NO_TERMINAL)) return
    const words = how.command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ')
    const env = { ...how.env, ...asking }
    for (const [typed, status] of [
      ['\r', 7],
      ['\x03', 9],
    ]) {
      const terminal = openTerminal(`cd ${project} && exec ${words}`, env)
      const about = await aboutOf(terminal.screen)
      t.is(startedBy(about).starter, 'holdfast-helper')
      t.deepEqual(about.terminal, [true, true])
      t.true(terminal.screen().startsWith(ACK.replace('\n', '\r\n')), terminal.screen())
      terminal.type(typed)
      const { code } = await terminal.exited
      // npx has words of its own for an interrupted program.
      if (form !== 'npx') t.is(code, status, terminal.screen())
      await noneMarked(terminal.mark)
    }
  })

  if (how.hasNoChannel) continue
  test(`it answers: ${form}, with an IPC channel`, async (t) => {
    const started = start(how, { env: asking, stdio: ['pipe', 'pipe', 'pipe', 'ipc'] })
    const about = await aboutOf(started.out)
    t.is(startedBy(about).pid, started.child.pid)
    const answer = within(once(started.child, 'message'), 'the answer')
    started.child.send({ n: 12 })
    t.deepEqual((await answer)[0], { echo: { n: 12 } })
    t.deepEqual(await started.closed, { code: 7, signal: null })
    t.true(started.out().startsWith(ACK))
  })
}

test('fork(): no message is lost that was sent before the answer (CommonJS, --require)', async (t) => {
  for (const [script, execArgv] of [
    [commonjs, []],
    [plain, ['--require', 'holdfast/engine']],
  ]) {
    const env = { ...process.env, ...asking, MARK: newMark() }
    const child = fork(script, { execArgv, env, cwd: project, serialization: 'advanced', silent: true })
    const [answer, exit] = [once(child, 'message'), once(child, 'exit')]
    child.send({ n: 12n })
    t.deepEqual((await within(answer, 'the answer'))[0], { echo: { n: 12n } })
    t.deepEqual(await within(exit, 'its exit'), [7, null])
  }
})

// ---- the command line
test('arguments and options arrive as they were given', async (t) => {
  const args = ['', 'a b', '--', '--ack', '-x', "it's", 'ü€\n', '--import']
  const options = ['--stack-size=900', '--conditions', 'x', '--no-deprecation']
  const cases = [
    [node, ...options, commonjs, ...args],
    [node, ...options, '--', module, ...args],
    [node, ...options, '-e', `require('holdfast/engine')\n${BODY}`, 'one', ...args],
    [node, `--eval=require('holdfast/engine')\n${BODY}`, '--', ...args],
    [node, './commonjs.js', ...args],
    [node, commonjs],
    [join(project, 'bin.mjs'), ...args],
  ]
  for (const command of cases) {
    const found = []
    for (const env of [asking, {}]) {
      const started = start({ command }, { env })
      started.child.stdin.end()
      t.deepEqual(await started.closed, { code: 7, signal: null }, started.err())
      t.is(started.out().startsWith(ACK), env === asking)
      const { args, execArgv, cwd } = await aboutOf(started.out)
      found.push({ args, execArgv, cwd })
    }
    t.deepEqual(found[0], found[1])
  }
})

test('the inspector of an Engine has its port', async (t) => {
  const started = start({ command: [node, '--inspect=127.0.0.1:0', commonjs] }, { env: asking })
  await aboutOf(started.out)
  started.child.stdin.end()
  await started.closed
  const [first, second] = [...started.err().matchAll(/127\.0\.0\.1:(\d+)/g)].map(([, port]) => port)
  t.true(first !== undefined && second !== undefined, started.err())
  const again = start({ command: [node, `--inspect=127.0.0.1:${second}`, commonjs] }, { env: asking })
  const about = await aboutOf(again.out)
  t.is(startedBy(about).starter, 'holdfast-helper')
  again.child.stdin.end()
  await again.closed
  t.false(again.err().includes('failed'), again.err())
})

test('inherited descriptors reach the Engine', async (t) => {
  const body = `require('holdfast/engine'); require('fs').writeSync(3, 'three'); require('fs').writeSync(5, 'five')`
  const stdio = ['ignore', 'pipe', 'pipe', 'pipe', 'ignore', 'pipe']
  const started = start({ command: [node, '-e', body] }, { env: asking, stdio })
  const chunks = { 3: '', 5: '' }
  for (const place of [3, 5]) {
    started.child.stdio[place].on('data', (chunk) => {
      chunks[place] += chunk
    })
  }
  t.deepEqual(await started.closed, { code: 0, signal: null }, started.err())
  t.deepEqual([started.out(), chunks], [ACK, { 3: 'three', 5: 'five' }])
})

test('as process 1 of a pid namespace, whose parent is outside: it answers', async (t) => {
  const unshare = ['unshare', '--pid', '--fork', '--mount-proc']
  const { status } = spawnSync(unshare[0], [...unshare.slice(1), 'true'])
  if (!has(t, status === 0 ? '' : 'no pid namespace can be made here')) return
  const started = start({ command: [...unshare, node, commonjs] }, { env: asking })
  const about = await aboutOf(started.out)
  t.true(started.out().startsWith(ACK))
  t.true(about.pid > 1 && about.ppid > 1)
  started.child.stdin.end()
  t.deepEqual(await started.closed, { code: 7, signal: null })
})

// ---- no request
test('without a request nothing happens: the same process, and no addon', async (t) => {
  for (const value of [undefined, '', '0', 'true', '11', ' 1']) {
    for (const command of [FORMS['--import'].command, [node, module], [node, commonjs], [node, called]]) {
      const started = start({ command }, { env: value === undefined ? {} : { [VARIABLE]: value } })
      started.child.stdin.end()
      await started.closed
      const { pid, ppid, asked, hasAddon, answered } = await aboutOf(started.out)
      t.deepEqual([pid, ppid, asked], [started.child.pid, process.pid, value ?? null])
      t.is(hasAddon, false)
      t.is(answered, command[1] === called ? false : null)
      t.false(started.out().startsWith(ACK))
    }
  }
})

// ---- a request that cannot be answered
/** Runs on as what was started, says nothing on stdout, and keeps the request from its children. */
async function runsOn(t, how, why, options = {}) {
  const started = start(how, { ...options, env: { ...asking, NODE_DEBUG: 'holdfast', ...options.env } })
  started.child.stdin?.end()
  const status = await started.closed
  t.deepEqual(status, { code: 7, signal: null }, started.err())
  const about = await aboutOf(started.out)
  t.is(about.asked, null)
  t.true(started.out().startsWith('{"pid"'), started.out())
  t.true(
    started.err().includes('the request for containment was not answered') && started.err().includes(why),
    started.err(),
  )
  return about
}

test('it runs on: a title of its own, options or arguments that were changed', async (t) => {
  for (const before of [
    `process.title = 'engine'`,
    `process.execArgv.push('--no-warnings')`,
    `process.argv.push('more')`,
    `process.argv.splice(2)`,
  ]) {
    const script = file('changed.js', `${before}\nrequire('holdfast/engine')\n${BODY}`)
    await runsOn(t, { command: [node, script, 'one', 'two'] }, 'cmdline does not match')
  }
  const script = file('changed.js', `process.title = 'x'\n${readFileSync(called, 'utf8')}`)
  t.is((await runsOn(t, { command: [node, script] }, 'cmdline does not match')).answered, true)
})

test('it runs on: a program that came by stdin', async (t) => {
  const program = file('program.js', `${readFileSync(commonjs, 'utf8')}\nleave()`)
  for (const args of [[], ['-'], ['-', 'one']]) {
    const options = { stdio: [openSync(program, 'r'), 'pipe', 'pipe'] }
    await runsOn(t, { command: [node, ...args] }, 'stdin', options)
  }
})

test('it runs on: arguments that are not UTF-8', async (t) => {
  const script = `exec "$0" "$1" "$(printf 'a\\377')"`
  await runsOn(t, { command: ['sh', '-c', script, node, commonjs] }, 'encoded data')
})

test('it runs on: the variable was not there at the start; no second answer, and no third', async (t) => {
  const set = file('set.js', `process.env.${VARIABLE} = '1'\nrequire('holdfast/engine')\n${BODY}`)
  await runsOn(t, { command: [node, set] }, 'not started with it', { env: { [VARIABLE]: '0' } })
  const variables = file('variables', `${VARIABLE}=1\n`)
  const env = { MARK: newMark() }
  const own = start({ command: ['env', '-u', VARIABLE, node, `--env-file=${variables}`, commonjs] }, { env })
  own.child.stdin.end()
  t.deepEqual(await own.closed, { code: 7, signal: null })
  t.false(own.out().startsWith(ACK))
  // Asked for, and set again by the file: one starter.
  const asked = start({ command: [node, `--env-file=${variables}`, commonjs] }, { env: asking })
  const about = await aboutOf(asked.out)
  t.is(startedBy(about).pid, asked.child.pid)
  asked.child.stdin.end()
  t.deepEqual(await asked.closed, { code: 7, signal: null })
  t.is(asked.out().split(ACK).length, 2)
})

test('it runs on: in a worker thread, whose main thread did not ask', async (t) => {
  const script = file(
    'worker.js',
    `const { Worker, isMainThread } = require('node:worker_threads')
    if (isMainThread) new Worker(__filename, { stdin: true }).on('exit', (code) => process.exit(code))
    else {
      require('holdfast/engine')
      ${BODY}
      leave()
    }`,
  )
  await runsOn(t, { command: [node, script] }, 'worker')
})

test('it runs on: no helper, no addon, a helper that is none', async (t) => {
  const addon = join(dirname(HELPER), 'holdfast.linux-x64-gnu.node')
  const folders = { empty: 'which has no', addon: 'does not exist', broken: 'or it is not the helper' }
  for (const [name, why] of Object.entries(folders)) {
    const path = join(project, name)
    mkdirSync(path)
    if (name !== 'empty') copyFileSync(addon, join(path, 'holdfast.linux-x64-gnu.node'))
    if (name === 'broken') file('broken/holdfast-helper.node', 'no program', 0o755)
    await runsOn(t, { command: [node, module] }, why, { env: { HOLDFAST_BINARY_PATH: path } })
  }
})

test('it runs on: no /proc', async (t) => {
  const script = 'mount -t tmpfs none /proc && exec "$0" "$1"'
  const unshare = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c']
  const { status } = spawnSync(unshare[0], [...unshare.slice(1), script, 'true'])
  if (!has(t, status === 0 ? '' : 'no mount namespace can be made here')) return
  const body = file('no-proc.js', `require('holdfast/engine')\n${BODY.replace(/hasAddon: .*/, '')}`)
  await runsOn(t, { command: [...unshare, script, node, body] }, 'ENOENT')
})

// ---- with an SDK
test('an SDK in Python and an Engine in JavaScript: talk, the end, SIGKILL of the SDK', async (t) => {
  for (const [steps, status] of [
    [['line', 'line', 'write x', 'rest', 'wait'], 7],
    [['line', 'line', 'signal SIGTERM', 'rest', 'wait'], 8],
    [['line', 'line', 'die'], undefined],
  ]) {
    const one = newMark()
    const engine = file(
      'tree.mjs',
      `import 'holdfast/engine'\nprocess.getBuiltinModule('node:child_process').spawn('setsid', ['sleep', '60'], { stdio: 'ignore', detached: true })\n${BODY}`,
    )
    const env = { ...process.env, MARK: one }
    const { seen } = await sdk({ command: [node, engine], env: asking, steps }, env)
    t.deepEqual([seen.lines[0], seen.status], [ACK, status])
    t.is(JSON.parse(seen.lines[1]).asked, null)
    if (status === undefined) await noneMarked(one)
    else t.deepEqual(marked(one), [])
  }
})

test('startSession() and an Engine in JavaScript: contained, one SIGTERM at end(), nothing is left', async (t) => {
  const one = newMark()
  const counts = file('counts', '')
  const engine = file(
    'counting.mjs',
    `import 'holdfast/engine'
    import { appendFileSync } from 'node:fs'
    import { spawn } from 'node:child_process'
    spawn('setsid', ['sleep', '60'], { stdio: 'ignore' })
    process.on('SIGTERM', () => appendFileSync(${JSON.stringify(counts)}, 'TERM\\n'))
    setTimeout(() => process.exit(99), 60_000)
    console.log('ready')`,
  )
  const env = { ...process.env, MARK: one }
  const session = await startSession(node, [engine], { via: 'request', cwd: project, env, grace: 400 })
  t.true(session.contained)
  t.is(await linesOf(session.stdout).next(), 'ready')
  const report = await session.end()
  t.deepEqual([report.outcome, report.reason], ['ended', 'end'])
  t.is(readFileSync(counts, 'utf8'), 'TERM\n')
  t.deepEqual(
    marked(one).filter((pid) => comm(pid) !== 'holdfast-helper'),
    [],
  )
})

test('SIGKILL of a host whose Engine answered: nothing is left (C02)', async (t) => {
  const one = newMark()
  const session = join(CHECKOUT, 'dist/session.js')
  const host = startHost(
    `const { startSession } = require(${JSON.stringify(session)})
    const session = await startSession(process.execPath, [${JSON.stringify(join(project, 'tree.mjs'))}], { via: 'request', grace: 300 })
    session.stdout.once('data', (chunk) => report([session.contained, JSON.parse(chunk)]))`,
    { env: { MARK: one }, options: { cwd: project } },
  )
  t.teardown(() => host.kill())
  const [contained, about] = await host.next()
  t.deepEqual([contained, startedBy(about).starter], [true, 'holdfast-helper'])
  host.kill()
  await host.exited
  await noneMarked(one)
})
