// The SDK's side: startSession(). The Engine is fixtures/engine.py, which has the protocol by heart and no holdfast.
import { createHash } from 'node:crypto'
import { EventEmitter, getEventListeners, once } from 'node:events'
import { readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { endAll, HoldfastError, running } from '../dist/index.js'
import { containRequestedSession, startSession } from '../dist/session.js'
import { within } from './support/command-line.mjs'
import { childrenOf, comm, holdLoop, isAlive, marked, newMark, noneMarked, stat, until } from './support/facts.mjs'
import { fixture, PYTHON } from './support/fixtures.mjs'
import { SESSION } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { ACK, belowStarter, pacemaker, VARIABLE } from './support/session.mjs'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env, mark, host } = suite(test)
const ENGINE = fixture('engine.py')
const ENGINE_ENTRY = join(dirname(SESSION), 'engine.js')

/** Whatever becomes of it, it is ended with its test. */
async function start(t, program, args, options) {
  const session = await startSession(program, args, { env, ...options })
  t.teardown(() => session.end({ grace: 0 }))
  return session
}
const shell = (t, script, options) => start(t, 'sh', ['-c', script], options)
/** The Engine, asked or by a starter, and what it says of itself. */
async function engine(t, first, { args = [], ...options } = {}) {
  const session = await start(t, PYTHON, [ENGINE, first, ...args], options)
  return session
}
const asked = { via: 'request' }
const optional = { via: 'request', required: false }

async function textOf(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks).toString('latin1')
}
const about = async (lines) => JSON.parse(await lines.next())

/** Lists everything that is left, whoever carries the mark. */
const nothingIsLeft = (t, one = mark) => t.deepEqual(marked(one).filter(isAlive).map(comm).filter(isNoHelper), [])
const isNoHelper = (name) => name !== 'holdfast-helper'

// ---- with a starter
test('by a starter: contained, the acknowledgement is taken out, and the end is proven', async (t) => {
  const session = await engine(t, 'none')
  t.true(session.contained)
  const lines = linesOf(session.stdout)
  const { pid, ppid, grandchild, asked } = await about(lines)
  t.is(asked, null)
  const below = await belowStarter(session.pid)
  t.deepEqual(below, { keeper: ppid, engine: pid })
  session.stdin.write('echo hello\n')
  t.is(await lines.next(), 'hello')
  t.true(isAlive(grandchild))
  session.stdin.write('exit 7\n')
  t.deepEqual(await session.exited, { exitCode: 7, signal: null })
  const { outcome, mechanism, by, reason } = await session.ended
  t.deepEqual(
    { outcome, mechanism, by, reason },
    { outcome: 'ended', mechanism: 'subreaper', by: 'keeper', reason: 'exit' },
  )
  t.false(isAlive(grandchild))
  t.is(await lines.next(), undefined)
  nothingIsLeft(t)
})

test('by a starter: arguments, directory and environment arrive, but for the variable that asks', async (t) => {
  const words = ['', 'a b', '--', '--ack', 'ü€\n']
  const at = folder(t)
  const script = `printf '%s|' "$@" "\${${VARIABLE}-unset}" "\${ASKS-unset}" "$VALUE"; pwd -P`
  for (const cwd of [at, new URL(`file://${at}`)]) {
    const session = await start(t, 'sh', ['-c', script, 'sh', ...words], {
      cwd,
      env: { ...env, [VARIABLE]: '1', ASKS: '1', VALUE: 'v' },
      protocol: { env: 'ASKS', ack: 'yes' },
    })
    t.true(session.contained)
    const text = [...words, 'unset', 'unset', 'v'].map((word) => `${word}|`).join('')
    t.is(Buffer.from(await textOf(session.stdout), 'latin1').toString(), `${text}${at}\n`)
  }
})

test('by a starter: a program that is missing or not executable is told by the session (C60)', async (t) => {
  for (const [program, code] of [
    ['no-such-program-x', 127],
    [ENGINE, 126],
  ]) {
    const session = await start(t, program, [])
    t.true(session.contained)
    const said = await textOf(session.stderr)
    t.true(said.includes(program), said)
    t.deepEqual(await session.exited, { exitCode: code, signal: null })
    t.is((await session.ended).outcome, 'ended')
  }
})

test("the Engine's signal is passed on", async (t) => {
  for (const signal of ['SIGSEGV', 'SIGKILL', 'SIGUSR1']) {
    const session = await shell(t, `kill -${signal.slice(3)} $$`)
    t.deepEqual(await session.exited, { exitCode: null, signal })
  }
})

// ---- by request, byte for byte
test('by request: an Engine that acknowledges is contained', async (t) => {
  const session = await engine(t, 'ack', asked)
  t.true(session.contained)
  const lines = linesOf(session.stdout)
  const { pid, asked: value } = await about(lines)
  t.deepEqual([pid, value], [session.pid, '1'])
  session.stdin.write('exit 3\n')
  t.deepEqual(await session.exited, { exitCode: 3, signal: null })
  t.is((await session.ended).outcome, 'ended')
  nothingIsLeft(t)
})

test('by request: the acknowledgement byte by byte', async (t) => {
  const pace = await pacemaker(t)
  const starting = engine(t, 'pieces', { ...asked, args: [`${pace.port}`] })
  for (let sent = 0; sent < ACK.length; sent++) {
    t.is(await Promise.race([starting, setImmediate('waits')]), 'waits')
    await pace.next()
  }
  const session = await starting
  t.true(session.contained)
  t.is((await about(linesOf(session.stdout))).pid, session.pid)
})

test('by request: a second acknowledgement is output', async (t) => {
  const session = await engine(t, 'twice', asked)
  t.true(session.contained)
  const lines = linesOf(session.stdout)
  t.is(`${await lines.next()}\n`, ACK)
  t.is((await about(lines)).pid, session.pid)
})

for (const [first, begins] of [
  ['none', ''],
  ['almost', `${ACK.slice(0, -2)} }\n`],
  ['longer', `${ACK.slice(0, -1)}\r\n`],
  ['long', `${'x'.repeat(1 << 20)}\n`],
  ['binary', '\xff\0{\xfe\n'],
]) {
  test(`by request, without an acknowledgement: every byte is output (${first})`, async (t) => {
    const session = await engine(t, first, optional)
    t.false(session.contained)
    session.stdin.write('exit 0\n')
    const text = await textOf(session.stdout)
    t.true(text.startsWith(begins))
    const [line, ...rest] = text.slice(begins.length).split('\n')
    t.deepEqual([JSON.parse(line).pid, rest], [session.pid, ['']])
    t.deepEqual(await session.exited, { exitCode: 0, signal: null })
    t.is((await session.ended).outcome, 'ended')
    nothingIsLeft(t)
  })
}

test('by request: a line that begins as the acknowledgement and ends otherwise, in two pieces', async (t) => {
  const pace = await pacemaker(t)
  const starting = engine(t, 'in two', { ...optional, args: [`${pace.port}`] })
  await pace.next()
  t.is(await Promise.race([starting, setImmediate('waits')]), 'waits')
  await pace.next()
  const session = await starting
  t.false(session.contained)
  t.is(await linesOf(session.stdout).next(), `${ACK.slice(0, 10)}no`)
})

test('by request: the end of stdout, at once and within the line', async (t) => {
  const closed = await engine(t, 'closed', optional)
  t.false(closed.contained)
  t.is(await textOf(closed.stdout), '')
  t.is((await about(linesOf(closed.stderr))).pid, closed.pid)
  const begun = await engine(t, 'begun', optional)
  t.false(begun.contained)
  t.is(await textOf(begun.stdout), ACK.slice(0, 10))
  t.deepEqual(await begun.exited, { exitCode: 5, signal: null })
})

test('by request: silence for ackTimeout; an acknowledgement that comes later is output', async (t) => {
  const pace = await pacemaker(t)
  const session = await engine(t, 'late', { ...optional, ackTimeout: 150, args: [`${pace.port}`] })
  t.false(session.contained)
  await pace.next()
  t.is(`${await linesOf(session.stdout).next()}\n`, ACK)
})

test('by request: a line that stalls is waited for as long again, and is output', async (t) => {
  const pace = await pacemaker(t)
  const starting = engine(t, 'stalled', { ...optional, ackTimeout: 1500, args: [`${pace.port}`] })
  await pace.next()
  const begin = performance.now()
  const session = await starting
  // The first byte was read after this measurement's begin, or just before.
  t.true(performance.now() - begin > 1400)
  t.false(session.contained)
  await pace.go()
  const line = await linesOf(session.stdout).next()
  t.is(line.slice(0, 10), ACK.slice(0, 10))
  t.is(JSON.parse(line.slice(10)).pid, session.pid)
})

test('an acknowledgement that came while the loop was blocked for longer than ackTimeout counts', async (t) => {
  const ackTimeout = 3000
  const pace = await pacemaker(t)
  const starting = engine(t, 'late', { ...asked, ackTimeout, args: [`${pace.port}`] })
  await pace.connected()
  const [{ pid }] = running()
  await pace.go()
  const end = Date.now() + ackTimeout + 100
  // Its child comes after its acknowledgement.
  while (Date.now() < end || childrenOf(pid).length === 0) holdLoop(2)
  t.true((await starting).contained)
})

test('what an Engine wrote before it left is not lost, however quick it was', async (t) => {
  for (let round = 0; round < 20; round++) {
    const session = await engine(t, 'left', optional)
    // What comes between two awaits of a user.
    for (let turn = 0; turn < 5; turn++) await undefined
    t.deepEqual(await Promise.all([textOf(session.stdout), textOf(session.stderr)]), ['out\n', 'err\n'])
  }
  for (const listen of [
    (stream, chunks) => stream.on('data', (chunk) => chunks.push(chunk)),
    (stream, chunks) => stream.on('readable', () => chunks.push(stream.read() ?? Buffer.alloc(0))),
    (stream, chunks) =>
      stream.pipe(
        new (class extends EventEmitter {
          writable = true
          write = (chunk) => chunks.push(chunk) > 0
          end() {}
        })(),
      ),
  ]) {
    const session = await start(t, 'echo', ['quick'])
    const chunks = []
    listen(session.stdout, chunks)
    await within(once(session.stdout, 'end'), 'the end of stdout')
    t.is(Buffer.concat(chunks).toString(), 'quick\n')
  }
})

/** What its user does first with a stream. Resolves to what came, or to how much where it is not looked at. */
const firstUses = {
  data: (stream) => collected(stream, (add) => stream.on('data', add)),
  readable: (stream) =>
    collected(stream, (add) =>
      stream.on('readable', () => {
        for (let chunk = stream.read(); chunk !== null; chunk = stream.read()) add(chunk)
      }),
    ),
  'resume, then data': (stream) =>
    collected(stream, (add) => {
      stream.resume()
      stream.on('data', add)
    }),
  pipe: (stream) =>
    collected(stream, (add) => {
      stream.pipe(new Writable({ write: (chunk, _, done) => done(null, add(chunk)) }))
    }),
  iterate: textOf,
  readline: async (stream) => {
    const lines = []
    for await (const line of createInterface({ input: stream })) lines.push(`${line}\n`)
    return lines.join('')
  },
  'pause, then data, then resume': (stream) =>
    collected(stream, (add) => {
      stream.pause().on('data', add)
      setTimeout(() => stream.resume(), 1)
    }),
}
async function collected(stream, listen) {
  const chunks = []
  listen((chunk) => chunks.push(chunk))
  await once(stream, 'end')
  return Buffer.concat(chunks).toString()
}
const WAYS = {
  'by a starter': [(script) => ['sh', ['-c', script]], {}],
  'by request, without an acknowledgement': [(script) => ['sh', ['-c', script]], { ...optional, ackTimeout: 50 }],
  'by request, with one': [(script) => ['sh', ['-c', `printf '%s' '${ACK}'; ${script}`]], asked],
}
/** More than a pipe holds, and a program that leaves at once. */
const BOTH_STREAMS = { 'a lot': 60_000, 'a line': 1 }
for (const [way, [program, options]] of Object.entries(WAYS)) {
  for (const [size, count] of Object.entries(BOTH_STREAMS)) {
    test(`streams are handed over as new, whatever is done first: ${size}, ${way}`, async (t) => {
      const lines = Array.from({ length: count }, (_, index) => `${index + 1}\n`).join('')
      for (const [use, read] of Object.entries(firstUses)) {
        const session = await start(t, ...program(`seq ${count} >&2 & seq ${count}; wait`), options)
        for (const stream of [session.stdout, session.stderr]) {
          t.is(stream.readableFlowing, null, use)
          t.deepEqual(
            stream.eventNames().flatMap((name) => stream.listeners(name)),
            [],
            use,
          )
        }
        const texts = await within(Promise.all([read(session.stdout), read(session.stderr)]), use)
        for (const text of texts) t.true(text === lines, `${use}: ${text.length} of ${lines.length}`)
        t.deepEqual(await session.exited, { exitCode: 0, signal: null })
      }
    })
  }

  test(`resume() right after the start is not lost: an Engine that fills both pipes leaves, ${way}`, async (t) => {
    const session = await start(t, ...program('head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero'), options)
    session.stdout.resume()
    session.stderr.resume()
    t.deepEqual(await within(session.exited, 'the exit'), { exitCode: 0, signal: null })
  })
}

for (const [title, program, options] of [
  ['by a starter', (script) => ['sh', ['-c', script]], {}],
  ['by request, without an acknowledgement', (script) => ['sh', ['-c', script]], { ...optional, ackTimeout: 50 }],
  ['by request, with one', (script) => ['sh', ['-c', `printf '%s' '${ACK}'; ${script}`]], asked],
]) {
  test(`64 MiB through stdin and stdout, byte for byte: ${title}`, async (t) => {
    const session = await start(t, ...program('exec cat'), options)
    const sent = createHash('sha256')
    const received = createHash('sha256')
    const blocks = Array.from({ length: 64 }, (_, index) => Buffer.alloc(1 << 20, `${index} ${ACK}`))
    const writing = (async () => {
      for (const block of blocks) {
        sent.update(block)
        if (!session.stdin.write(block)) await once(session.stdin, 'drain')
      }
      session.stdin.end()
    })()
    let length = 0
    for await (const chunk of session.stdout) {
      received.update(chunk)
      length += chunk.length
    }
    await writing
    t.is(length, 64 << 20)
    t.is(received.digest('hex'), sent.digest('hex'))
    t.deepEqual(await session.exited, { exitCode: 0, signal: null })
  })
}

test('a stdout that nobody reads holds up the Engine, and takes no memory', async (t) => {
  const session = await shell(t, 'echo $$ >&2; exec head -c 67108864 /dev/zero')
  const pid = Number(await linesOf(session.stderr).next())
  await until(() => comm(pid) === 'head' && isInWrite(pid), 'that the Engine is held up')
  t.true(session.stdout.readableLength <= 1 << 18, `${session.stdout.readableLength}`)
  let length = 0
  for await (const chunk of session.stdout) length += chunk.length
  t.is(length, 1 << 26)
})

// ---- refused
test('by request: an Engine that does not acknowledge is ended, and the start is refused', async (t) => {
  for (const [first, options] of [
    ['none', {}],
    ['almost', {}],
    ['closed', {}],
    ['late', { ackTimeout: 100, args: [`${(await pacemaker(t)).port}`] }],
    ['stalled', { ackTimeout: 100, args: [`${(await pacemaker(t)).port}`] }],
  ]) {
    const one = newMark()
    const error = await t.throwsAsync(engine(t, first, { ...asked, ...options, env: { ...env, MARK: one } }), {
      code: 'ERR_HOLDFAST_NOT_CONTAINED',
    })
    t.true(HoldfastError.is(error))
    t.is(error.ran, true)
    t.true(error.message.includes('required: false') && error.message.includes("via: 'starter'"), error.message)
    nothingIsLeft(t, one)
  }
  t.deepEqual(running(), [])
})

test('by request: what comes on stderr before the acknowledgement holds nobody up, and is not lost', async (t) => {
  const script = `head -c 300000 /dev/zero >&2; echo '${ACK.trim()}'; echo out; echo last >&2`
  const session = await start(t, 'sh', ['-c', script], { ...asked, ackTimeout: 10_000 })
  t.true(session.contained)
  const [out, err] = await Promise.all([textOf(session.stdout), textOf(session.stderr)])
  t.deepEqual([out, err.length, err.slice(-6)], ['out\n', 300_005, '\0last\n'])
})

test('the refusal says what the Engine had to say', async (t) => {
  const error = await t.throwsAsync(start(t, 'sh', ['-c', 'echo no such module >&2; exit 1'], asked))
  t.true(error.message.endsWith('It wrote: no such module'), error.message)
  const long = await t.throwsAsync(start(t, 'sh', ['-c', 'printf %5000s >&2; echo the end >&2'], asked))
  t.true(long.message.length < 1000 && long.message.endsWith('the end'))
})

test('a start that fails rejects with what spawn() says (C60)', async (t) => {
  const at = join(folder(t), 'none')
  for (const options of [{}, asked]) {
    const error = await t.throwsAsync(start(t, 'true', [], { ...options, cwd: at }), { code: 'ENOENT' })
    t.deepEqual([error.step, error.path, error.ran], ['cwd', at, false])
    // Of the program, and not of what starts it.
    t.regex(error.message, /^spawn true ENOENT/)
    const long = await t.throwsAsync(start(t, 'true', ['x'.repeat(200 << 10)], options), { code: 'E2BIG' })
    t.regex(long.message, /^spawn true E2BIG.*args\[0\] with 204800 bytes/)
  }
  const error = await t.throwsAsync(start(t, 'no-such-program-x', [], asked), { code: 'ENOENT' })
  t.deepEqual([error.step, error.ran], ['program', false])
  t.deepEqual(running(), [])
})

test('wrong arguments reject, and nothing is started (C61)', async (t) => {
  const cases = [
    [[], 'ERR_INVALID_ARG_TYPE'],
    [[''], 'ERR_INVALID_ARG_VALUE'],
    [[5], 'ERR_INVALID_ARG_TYPE'],
    [['true', 'x'], 'ERR_INVALID_ARG_TYPE'],
    [['true', ['a\0b']], 'ERR_INVALID_ARG_VALUE'],
    [['true', [], null], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { via: 'magic' }], 'ERR_INVALID_ARG_VALUE'],
    [['true', [], { env: 'x' }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { cwd: 5 }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { grace: -1 }], 'ERR_OUT_OF_RANGE'],
    [['true', [], { killSignal: 'SIGNONE' }], 'ERR_UNKNOWN_SIGNAL'],
    [['true', [], { ackTimeout: '5' }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { ackTimeout: 1.5 }], 'ERR_OUT_OF_RANGE'],
    [['true', [], { required: 'yes' }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { signal: {} }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { protocol: 'x' }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { protocol: { env: 'X' } }], 'ERR_INVALID_ARG_TYPE'],
    [['true', [], { protocol: { env: 'A=B', ack: 'x' } }], 'ERR_INVALID_ARG_VALUE'],
    [['true', [], { protocol: { env: '', ack: 'x' } }], 'ERR_INVALID_ARG_VALUE'],
    [['true', [], { protocol: { env: 'X', ack: 'x\ny' } }], 'ERR_INVALID_ARG_VALUE'],
  ]
  for (const [args, code] of cases) await t.throwsAsync(startSession(...args), { code }, JSON.stringify(args))
  t.deepEqual(running(), [])
})

test('names of its own: protocol', async (t) => {
  const protocol = { env: 'ASKS', ack: 'held' }
  const script = `[ "$ASKS" = 1 ] && echo held; echo "\${${VARIABLE}-unset}"`
  const session = await shell(t, script, { via: 'request', protocol, env: { ...env, ASKS: '0' } })
  t.true(session.contained)
  t.is(await textOf(session.stdout), 'unset\n')
})

// ---- the end
/** Counts SIGTERM in a file, and stays; so does its child, into the same file. */
const COUNTS = fixture('session/counts.py')
async function counting(t, options, ...args) {
  const file = join(folder(t), 'counts')
  const session = await start(t, PYTHON, [COUNTS, file, ...args], options)
  const lines = linesOf(session.stdout)
  const pids = [await lines.next(), await lines.next()].map(Number)
  const counts = () => readFileSync(file, 'utf8').trim().split('\n').sort()
  return { session, pids, counts, once: pids.map((pid) => `TERM ${pid}`).sort() }
}

for (const [title, options] of [
  ['by a starter', {}],
  ['by request, uncontained', optional],
]) {
  test(`end(): what is never idle, below an Engine that handles the signal, gets it as well (${title}) (C93)`, async (t) => {
    const { session, counts, once } = await counting(t, { ...options, grace: 2000 }, 'busy')
    t.like(await session.end(), { outcome: 'ended' })
    t.deepEqual(counts(), once)
  })

  test(`end(): one SIGTERM to each, SIGKILL after grace, nothing twice (${title})`, async (t) => {
    const { session, pids, counts, once } = await counting(t, { ...options, grace: 400 })
    const begin = performance.now()
    const first = session.end()
    const second = session.end()
    await until(() => counts().length === 2, 'both')
    const third = session.end({ signal: 'SIGTERM', grace: 60_000 })
    const reports = await Promise.all([first, second, third, session.ended])
    t.true(performance.now() - begin >= 400)
    t.deepEqual(counts(), once)
    t.deepEqual([reports[0].outcome, reports[0].reason], ['ended', 'end'])
    for (const report of reports) t.is(report, reports[0])
    t.deepEqual(await session.exited, { exitCode: null, signal: 'SIGKILL' })
    t.deepEqual(pids.filter(isAlive), [])
    t.is(await session.end({ grace: 0 }), reports[0])
    t.deepEqual(counts(), once)
  })

  test(`a later end() shortens the first (${title})`, async (t) => {
    const { session, counts, once } = await counting(t, { ...options, grace: 60_000 })
    void session.end()
    await until(() => counts().length === 2, 'both')
    t.is((await within(session.end({ grace: 0 }), 'the end')).reason, 'end')
    t.deepEqual(counts(), once)
  })
}

test('end(): an Engine that leaves in time has its own status, and the reason is the call', async (t) => {
  for (const [signal, name] of [
    [undefined, 'TERM'],
    ['SIGINT', 'INT'],
    ['SIGHUP', 'HUP'],
    ['SIGQUIT', 'QUIT'],
    [15, 'TERM'],
  ]) {
    const session = await shell(t, `trap 'exit 9' ${name}; echo ready; while :; do read x; done`)
    t.is(await linesOf(session.stdout).next(), 'ready')
    const report = await session.end({ ...(signal && { signal }) })
    t.deepEqual([report.reason, report.outcome], ['end', 'ended'], name)
    t.deepEqual(await session.exited, { exitCode: 9, signal: null }, name)
  }
})

test('a signal that does not begin the end of a starter: once to each, by end() and by its pid (C93)', async (t) => {
  const { session, pids, counts } = await counting(t, { grace: 400 })
  process.kill(session.pid, 'SIGUSR1')
  await until(() => counts().length === 1 && counts()[0] !== '', 'the one by its pid')
  t.true(pids.some((pid) => counts()[0] === `USR1 ${pid}`))
  const [passedOn] = counts()
  const report = await session.end({ signal: 'SIGUSR1' })
  t.deepEqual([report.outcome, report.reason], ['ended', 'end'])
  t.deepEqual(counts(), [passedOn, ...pids.map((pid) => `USR1 ${pid}`)].sort())
})

test('end(): a signal that does not begin the end of a starter goes to all of them', async (t) => {
  const session = await shell(t, `trap 'exit 9' USR2; echo ready; while :; do read x; done`, { killSignal: 'SIGUSR2' })
  t.is(await linesOf(session.stdout).next(), 'ready')
  t.is((await session.end()).reason, 'end')
  t.deepEqual(await session.exited, { exitCode: 9, signal: null })
})

test('end(): SIGKILL and grace 0 are at once; wrong options throw', async (t) => {
  for (const options of [{ signal: 'SIGKILL' }, { grace: 0 }]) {
    const { session, counts } = await counting(t, { grace: 60_000 })
    t.throws(() => session.end({ grace: -1 }), { code: 'ERR_OUT_OF_RANGE' })
    t.throws(() => session.end({ signal: 'SIGNONE' }), { code: 'ERR_UNKNOWN_SIGNAL' })
    await within(session.end(options), 'the end')
    t.deepEqual(counts(), [''])
  }
})

test('end() right after the start, twice at once; end() after the end (C04)', async (t) => {
  const session = await start(t, 'sleep', ['60'])
  const [one, two] = await Promise.all([session.end(), session.end()])
  t.is(one, two)
  t.is(await session.end(), one)
  t.deepEqual(await session.exited, { exitCode: null, signal: 'SIGTERM' })
})

test('await using: it is ended at the end of the block', async (t) => {
  const session = await start(t, 'sleep', ['60'])
  await session[Symbol.asyncDispose]()
  t.is((await session.ended).reason, 'end')
})

test('an Engine that has left by itself was not ended by end()', async (t) => {
  const session = await start(t, 'true')
  await session.ended
  t.is((await session.end()).reason, 'exit')
})

test('it is listed by running(), and endAll() has the starter pass on its signal, once', async (t) => {
  const { counts, once } = await counting(t, { grace: 300 })
  t.is(running().length, 1)
  const [report] = await endAll()
  t.deepEqual([report.reason, report.outcome], ['end', 'ended'])
  t.deepEqual(counts(), once)
  t.deepEqual(running(), [])
})

// ---- an AbortSignal
const listeners = (signal) => getEventListeners(signal, 'abort').length

test('aborted already: nothing is started, no listener is left (C62)', async (t) => {
  const signal = AbortSignal.abort('why')
  for (const options of [{}, asked]) {
    const trace = join(folder(t), 'ran')
    const error = await t.throwsAsync(start(t, 'touch', [trace], { ...options, signal }), { name: 'AbortError' })
    t.deepEqual([error.code, error.cause, error.ran], ['ABORT_ERR', 'why', false])
    t.throws(() => readFileSync(trace), { code: 'ENOENT' })
  }
  t.is(listeners(signal), 0)
})

test('aborted while the acknowledgement is awaited: all of it is ended, then it rejects', async (t) => {
  const one = newMark()
  const controller = new AbortController()
  const { signal } = controller
  const options = { ...asked, signal, grace: 100, ackTimeout: 60_000, env: { ...env, MARK: one } }
  const starting = engine(t, 'late', { ...options, args: [`${(await pacemaker(t)).port}`] })
  await until(() => marked(one).some((pid) => comm(pid) === basename(PYTHON)), 'the Engine')
  t.is(listeners(signal), 1)
  controller.abort('why')
  const error = await t.throwsAsync(starting, { name: 'AbortError' })
  t.deepEqual([error.code, error.cause, error.ran], ['ABORT_ERR', 'why', true])
  nothingIsLeft(t, one)
  t.is(listeners(signal), 0)
})

test('aborted right after the call', async (t) => {
  for (const options of [{}, asked]) {
    const controller = new AbortController()
    const starting = start(t, 'sleep', ['60'], { ...options, signal: controller.signal })
    controller.abort()
    await t.throwsAsync(starting, { name: 'AbortError' })
    t.is(listeners(controller.signal), 0)
  }
  t.deepEqual(running(), [])
})

test('aborted later: the ladder; no listener is left', async (t) => {
  for (const options of [{}, optional]) {
    const controller = new AbortController()
    const { session, counts, once } = await counting(t, { ...options, grace: 300, signal: controller.signal })
    t.is(listeners(controller.signal), 1)
    controller.abort()
    const report = await session.ended
    t.deepEqual([report.reason, report.outcome], ['abort', 'ended'])
    t.deepEqual(counts(), once)
    t.is(listeners(controller.signal), 0)
  }
  const controller = new AbortController()
  const session = await shell(t, 'trap "exit 9" TERM; echo ready; while :; do read x; done', {
    signal: controller.signal,
  })
  t.is(await linesOf(session.stdout).next(), 'ready')
  controller.abort()
  t.is((await session.ended).reason, 'abort')
  t.deepEqual(await session.exited, { exitCode: 9, signal: null })
})

test('a session that ends by itself leaves no listener', async (t) => {
  const { signal } = new AbortController()
  const session = await start(t, 'true', [], { signal })
  await session.ended
  t.is(listeners(signal), 0)
})

// ---- the host
test('stdin of an Engine that has left: EPIPE is an error of the stream, as on a ChildProcess', async (t) => {
  const session = await shell(t, 'exec <&-; echo ready; sleep 60')
  t.is(await linesOf(session.stdout).next(), 'ready')
  session.stdin.write('x'.repeat(1 << 20))
  const [error] = await within(once(session.stdin, 'error'), 'the error')
  t.is(error.code, 'EPIPE')
  await session.end({ grace: 0 })
})

const before = `const { startSession } = require(${JSON.stringify(SESSION)})\n`

test('it keeps the loop alive while it runs, and no longer', async (t) => {
  const started = host(t, `await startSession('sh', ['-c', 'sleep 0.2'])\nprocess.on('exit', () => report('left'))`, {
    before,
  })
  t.is(await started.next(), 'left')
  t.deepEqual(await started.exited, { code: 0, signal: null })
})

/** An Engine in JavaScript that answers the request, and has the counting one below it. */
const ANSWERS = `require(${JSON.stringify(ENGINE_ENTRY)})
require('node:child_process').spawn(${JSON.stringify(PYTHON)}, process.argv.slice(1), { stdio: 'inherit' })`

for (const [title, options, word, answers] of [
  ['by a starter', {}, 'TERM', false],
  ['by a starter, with another killSignal that it passes on', { killSignal: 'SIGHUP' }, 'HUP', false],
  ['by a starter, with another killSignal that it does not', { killSignal: 'SIGUSR1' }, 'USR1', false],
  ['by request, without an acknowledgement', optional, 'TERM', false],
  ['by request, acknowledged', { via: 'request' }, 'TERM', true],
]) {
  test(`SIGKILL of the host: one signal, and nothing is left (${title}) (C02)`, async (t) => {
    const one = newMark()
    const file = join(folder(t), 'counts')
    const given = { ...options, grace: 1500 }
    const counting = [COUNTS, file]
    const command = answers ? [process.execPath, ['-e', ANSWERS, '--', ...counting]] : [PYTHON, counting]
    const started = host(
      t,
      `const session = await startSession(...${JSON.stringify(command)}, ${JSON.stringify(given)})
      report(session.contained)
      session.stdout.on('data', (chunk) => report(String(chunk)))`,
      { before, mark: one },
    )
    t.is(await started.next(), answers || options.via === undefined)
    const pids = `${await started.next()}`.trim().split('\n')
    if (pids.length < 2) pids.push(`${await started.next()}`.trim())
    started.kill()
    await started.exited
    await noneMarked(one)
    t.deepEqual(readFileSync(file, 'utf8').trim().split('\n').sort(), pids.map((pid) => `${word} ${pid}`).sort())
  })
}

test('the host is gone by exit(), abort() or an exception: a setsid grandchild goes, too (C02)', async (t) => {
  for (const last of ['process.exit(0)', 'process.abort()', 'setTimeout(() => { throw new Error() })']) {
    const one = newMark()
    const started = host(
      t,
      `process.on('uncaughtException', () => process.exit(1))
      const session = await startSession('sh', ['-c', 'setsid sleep 60 & echo ready; sleep 60'], { grace: 100 })
      session.stdout.once('data', () => { report('ready'); ${last} })`,
      // Node.js shows its stack on abort().
      { before, mark: one, options: { stdio: ['pipe', 'pipe', 'ignore'] } },
    )
    t.is(await started.next(), 'ready')
    await started.exited
    await noneMarked(one)
  }
  t.pass()
})

test('SIGKILL of the starter, of its keeper, of both, of the Engine: all of it is ended, and reported', async (t) => {
  for (const who of ['starter', 'keeper', 'engine', 'both']) {
    const one = newMark()
    const session = await shell(t, `setsid sleep 60 & echo ready; sleep 60; true`, { env: { ...env, MARK: one } })
    t.is(await linesOf(session.stdout).next(), 'ready')
    const { keeper, engine } = await belowStarter(session.pid)
    if (who === 'both') {
      // Stopped, it neither reaps its keeper nor does what its keeper's death asks of it.
      process.kill(session.pid, 'SIGSTOP')
      process.kill(keeper, 'SIGKILL')
    }
    process.kill({ both: session.pid, starter: session.pid, keeper, engine }[who], 'SIGKILL')
    const { exitCode, signal } = await session.exited
    t.deepEqual([exitCode, signal], who === 'keeper' ? [70, null] : [null, 'SIGKILL'])
    t.is((await session.ended).outcome, 'ended')
    nothingIsLeft(t, one)
  }
})

test('a worker is terminated in the middle of a session: it ends (C65)', async (t) => {
  const one = newMark()
  const started = host(
    t,
    `const { Worker } = require('node:worker_threads')
    const worker = new Worker(\`
      const { parentPort } = require('node:worker_threads')
      require(${JSON.stringify(SESSION)}).startSession('sh', ['-c', 'setsid sleep 60 & echo ready; sleep 60'], { grace: 100 }).then((session) => {
        session.stdout.once('data', (chunk) => parentPort.postMessage(String(chunk)))
      })\`, { eval: true })
    worker.once('message', async (text) => { report(text); await worker.terminate(); report('terminated') })
    setInterval(() => {}, 1000)`,
    { before, mark: one },
  )
  t.is(await started.next(), 'ready\n')
  t.is(await started.next(), 'terminated')
  await until(() => marked(one).every((pid) => comm(pid) !== 'sleep'), 'the end of the session')
  t.is(stat(started.pid).state === 'Z', false)
})

test('containRequestedSession() is false without a request', (t) => {
  t.is(process.env[VARIABLE], undefined)
  t.false(containRequestedSession())
})

/** In write(2) to its stdout. */
function isInWrite(pid) {
  try {
    return readFileSync(`/proc/${pid}/syscall`, 'utf8').startsWith('1 0x1 ')
  } catch {
    return false
  }
}
