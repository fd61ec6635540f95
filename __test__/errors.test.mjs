// Starts that fail, and arguments that are wrong: each is refused at once, by its name, and nothing was run.
import { spawn as plain, spawnSync } from 'node:child_process'
import { getEventListeners, once } from 'node:events'
import { chmodSync, closeSync, constants, copyFileSync, existsSync, mkdirSync, openSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Readable } from 'node:stream'
import { HoldfastError, run, running, spawn } from '../dist/index.js'
import { comm, stat, until } from './support/facts.mjs'
import { compiled } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { HELPER } from './support/session.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)

const file = (path, text, mode) => {
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}

/** What the system refuses, as run() and as spawn() tell it; both must say the same. */
async function refusal(t, program, args = [], options = {}) {
  const rejected = await t.throwsAsync(run(program, args, { env, ...options }), { instanceOf: HoldfastError })
  const child = spawn(program, args, { env, ...options })
  const events = []
  let emitted
  child.on('spawn', () => events.push('spawn'))
  child.on('error', (error) => {
    emitted = error
    events.push('error')
  })
  child.on('exit', () => events.push('exit'))
  child.on('close', (code) => events.push(`close ${code}`))
  child.on('ended', ({ reason }) => events.push(`ended ${reason}`))
  const report = await child.ended
  t.deepEqual(events, ['error', `close ${emitted.errno}`, 'ended not-started'])
  t.is(report.error, emitted)
  t.is(report.outcome, 'ended')
  t.is(child.exitCode, emitted.errno)
  t.is(child.pid, undefined)
  t.false(child.kill())
  for (const name of ['message', 'code', 'errno', 'path', 'step', 'syscall', 'ran']) t.is(emitted[name], rejected[name])
  t.false(rejected.ran)
  t.is(rejected.syscall, `spawn ${program}`)
  t.deepEqual(rejected.spawnargs, args)
  return rejected
}

test('six refusals have six messages, each with step, path and the code of the system (C60)', async (t) => {
  const at = folder(t)
  const missing = join(at, 'none')
  const plain = file(join(at, 'plain'), '#!/bin/sh\n', 0o644)
  const badInterpreter = file(join(at, 'bad-interpreter'), '#!/no/such/interpreter\n', 0o755)
  const directory = join(at, 'directory')
  mkdirSync(directory)
  const cases = [
    ['missing program', [missing], { step: 'program', path: missing, code: 'ENOENT', errno: -2 }],
    ['missing cwd', ['true', [], { cwd: missing }], { step: 'cwd', path: missing, code: 'ENOENT', errno: -2 }],
    ['cwd a file', ['true', [], { cwd: plain }], { step: 'cwd', path: plain, code: 'ENOTDIR', errno: -20 }],
    ['interpreter', [badInterpreter], { step: 'interpreter', path: badInterpreter, code: 'ENOENT', errno: -2 }],
    ['no permission', [plain], { step: 'program', path: plain, code: 'EACCES', errno: -13 }],
    ['a directory', [directory], { step: 'program', path: directory, code: 'EACCES', errno: -13 }],
  ]
  const messages = new Set()
  for (const [name, call, expected] of cases) {
    const error = await refusal(t, ...call)
    t.like(error, expected, name)
    t.true(error.message.includes(expected.path) && error.message.includes(expected.code), error.message)
    messages.add(error.message.replaceAll(expected.path, '').replace(/^spawn \S*/, ''))
  }
  t.is(messages.size, cases.length)
  t.deepEqual(running(), [])
})

test('a program that is in no folder of PATH (C60)', async (t) => {
  const at = folder(t)
  const name = 'holdfast-no-such-program'
  t.like(await refusal(t, name), { step: 'program', path: name, code: 'ENOENT' })
  // PATH of the child, not of the host.
  t.like(await refusal(t, 'true', [], { env: { ...env, PATH: at } }), { step: 'program', code: 'ENOENT' })
  t.is((await run('true', { env })).exitCode, 0)
})

test('a script without a first line runs as under child_process, by a shell (C60)', async (t) => {
  const script = file(join(folder(t), 'script'), 'echo "$1"; exit 5\n', 0o755)
  const { status, stdout } = spawnSync(script, ['word'], { encoding: 'utf8' })
  t.like(await run(script, ['word'], { env }), { exitCode: status, stdout })
  t.is(status, 5)
})

// ---- a program that was just written
/** A program that another process holds open for writing, until `release()`. */
async function busy(t, at) {
  const holder = compiled(t, 'hold-open')
  if (holder === undefined) return undefined
  const program = join(at, 'program')
  copyFileSync('/bin/echo', program)
  const holding = plain(holder, [program], { env })
  t.teardown(() => holding.kill('SIGKILL'))
  const released = once(holding, 'exit')
  await once(holding.stdout, 'data')
  return { program, release: () => holding.stdin.end() && released }
}

/** On a busy machine the time may be up before anything else had its turn: then it is ETXTBSY, and tried once more. */
async function beforeItIsUp(t, attempt) {
  for (let round = 0; round < 30; round++) if (await attempt()) return t.pass()
  return t.fail('never before the time was up')
}

test('a program that was written a moment ago is tried again: by its own name, by PATH, as an interpreter (C60)', async (t) => {
  const at = folder(t)
  const script = file(join(at, 'script'), `#!${at}/program\n`, 0o755)
  for (const [name, printed] of [
    [join(at, 'program'), 'ran\n'],
    ['program', 'ran\n'],
    [script, `${script} ran\n`],
  ])
    await beforeItIsUp(t, async () => {
      const held = await busy(t, at)
      if (held === undefined) return true
      const child = spawn(name, ['ran'], { env: { ...env, PATH: at } })
      let text = ''
      child.stdout.on('data', (data) => (text += data))
      child.on('error', ({ code }) => (text = code))
      // Before exec nothing else would sleep.
      const isWaiting = () => comm(child.pid) === 'holdfast-helper' && stat(child.pid)?.state === 'S'
      await until(() => isWaiting() || child.exitCode !== null, 'the first attempt')
      await held.release()
      await child.ended
      t.true([printed, 'ETXTBSY'].includes(text), text)
      return text === printed
    })
})

test('a program that stays open for writing is ETXTBSY, and the message says what to do (C60)', async (t) => {
  const at = folder(t)
  const held = await busy(t, at)
  if (held === undefined) return
  const error = await refusal(t, held.program)
  t.like(error, { code: 'ETXTBSY', errno: -26, step: 'program', path: held.program })
  t.regex(error.message, /is still open for writing/)
  // The deadline holds while it is tried again, and so does an end that is asked for.
  await beforeItIsUp(t, async () => {
    const result = await run(held.program, [], { env, timeout: 1 }).catch((refused) => refused)
    if (result.code === 'ETXTBSY') return false
    t.like(result, { timedOut: true, signal: 'SIGTERM', ok: false })
    return true
  })
  await beforeItIsUp(t, async () => {
    const child = spawn(held.program, [], { env })
    child.on('error', () => {})
    const report = await child.end({ grace: 0 })
    t.is(report.outcome, 'ended')
    return report.reason === 'end'
  })
  await held.release()
  t.is((await run(held.program, ['ran'], { env })).stdout, 'ran\n')
})

test('an argument and an environment that are too long are named with their size (C61)', async (t) => {
  const error = await refusal(t, 'true', ['short', 'x'.repeat(200 * 1024)])
  t.like(error, { code: 'E2BIG', step: 'arguments', errno: -7 })
  t.true(error.message.includes('args[1]') && error.message.includes(`${200 * 1024}`), error.message.slice(0, 300))
  t.true(error.message.length < 1000)

  const one = await refusal(t, 'true', [], { env: { ...env, LONG: 'x'.repeat(3_000_000) } })
  t.like(one, { code: 'E2BIG', step: 'arguments' })
  t.true(one.message.includes("'LONG'") && one.message.includes('3000005'), one.message.slice(0, 300))

  const many = { ...env, LONGEST: 'x'.repeat(100_001) }
  for (let index = 0; index < 100; index++) many[`PART${index}`] = 'x'.repeat(100_000)
  const all = await refusal(t, 'true', [], { env: many })
  t.like(all, { code: 'E2BIG', step: 'arguments' })
  t.true(all.message.includes("'LONGEST'"), all.message.slice(0, 300))

  t.is((await run('true', { env })).exitCode, 0)
})

test('what just fits is not refused (C61)', async (t) => {
  // Far beyond one message and one socket buffer.
  const words = Array.from({ length: 10 }, (_, index) => `${index}`.repeat(100_000))
  const { stdout, exitCode } = await run(
    'sh',
    ['-c', 'echo $# "$(printf %s "$@" | wc -c)" "$(printf %s "$BIG" | wc -c)"', 'sh', ...words],
    {
      env: { ...env, BIG: 'y'.repeat(120_000) },
    },
  )
  t.is(exitCode, 0)
  t.is(stdout, '10 1000000 120000\n')
})

// ---- paths that mean the process that looks them up
test('/proc/self is the host, as under child_process: program, directory, descriptors (C60)', async (t) => {
  const at = folder(t)
  mkdirSync(join(at, 'sub'))
  copyFileSync('/bin/pwd', join(at, 'sub', 'program'))
  const directory = openSync(at, constants.O_RDONLY)
  const program = openSync('/bin/echo', constants.O_RDONLY)
  const script = openSync(file(join(at, 'script'), '#!/bin/sh\necho ran\n', 0o755), constants.O_RDONLY)
  t.teardown(() => {
    for (const fd of [directory, program, script]) closeSync(fd)
  })
  const node = ['-p', 'process.execPath']
  const rows = [
    ['/proc/self/exe', node],
    ['/proc/thread-self/exe', node],
    ['pwd', [], { cwd: '/proc/self/cwd' }],
    ['pwd', [], { cwd: '/proc/self/cwd/docs/..' }],
    ['pwd', [], { cwd: '/proc/thread-self/cwd/' }],
    // A program below it is in the command's directory.
    ['/proc/self/cwd/program', [], { cwd: join(at, 'sub') }],
    ...['/proc/self/fd', '/dev/fd', '/proc/thread-self/fd'].flatMap((fds) => [
      ['pwd', [], { cwd: `${fds}/${directory}` }],
      ['pwd', [], { cwd: `${fds}/${directory}/sub` }],
      [`${fds}/${program}`, ['ran']],
      [`${fds}/${directory}/sub/program`, []],
      [`${fds}/${script}`, []],
      [`${fds}/999`, []],
      ['pwd', [], { cwd: `${fds}/999` }],
      ['pwd', [], { cwd: `${fds}/${program}` }],
    ]),
    // The numbers of its own stdio are the command's.
    ['/proc/self/fd/3', ['ran'], { stdio: ['ignore', 'pipe', 'pipe', program] }],
    ['/dev/stdin', ['ran'], { stdio: [program, 'pipe', 'pipe'] }],
    ['/dev/fd/0', ['ran'], { stdio: [program, 'pipe', 'pipe'] }],
    ['pwd', [], { stdio: ['ignore', 'pipe', 'pipe', directory], cwd: '/proc/self/fd/3' }],
    ['/proc/self/cwd', []],
    ['/proc/self/nothing', []],
    ['/proc/self/exe', node, { stdio: ['ignore', 'pipe', 'pipe', ...Array(57).fill('ignore')] }],
  ]
  // The interpreter is told the path of a script, of which a number is part.
  const withoutNumbers = (text) =>
    text
      ?.replaceAll(/\/fd\/\d+/g, '/fd/N')
      .replaceAll('/dev/', '/proc/self/')
      .replaceAll('thread-self', 'self')
  for (const [name, args, options] of rows) {
    const what = `${name} ${args} ${JSON.stringify(options)}`
    const { error, status, stdout, stderr } = spawnSync(name, args, { env, encoding: 'utf8', ...options })
    const child = spawn(name, args, { env, ...options })
    const output = Promise.all([child.stdout, child.stderr].map((stream) => stream.toArray()))
    const refused = await Promise.race([once(child, 'error'), once(child, 'exit')])
    const [out, err] = await output.then((both) => both.map((chunks) => chunks.join('')))
    await child.ended
    if (error) t.is(refused[0].code, error.code, what)
    else t.deepEqual([refused[0], out, withoutNumbers(err)], [status, stdout, withoutNumbers(stderr)], what)
  }
})

test('/proc/self: what it means is decided at the call, for another user, too (C60)', async (t) => {
  const at = folder(t)
  const directory = openSync(at, constants.O_RDONLY)
  const child = spawn('pwd', [], { env, cwd: `/proc/self/fd/${directory}` })
  closeSync(directory)
  const other = openSync('/', constants.O_RDONLY)
  t.is(other, directory)
  t.is(`${(await once(child.stdout, 'data'))[0]}`, `${at}\n`)
  await child.ended
  closeSync(other)
  t.is((await run('/proc/self/exe', ['-p', '6 * 7'], { env })).stdout, '42\n')
  if (!has(t, process.getuid() === 0 ? '' : 'only root can start as another user')) return
  t.is((await run('/proc/self/exe', ['-p', 'process.getuid()'], { env, uid: 65534 })).stdout, '65534\n')
})

// ---- every field at and beyond its limits: a limit of holdfast's own never shows
const KIB = 1024
const MIB = 1024 * KIB
const name = (bytes) => `/${'n'.repeat(bytes - 1)}`

/** The limits of the system, and those of a message (64 KiB) and of a spec (64 MiB). */
const sizes = [5000, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 70 * KIB, 64 * MIB, 65 * MIB]

test('a name that is too long is ENAMETOOLONG at once, by step, and short in the message (C61)', async (t) => {
  for (const bytes of sizes)
    for (const [step, call] of [
      ['program', [name(bytes)]],
      ['program', ['n'.repeat(bytes)]],
      ['cwd', ['true', [], { cwd: name(bytes) }]],
    ]) {
      // Two calls of 65 MiB each take their time; a silent keeper would take 7 s.
      const error = await refusal(t, ...call)
      const what = `${step} of ${bytes} bytes`
      t.like(error, { code: 'ENAMETOOLONG', errno: -36, step, ran: false }, what)
      t.is(error.path, step === 'cwd' ? call[2].cwd : call[0], what)
      t.true(error.message.length < 500, what)
      t.regex(
        error.message,
        new RegExp(`${step === 'cwd' ? 'working directory' : 'program'}.*\\(${bytes} bytes\\)`),
        what,
      )
    }
  t.is((await run('true', { env })).exitCode, 0)
})

test('arguments and an environment of any size are E2BIG, with the name and size of the longest (C61)', async (t) => {
  for (const bytes of [3 * MIB, 64 * MIB - 1, 64 * MIB, 65 * MIB]) {
    const long = 'x'.repeat(bytes)
    const argument = await refusal(t, 'true', ['short', long])
    t.like(argument, { code: 'E2BIG', errno: -7, step: 'arguments' }, `${bytes}`)
    t.true(argument.message.includes(`args[1] with ${bytes} bytes`), argument.message.slice(0, 300))
    const variable = await refusal(t, 'true', [], { env: { ...env, LONG: long } })
    t.like(variable, { code: 'E2BIG', errno: -7, step: 'arguments' }, `${bytes}`)
    t.true(variable.message.includes(`'LONG' with ${bytes + 5} bytes`), variable.message.slice(0, 300))
  }
  // More than one string of JavaScript can hold when they are joined; and few characters with many bytes.
  const half = 'x'.repeat(2 ** 28)
  t.like(await refusal(t, 'true', [half, half, half]), { code: 'E2BIG', step: 'arguments' })
  const wide = await refusal(t, 'true', ['\u{20ac}'.repeat(30 * MIB)])
  t.like(wide, { code: 'E2BIG', step: 'arguments' })
  t.true(wide.message.includes(`args[0] with ${90 * MIB} bytes`), wide.message.slice(0, 300))
  t.is((await run('true', { env })).exitCode, 0)
})

test('a folder of PATH that is too long is passed over (C61)', async (t) => {
  const PATH = `${name(5000)}:${name(70 * KIB)}:${env.PATH}`
  t.is((await run('true', { env: { ...env, PATH } })).exitCode, 0)
  const error = await refusal(t, 'true', [], { env: { ...env, PATH: name(70 * KIB) } })
  t.like(error, { code: 'ENOENT', step: 'program' })
})

test('what is empty, and what is no UTF-8, comes through as under child_process (C61)', async (t) => {
  const args = ['-e', 'console.log(JSON.stringify([process.argv.slice(1), process.env.EMPTY]))', '--']
  const strings = ['', 'a', '', '\ud800', '\u{1f600}', '']
  const options = { env: { ...env, EMPTY: '' } }
  const { stdout } = spawnSync(process.execPath, [...args, ...strings], { ...options, encoding: 'utf8' })
  t.deepEqual(JSON.parse(stdout), [['', 'a', '', '\ufffd', '\u{1f600}', ''], ''])
  t.is((await run(process.execPath, [...args, ...strings], options)).stdout, stdout)
})

test('as many places as there can be (C61)', async (t) => {
  const count = 60
  const child = spawn('bash', ['-c', `echo last >&${count - 1}`], { env, stdio: Array(count).fill('pipe') })
  const [text] = await once(child.stdio[count - 1], 'data')
  t.is(`${text}`, 'last\n')
  t.like(await child.ended, { outcome: 'ended', reason: 'exit' })
  t.throws(() => spawn('true', [], { env, stdio: Array(count + 1).fill('pipe') }), { code: 'ERR_OUT_OF_RANGE' })
})

test('names that are too long, on the command line and without a helper (C61)', async (t) => {
  const long = name(100 * KIB)
  for (const [args, status, step] of [
    [['--', long], 126, 'program'],
    [['--cwd', long, '--', 'true'], 125, 'cwd'],
  ]) {
    const ended = spawnSync(HELPER, ['__run', ...args], { encoding: 'utf8' })
    t.is(ended.status, status, step)
    t.true(ended.stderr.endsWith(`: ${step}: File name too long (os error 36)\n`), ended.stderr.slice(-200))
  }
  const at = folder(t)
  for (const part of ['holdfast.linux-x64-gnu.node', 'package.json'])
    copyFileSync(join(dirname(HELPER), part), join(at, part))
  const body = `
    const options = { containment: 'best-effort' }
    const facts = (error) => [error.code, error.step, error.ran]
    const long = '/' + 'n'.repeat(${100 * KIB})
    report(await run(long, options).catch(facts))
    report(await run('true', { ...options, cwd: long }).catch(facts))
    report(await run('true', ['x'.repeat(${200 * KIB})], options).catch(facts))
  `
  const host = startHost(body, { env: { ...env, HOLDFAST_BINARY_PATH: at } })
  t.deepEqual(await host.next(), ['ENAMETOOLONG', 'program', false])
  t.deepEqual(await host.next(), ['ENAMETOOLONG', 'cwd', false])
  t.deepEqual(await host.next(), ['E2BIG', 'arguments', false])
})

test('a NUL in an argument, an empty program and an empty directory are refused by name; run() never throws (C61)', async (t) => {
  const long = `a\0${'b'.repeat(500)}`
  const cases = [
    [['true', ['fine', long]], 'ERR_INVALID_ARG_VALUE', ['args[1]', '502 bytes']],
    [['tr\0ue'], 'ERR_INVALID_ARG_VALUE', ['file', '5 bytes']],
    [['true', [], { cwd: '/\0' }], 'ERR_INVALID_ARG_VALUE', ['options.cwd', '2 bytes']],
    [['true', [], { env: { NAME: 'x\0' } }], 'ERR_INVALID_ARG_VALUE', ["options.env['NAME']", '2 bytes']],
    [[''], 'ERR_INVALID_ARG_VALUE', ['file', 'empty']],
    [['true', [], { cwd: '' }], 'ERR_INVALID_ARG_VALUE', ['options.cwd', 'empty']],
  ]
  for (const [call, code, texts] of cases) {
    const error = await t.throwsAsync(() => {
      const promise = run(...call)
      t.true(promise instanceof Promise)
      return promise
    })
    t.is(error.code, code)
    for (const text of texts) t.true(error.message.includes(text), error.message)
    t.is(t.throws(() => spawn(...call)).message, error.message)
  }
  t.deepEqual(running(), [])
})

test('an aborted signal starts nothing, and no listener is left on it (C62)', async (t) => {
  const trace = join(folder(t), 'ran')
  const reason = new Error('why')
  const signal = AbortSignal.abort(reason)
  const error = await t.throwsAsync(run('touch', [trace], { env, signal }), { name: 'AbortError' })
  t.like(error, { code: 'ABORT_ERR', ran: false, cause: reason })

  const child = spawn('touch', [trace], { env, signal })
  const events = []
  for (const event of ['spawn', 'error', 'exit', 'close', 'ended']) child.on(event, () => events.push(event))
  const report = await child.ended
  t.deepEqual(events, ['error', 'ended'])
  t.like(report, { reason: 'not-started', outcome: 'ended' })
  t.is(report.error.name, 'AbortError')
  t.deepEqual(getEventListeners(signal, 'abort'), [])
  t.deepEqual(running(), [])
  // Whatever had been handed to a keeper would have come before these.
  await Promise.all(Array.from({ length: 20 }, () => run('true', { env })))
  t.false(existsSync(trace))
})

test('1,000 calls on one signal leave no listener (C62)', async (t) => {
  const { signal } = new AbortController()
  let most = 0
  let left = 1000
  const worker = async () => {
    while (left-- > 0) {
      const done = run('true', { env, signal })
      most = Math.max(most, getEventListeners(signal, 'abort').length)
      await done
    }
  }
  await Promise.all(Array.from({ length: 10 }, worker))
  t.is(most, 1)
  t.deepEqual(getEventListeners(signal, 'abort'), [])
  // The failed start, too.
  await t.throwsAsync(run('/no/such/program', { env, signal }))
  t.deepEqual(getEventListeners(signal, 'abort'), [])
})

test('input that nobody reads is no error; the exit status is that of the command (C63)', async (t) => {
  const big = Buffer.alloc(1 << 20, 'x')
  for (let round = 0; round < 20; round++) {
    t.like(await run('true', { env, input: big }), { exitCode: 0, ok: true, stdout: '', notices: [] })
    t.like(await run('sh', ['-c', 'exit 3'], { env, input: 'x' }), { exitCode: 3, ok: false })
    const closes = ['-c', 'exec 0<&-; echo closed; exit 4']
    t.like(await run('sh', closes, { env, input: big }), { exitCode: 4, stdout: 'closed\n' })
  }
  // A stream that never ends holds nothing up, and is left to its owner.
  const endless = new Readable({
    read() {
      this.push(big)
    },
  })
  t.like(await run('true', { env, input: endless }), { exitCode: 0, ok: true })
  t.is(endless.listenerCount('data'), 0)
  endless.destroy()
  // The whole of it arrives where it is read.
  t.is((await run('wc', ['-c'], { env, input: big })).stdout.trim(), `${1 << 20}`)
  t.is((await run('wc', ['-c'], { env, input: Readable.from([big, big]) })).stdout.trim(), `${2 << 20}`)
})

test('input that fails ends the command and rejects with what there is of the result (C63)', async (t) => {
  const input = new Readable({ read() {} })
  const done = run('cat', { env, input })
  input.push('some')
  await until(() => running().length === 1, 'the start')
  input.destroy(new Error('broken'))
  const error = await t.throwsAsync(done, { instanceOf: HoldfastError, code: 'ERR_HOLDFAST_CONSUMER' })
  t.is(error.cause.message, 'broken')
  t.is(error.result.report.outcome, 'ended')
  t.deepEqual(running(), [])
})

const invalid = [
  ['ERR_INVALID_ARG_TYPE', undefined],
  ['ERR_INVALID_ARG_TYPE', 7],
  ['ERR_INVALID_ARG_TYPE', 'true', 'args'],
  ['ERR_INVALID_ARG_TYPE', 'true', 7],
  ['ERR_INVALID_ARG_TYPE', 'true', [], null],
  ['ERR_INVALID_ARG_TYPE', 'true', [], 'options'],
  // One of the two would be ignored.
  ['ERR_INVALID_ARG_TYPE', 'true', {}, {}],
  ['ERR_INVALID_ARG_TYPE', 'true', new Set(['x'])],
]
const badOptions = {
  cwd: [['ERR_INVALID_ARG_TYPE', 7, {}]],
  env: [
    ['ERR_INVALID_ARG_TYPE', 'A=1', 7],
    ['ERR_INVALID_ARG_VALUE', { '': 'x' }, { 'a=b': 'x' }, { 'a\0b': 'x' }],
  ],
  argv0: [['ERR_INVALID_ARG_TYPE', 7]],
  detached: [['ERR_INVALID_ARG_TYPE', 1, 0, 'true', {}]],
  windowsHide: [['ERR_INVALID_ARG_TYPE', 1, 'true']],
  windowsVerbatimArguments: [['ERR_INVALID_ARG_TYPE', 1, 'true']],
  serialization: [['ERR_INVALID_ARG_VALUE', 'xml', null, 7]],
  shell: [['ERR_INVALID_ARG_TYPE', 7, {}]],
  stdio: [
    [
      'ERR_INVALID_ARG_VALUE',
      'pip',
      7,
      {},
      ['pipe', 'nonsense'],
      [-1],
      [1.5],
      [Number.NaN],
      [{}],
      [2 ** 31],
      ['stdout'],
    ],
    ['ERR_INVALID_ARG_VALUE', ['pipe', 'stdout'], 'stdout'],
    ['ERR_HOLDFAST_NOT_SUPPORTED', ['pipe', 'pipe', 'pipe', 'ipc']],
  ],
  timeout: [
    ['ERR_INVALID_ARG_TYPE', '5', {}, true],
    ['ERR_OUT_OF_RANGE', -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31],
  ],
  grace: [
    ['ERR_INVALID_ARG_TYPE', '5'],
    ['ERR_OUT_OF_RANGE', -1, 0.5, Number.NaN, 2 ** 31],
  ],
  backgroundGrace: [
    ['ERR_INVALID_ARG_TYPE', '5', {}, true],
    ['ERR_OUT_OF_RANGE', -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31],
  ],
  backgroundSettle: [
    ['ERR_INVALID_ARG_TYPE', '5', {}, true],
    ['ERR_OUT_OF_RANGE', -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31],
  ],
  killSignal: [
    ['ERR_UNKNOWN_SIGNAL', 'SIGNONE', '', 0, -1, 1.5, 200, Number.NaN],
    ['ERR_INVALID_ARG_TYPE', {}, true],
  ],
  signal: [['ERR_INVALID_ARG_TYPE', null, 7, {}, new AbortController()]],
  background: [
    ['ERR_INVALID_ARG_VALUE', 'stay', true, null],
    ['ERR_HOLDFAST_NOT_SUPPORTED', 'release'],
  ],
  containment: [['ERR_INVALID_ARG_VALUE', 'maybe', false]],
  uid: [
    ['ERR_INVALID_ARG_TYPE', '0', {}],
    ['ERR_OUT_OF_RANGE', -1, 1.5, 2 ** 32, Number.NaN],
  ],
  idleTimeout: [
    ['ERR_INVALID_ARG_TYPE', '100'],
    ['ERR_OUT_OF_RANGE', -1, 1.5, 2 ** 31, 2 ** 40, Number.NaN, Number.POSITIVE_INFINITY],
  ],
  gid: [
    ['ERR_INVALID_ARG_TYPE', '0'],
    ['ERR_OUT_OF_RANGE', -1, 2 ** 32],
  ],
  // Of a later version: refused by name, never ignored.
  pty: [['ERR_HOLDFAST_NOT_SUPPORTED', { cols: 80, rows: 24 }]],
  limits: [['ERR_HOLDFAST_NOT_SUPPORTED', { memory: 1 }]],
  spare: [['ERR_HOLDFAST_NOT_SUPPORTED', ['tmux']]],
}
const badRunOptions = {
  input: [['ERR_INVALID_ARG_TYPE', 7, {}, null]],
  encoding: [['ERR_INVALID_ARG_VALUE', 'latin-17', null, 7]],
  maxOutput: [
    ['ERR_INVALID_ARG_TYPE', '5', null],
    ['ERR_OUT_OF_RANGE', -1, Number.NaN],
  ],
  onOutput: [['ERR_INVALID_ARG_TYPE', 7, {}]],
}

test('every wrong argument is refused with its name: run() rejects, spawn() throws', async (t) => {
  for (const [code, ...call] of invalid) {
    t.is((await t.throwsAsync(() => run(...call))).code, code)
    t.is(t.throws(() => spawn(...call)).code, code)
  }
  const table = (options) =>
    Object.entries(options).flatMap(([name, rows]) =>
      rows.flatMap(([code, ...values]) => values.map((value) => ({ name, code, value }))),
    )
  for (const { name, code, value } of [...table(badOptions), ...table(badRunOptions)]) {
    const what = `${name}: ${typeof value} ${JSON.stringify(value)}`
    const error = await t.throwsAsync(() => run('true', [], { [name]: value }), undefined, what)
    t.is(error.code, code, what)
    if (code !== 'ERR_UNKNOWN_SIGNAL') t.true(error.message.includes(name) || name === 'stdio', error.message)
    if (name in badRunOptions) continue
    t.is(t.throws(() => spawn('true', [], { [name]: value }), undefined, what).code, code, what)
  }
  t.deepEqual(running(), [])
})

test('what is of a later version is refused by name', async (t) => {
  const child = spawn('sleep', ['50'], { env })
  const code = 'ERR_HOLDFAST_NOT_SUPPORTED'
  await t.throwsAsync(child.release(), { code, message: /release\(\)/ })
  t.throws(() => child.resize({ cols: 80, rows: 24 }), { code, message: /resize\(\)/ })
  t.throws(() => child.send('x'), { code })
  t.throws(() => child.disconnect(), { code })
  // It went on, and can be ended.
  t.is(child.exitCode, null)
  t.like(await child.end(), { outcome: 'ended', reason: 'end' })
})

test('wrong options of end() throw and end nothing', async (t) => {
  const child = spawn('sleep', ['50'], { env })
  t.throws(() => child.end({ grace: -1 }), { code: 'ERR_OUT_OF_RANGE' })
  t.throws(() => child.end({ grace: '5' }), { code: 'ERR_INVALID_ARG_TYPE' })
  t.throws(() => child.end({ signal: 'SIGNONE' }), { code: 'ERR_UNKNOWN_SIGNAL' })
  t.throws(() => child.end({ signal: -1 }), { code: 'ERR_UNKNOWN_SIGNAL' })
  t.true(child.kill(0))
  t.is(child.exitCode, null)
  await child.end({ signal: 'SIGINT', grace: 5000 })
  t.is(child.signalCode, 'SIGINT')
})
