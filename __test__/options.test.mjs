// Names and values of options, signals and members: as those of node:child_process, or refused by name.
import child_process from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:os'
import { inspect } from 'node:util'
import { createContext, runInContext } from 'node:vm'
import { endAll, guard, run, running, spawn } from '../dist/index.js'
import { startSession } from '../dist/session.js'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const BOTH = [child_process.spawn, spawn]

/** What a user sees of a call: of both the same. */
async function seen(start, args) {
  let child
  try {
    child = start(...args)
  } catch ({ name, code }) {
    return { thrown: code ?? name }
  }
  let stdout = ''
  child.stdout?.on('data', (data) => {
    stdout += data
  })
  child.stderr?.resume()
  const [code, signal] = await once(child, 'close')
  return { stdout, code, signal, spawnfile: child.spawnfile, spawnargs: child.spawnargs.map(String) }
}

// ---- values
const otherRealm = createContext({ URL, Buffer })
const ARGV0 = ['sh', ['-c', 'echo "$0"']]
for (const [title, ...args] of [
  ['shell: true with arguments', 'echo', ['a  b', '$((1 + 1))', '"c  d"', 7, null], { shell: true, env }],
  ['a shell by name, with arguments', 'echo $0', ['x'], { shell: 'bash', env }],
  ['shell: true without arguments', 'echo $((1 + 1))', { shell: true, env }],
  ['shell: false, null and empty', 'echo', ['$0'], { shell: null, env }],
  ['shell with argv0', 'echo $0', ['x'], { shell: true, argv0: 'other', env }],
  ['env: null is that of this process', 'sh', ['-c', 'test -n "$PATH" && echo there'], { env: null }],
  ['env of other types', '/usr/bin/env', { env: { A: 1, B: null, C: undefined, D: true, E: '' } }],
  ['env with inherited variables', '/usr/bin/env', { env: Object.create({ A: 'inherited' }) }],
  ['argv0: null is none', ...ARGV0, { argv0: null, env }],
  ['argv0 is given', ...ARGV0, { argv0: 'other', env }],
  ['argv0 of another type', ...ARGV0, { argv0: 7, env }],
  ['cwd as a URL', 'pwd', { cwd: new URL('file:///usr/'), env }],
  ['cwd as another URL', 'pwd', { cwd: new URL('http://localhost/usr'), env }],
  ['cwd: null is that of this process', 'pwd', { cwd: null, env }],
  ['cwd of another type', 'pwd', { cwd: 7, env }],
  ['arguments of other types', 'echo', [1, true, null, undefined, { toString: () => 'x' }], { env }],
  ['arguments null', 'echo', null, { env }],
  ['arguments undefined', 'echo', undefined, { env }],
  ['options without arguments, and undefined', 'pwd', { cwd: '/usr', env }, undefined],
  ['options null', 'echo', [], null],
  ['options of a prototype are none', 'pwd', Object.create({ cwd: '/usr' })],
  ['a symbol among the options', 'pwd', { cwd: '/usr', [Symbol('cwd')]: '/', env }],
  ['timeout: null and 0', 'echo', { timeout: null, killSignal: null, uid: null, gid: null, env }],
  ['killSignal by number, in small letters', 'sleep', ['50'], { timeout: 50, killSignal: 'sigint', env }],
  ['killSignal by number', 'sleep', ['50'], { timeout: 50, killSignal: 2, env }],
  ['killSignal that is none', 'sleep', ['50'], { timeout: 50, killSignal: 'INT', env }],
  ['stdio: null', 'echo', ['x'], { stdio: null, env }],
  ['stdio of two places', 'echo', ['x'], { stdio: ['ignore', 'overlapped'], env }],
  ['stdio with holes', 'echo', ['x'], { stdio: [null, undefined, 'ignore', null, undefined], env }],
  ['stdio of one name', 'echo', ['x'], { stdio: 'ignore', env }],
  ['stdio of a name that is none', 'echo', ['x'], { stdio: 'pip', env }],
  ['what there is nothing to choose about', 'echo', { detached: false, windowsHide: true, serialization: 'json', env }],
  ['nothing to choose, null', 'echo', { detached: null, windowsHide: null, windowsVerbatimArguments: null, env }],
  ['nothing to choose, of another type', 'echo', { windowsVerbatimArguments: 1, env }],
  ['serialization that is none', 'echo', { serialization: 'xml', env }],
]) {
  test(`as child_process: ${title}`, async (t) => {
    const [expected, actual] = await Promise.all(BOTH.map((start) => seen(start, args)))
    t.deepEqual(actual, expected)
  })
}

test('cwd as bytes, as a URL of another realm, and as a URL of another implementation', async (t) => {
  const cwd = async (value) => (await run('pwd', { cwd: value, env })).stdout
  t.is(await cwd(Buffer.from('/usr')), '/usr\n')
  t.is(await cwd(new Uint8Array(Buffer.from('/usr'))), '/usr\n')
  t.is(await cwd(runInContext("Buffer.from('/usr')", otherRealm)), '/usr\n')
  t.is(await cwd(runInContext('new Uint8Array([47, 117, 115, 114])', otherRealm)), '/usr\n')
  const { href, protocol } = new URL('file:///usr')
  t.is(await cwd({ href, protocol }), '/usr\n')
  await t.throwsAsync(cwd(Buffer.from([0x2f, 0xff])), { code: 'ERR_INVALID_ARG_VALUE', message: /UTF-8/ })
  await t.throwsAsync(cwd(Buffer.from('/\0')), { code: 'ERR_INVALID_ARG_VALUE' })
})

// ---- signals
/** They stop a group only that is not an orphan; the command leads a session, as with `detached: true`. */
const STOPS = ['SIGSTOP', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU'].map((name) => constants.signals[name])

test('the name of every signal is that of child_process', async (t) => {
  const numbers = [...new Set(Object.values(constants.signals))].filter((number) => !STOPS.includes(number))
  t.true(numbers.length > 25)
  for (const number of numbers) {
    const args = ['sh', ['-c', `ulimit -c 0; kill -${number} $$; exit 7`], { stdio: 'ignore', env }]
    const [expected, actual] = await Promise.all(BOTH.map((start) => seen(start, args)))
    t.deepEqual(actual, expected, `signal ${number}`)
  }
  t.is((await run('sh', ['-c', 'ulimit -c 0; kill -ABRT $$'], { env })).signal, 'SIGABRT')
  t.is((await run('sh', ['-c', 'kill -29 $$'], { env })).signal, 'SIGIO')
})

for (const signal of [
  undefined,
  null,
  0,
  -0,
  1,
  15,
  'SIGTERM',
  'sigterm',
  'SIGIOT',
  'SIGCLD',
  'TERM',
  '15',
  '',
  64,
  -1,
  {},
]) {
  test(`as child_process: kill(${inspect(signal)})`, async (t) => {
    const tell = async (start) => {
      const child = start('sleep', ['50'], { stdio: 'ignore', env })
      await once(child, 'spawn')
      let told
      try {
        told = child.kill(signal)
      } catch ({ name, code }) {
        told = `${name} ${code}`
      }
      const before = child.killed
      // Some of them do not end it.
      child.kill('SIGKILL')
      await once(child, 'exit')
      return { told, before, after: child.kill(), afterwards: child.kill(0), killed: child.killed }
    }
    const [expected, actual] = await Promise.all(BOTH.map(tell))
    t.deepEqual(actual, expected)
  })
}

test('killed after an abort, end(), a timeout and dispose, as after kill()', async (t) => {
  const aborted = async (start) => {
    const controller = new AbortController()
    const child = start('sleep', ['50'], { signal: controller.signal, env })
    child.on('error', () => {})
    const told = []
    await once(child, 'spawn')
    told.push(child.killed)
    controller.abort()
    told.push(child.killed)
    const [code, signal] = await once(child, 'exit')
    return [...told, code, signal, child.killed]
  }
  t.deepEqual(await aborted(spawn), await aborted(child_process.spawn))
  const late = async (start) => {
    const child = start('sleep', ['50'], { timeout: 50, env })
    await once(child, 'close')
    return child.killed
  }
  t.true(await late(child_process.spawn))
  const timed = spawn('sleep', ['50'], { timeout: 50, env })
  t.is((await timed.ended).reason, 'timeout')
  t.true(timed.killed)

  const ended = spawn('sleep', ['50'], { env })
  t.throws(() => ended.end({ grace: -1 }))
  t.false(ended.killed)
  const end = ended.end()
  t.true(ended.killed)
  await end
  const left = spawn('true', { env })
  await left.ended
  await left.end()
  t.false(left.killed)
})

test('kill() after the exit finds nothing, though something of the call lives on', async (t) => {
  const child = spawn('sh', ['-c', 'sleep 50 & exit 3'], { background: 'keep', stdio: 'ignore', env })
  const [code] = await once(child, 'exit')
  t.is(code, 3)
  t.false(child.kill())
  t.false(child.kill(0))
  t.false(child.killed)
  t.true(child.killGroup(0))
  t.is((await child.end()).outcome, 'ended')
})

test('members that a child without IPC has, and has not', async (t) => {
  for (const start of BOTH) {
    const child = start('true', { env })
    t.is(child.connected, false)
    t.is(child.channel, undefined)
    t.is(child.exitCode, null)
    t.is(child.signalCode, null)
    t.is(child.killed, false)
    t.is(child.spawnfile, 'true')
    t.deepEqual(child.spawnargs, ['true'])
    t.is(child.stdio.length, 3)
    t.is(typeof child[Symbol.dispose ?? Symbol.for('nodejs.dispose')], 'function')
    await once(child, 'close')
    t.is(child.exitCode, 0)
    t.is(child.signalCode, null)
  }
})

// ---- names
/** [option, what is probably meant, a part of the message] */
const UNKNOWN = [
  ['timeOut', 'timeout', /Did you mean 'timeout'/],
  ['timeoutMs', 'timeout', /Did you mean 'timeout'/],
  ['timeoutMilliseconds', 'timeout', /Did you mean/],
  ['gracePeriod', 'grace', /Did you mean 'grace'/],
  ['killsignal', 'killSignal', /Did you mean/],
  ['backgroud', 'background', /Did you mean/],
  ['environment', 'env', /Did you mean/],
  ['cdw', 'cwd', /Did you mean/],
  ['maxBuffer', 'maxOutput', /'maxOutput'/],
  ['reject', 'check', /'check: true'/],
  ['throwOnError', 'check', /'check: true'/],
  ['forceKillAfterDelay', 'grace', /'grace'/],
  ['cancelSignal', 'signal', /'signal'/],
  ['cleanup', undefined, /host dies/],
  ['persist', 'background', /background: 'keep'/],
  ['all', 'stdio', /'stdout' in the third place/],
  ['stdin', 'stdio', /'stdio'/],
  ['inputFile', 'input', /createReadStream/],
  ['stripFinalNewline', undefined, /trimEnd/],
  ['lines', undefined, /split/],
  ['extendEnv', 'env', /process\.env/],
  ['preferLocal', 'env', /PATH/],
  ['nodeOptions', undefined, /options themselves/],
  ['somethingElse', undefined, /^Unknown option 'somethingElse' of run\(\)$/],
  ['constructor', undefined, /^Unknown option 'constructor' of run\(\)$/],
  ['bad\u001b[31m\n', undefined, /^Unknown option 'bad\\x1B\[31m\\n' of run\(\)$/],
  ['__proto__', undefined, /^Unknown option '__proto__' of run\(\)$/],
]

test('an option that there is not is refused by name, with the one that is probably meant', async (t) => {
  for (const [name, meant, message] of UNKNOWN) {
    const options = Object.defineProperty({}, name, { value: 1, enumerable: true })
    const error = await t.throwsAsync(run('true', [], options), { code: 'ERR_HOLDFAST_UNKNOWN_OPTION', message }, name)
    t.true(error instanceof TypeError)
    t.is(error.option, name)
    t.is(error.meant, meant, name)
    t.throws(() => spawn('true', options), { code: 'ERR_HOLDFAST_UNKNOWN_OPTION', message: /spawn\(\)/ }, name)
  }
  t.deepEqual(running(), [])
})

test('every function refuses options of others, and takes undefined ones', async (t) => {
  const code = 'ERR_HOLDFAST_UNKNOWN_OPTION'
  for (const option of ['input', 'encoding', 'maxOutput', 'check', 'onOutput']) {
    t.throws(() => spawn('true', { [option]: 1 }), { code, message: /run\(\) has it/ })
  }
  await t.throwsAsync(run('true', { via: 'starter' }), { code, message: /startSession\(\) has it/ })
  await t.throwsAsync(startSession('true', [], { timeout: 1 }), { code, message: /run\(\) has it/ })
  const protocol = { env: 'A', ack: 'b', acknowledge: 'c' }
  await t.throwsAsync(startSession('true', [], { protocol }), { code, message: /Did you mean 'ack'/ })
  await t.throwsAsync(guard(2, { grace: 1 }), { code, message: /guard\(\)/ })
  await t.throwsAsync(endAll({ scop: 'thread' }), { code, message: /Did you mean 'scope'/ })
  await t.throwsAsync(endAll(null), { code: 'ERR_INVALID_ARG_TYPE' })

  const none = { maxBuffer: undefined, timeOut: undefined }
  t.like(await run('true', { env, ...none }), { exitCode: 0 })
  const child = spawn('sleep', ['50'], { env, ...none })
  t.throws(() => child.end({ timeout: 5 }), { code, message: /end\(\)/ })
  t.false(child.killed)
  t.like(await child.end(none), { outcome: 'ended' })
  t.deepEqual(await endAll(none), [])
})

test('what a polluted prototype holds is no option', async (t) => {
  const host = `
    Object.prototype.shell = '/no/such/shell'
    Object.prototype.nonsense = 1
    const { run, spawn } = require(${JSON.stringify(new URL('../dist/index.js', import.meta.url).pathname)})
    run('echo', ['fine']).then(({ stdout }) => process.stdout.write(stdout))
  `
  t.is(child_process.spawnSync(process.execPath, ['-e', host], { env, encoding: 'utf8' }).stdout, 'fine\n')
})

// ---- what nobody would get
test('run() refuses what its result has no place for', async (t) => {
  const code = 'ERR_INVALID_ARG_VALUE'
  for (const place of ['pipe', 'overlapped']) {
    const stdio = ['ignore', 'pipe', 'pipe', 'ignore', place]
    await t.throwsAsync(run('true', { env, stdio }), { code, message: /options\.stdio\[4\]/ })
  }
  const stdio = ['ignore', 'ignore', 'inherit']
  await t.throwsAsync(run('true', { env, stdio, onOutput() {} }), { code, message: /options\.onOutput/ })
  t.like(await run('true', { env, stdio: ['ignore', 'pipe', 'stdout', 'ignore', null], onOutput() {} }), { ok: true })
})
