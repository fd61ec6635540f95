// What a command leaves in the background: ended with it, or kept until end() or the death of the host.
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { endAll, notices, run, running, spawn } from '../dist/index.js'
import { comm, gone, isAlive, marked, newMark, noneMarked, stat, until } from './support/facts.mjs'
import { TIDIES } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { mark, env } = suite(test)
const SERVER = fileURLToPath(new URL('./fixtures/server.mjs', import.meta.url))

/** A command that starts a server with & and returns. */
const serverCommand = (file) => ['sh', ['-c', '"$0" "$1" "$2" & echo started', process.execPath, SERVER, file]]

const portIn = (file) => until(() => existsSync(file) && Number(readFileSync(file, 'utf8')), `port in ${file}`)

/** A connection that has had its answer: { pid, closed }. */
async function ask(port) {
  const socket = connect(port, '127.0.0.1')
  const closed = new Promise((resolve) => socket.on('close', resolve))
  socket.on('error', () => {})
  socket.write('who\n')
  const [answer] = await once(socket, 'data')
  return { pid: Number(answer), closed, socket }
}

/** Fails while somebody listens there. */
async function isFree(port) {
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  server.close()
  await once(server, 'close')
}

test('a kept server answers after run() returned, is listed, and is gone after end() (C40)', async (t) => {
  const file = join(folder(t), 'port')
  const [program, args] = serverCommand(file)
  const result = await run(program, args, { env, background: 'keep' })
  t.like(result, { exitCode: 0, stdout: 'started\n', ok: true, notices: [] })
  const port = await portIn(file)
  const { pid, closed } = await ask(port)
  t.true(marked(mark).includes(pid))
  // The command itself is over: this is what it left.
  t.false(isAlive(result.kept.pid))
  t.deepEqual(
    running().map(({ id, pid, file }) => ({ id, pid, file })),
    [{ id: result.kept.id, pid: result.kept.pid, file: 'sh' }],
  )

  const name = comm(pid)
  const report = await result.kept.end()
  t.like(report, { outcome: 'ended', mechanism: 'subreaper', by: 'keeper', reason: 'end', leftoverCount: 1 })
  t.deepEqual(report.leftovers, [{ pid, name }])
  t.false(isAlive(pid))
  await closed
  await isFree(port)
  t.deepEqual(running(), [])
  // Once more is no error.
  t.is(await result.kept.end(), report)
})

test('the same with spawn(): close comes at once, ended with the end (C40)', async (t) => {
  const file = join(folder(t), 'port')
  const child = spawn(...serverCommand(file), { env, background: 'keep' })
  const events = []
  let text = ''
  child.stdout.on('data', (data) => (text += data))
  for (const event of ['exit', 'close', 'ended']) child.on(event, () => events.push(event))
  await once(child, 'close')
  t.is(text, 'started\n')
  const { pid, closed } = await ask(await portIn(file))
  t.deepEqual(events, ['exit', 'close'])
  t.deepEqual(
    running().map(({ id }) => id),
    [child.id],
  )
  t.like(await child.end(), { outcome: 'ended', reason: 'end' })
  t.deepEqual(events, ['exit', 'close', 'ended'])
  t.false(isAlive(pid))
  await closed
})

test('endAll() ends what was kept (C40)', async (t) => {
  const at = folder(t)
  const files = [join(at, 'a'), join(at, 'b')]
  await Promise.all(files.map((file) => run(...serverCommand(file), { env, background: 'keep' })))
  const pids = await Promise.all(files.map(async (file) => (await ask(await portIn(file))).pid))
  const reports = await endAll()
  t.deepEqual(
    reports.map(({ outcome, reason }) => [outcome, reason]),
    Array(2).fill(['ended', 'end']),
  )
  t.deepEqual(pids.filter(isAlive), [])
})

test('a kept server that moved to a session of its own is ended all the same (C40)', async (t) => {
  const file = join(folder(t), 'port')
  const moved = 'setsid sh -c \'"$0" "$1" "$2" & exit\' "$0" "$1" "$2" & echo started'
  const { kept } = await run('sh', ['-c', moved, process.execPath, SERVER, file], { env, background: 'keep' })
  const { pid, closed } = await ask(await portIn(file))
  t.not(stat(pid).pgrp, kept.pid)
  t.like(await kept.end(), { outcome: 'ended' })
  t.false(isAlive(pid))
  await closed
})

for (const [how, signal] of [
  ['SIGKILL of the host', 'SIGKILL'],
  ['SIGTERM of the host', 'SIGTERM'],
]) {
  test(`a kept server is gone after ${how} (C40)`, async (t) => {
    const at = folder(t)
    const own = newMark()
    const host = startHost(
      `
      const [program, args] = ${JSON.stringify(serverCommand(join(at, 'port')))}
      const { exitCode } = await run(program, args, { background: 'keep' })
      report(exitCode)
      setInterval(() => {}, 1000)
      `,
      { env: { MARK: own } },
    )
    t.teardown(() => host.kill())
    t.is(await host.next(), 0)
    const port = await portIn(join(at, 'port'))
    const { pid, closed } = await ask(port)
    host.kill(signal)
    t.like(await host.exited, { signal })
    await closed
    await gone([pid])
    await noneMarked(own)
    await isFree(port)
  })
}

test('what was kept does not keep the host: it ends by itself, and the server with it (C40)', async (t) => {
  const at = folder(t)
  const own = newMark()
  const host = startHost(
    `
    const { existsSync } = require('node:fs')
    const [program, args] = ${JSON.stringify(serverCommand(join(at, 'port')))}
    await run(program, args, { background: 'keep' })
    while (!existsSync(args[4])) await new Promise((resolve) => setTimeout(resolve, 2))
    report(running().length)
    process.stdin.once('data', () => process.stdin.destroy())
    `,
    { env: { MARK: own } },
  )
  t.teardown(() => host.kill())
  t.is(await host.next(), 1)
  const { closed } = await ask(await portIn(join(at, 'port')))
  host.child.stdin.write('go\n')
  t.deepEqual(await host.exited, { code: 0, signal: null })
  await closed
  await noneMarked(own)
})

test('what is kept may print: it neither dies of its pipes nor blocks on them (C40)', async (t) => {
  const done = join(folder(t), 'done')
  // More than a pipe holds, on both; `&&`: a write that fails leaves no file.
  const talk = `while [ ! -e "$0.go" ]; do sleep 0.01; done; head -c 1000000 /dev/zero && head -c 1000000 /dev/zero >&2 && touch "$0"`
  const { kept, stdout } = await run('sh', ['-c', `sh -c '${talk}' "$0" & echo started`, done], {
    env,
    background: 'keep',
  })
  t.is(stdout, 'started\n')
  await run('touch', [`${done}.go`], { env })
  await until(() => existsSync(done), 'the last write of what was kept')
  // Nothing is left to be kept, so the call ends by itself.
  await until(() => running().length === 0, 'the end of the call')
  t.like(await kept.end(), { outcome: 'ended', reason: 'exit' })
})

test('nothing to keep: the call is over with its command (C40)', async (t) => {
  const result = await run('echo', ['alone'], { env, background: 'keep' })
  await until(() => running().length === 0, 'the end of the call')
  if (result.kept !== undefined) t.like(await result.kept.end(), { outcome: 'ended', reason: 'exit' })
  t.like(result, { exitCode: 0, stdout: 'alone\n', ok: true })
})

test('an abort and a deadline that come after the command has gone do not concern what it left (C40)', async (t) => {
  const file = join(folder(t), 'port')
  const controller = new AbortController()
  const options = { env, background: 'keep', signal: controller.signal, timeout: 10_000, grace: 0 }
  const { kept } = await run(...serverCommand(file), options)
  const { pid, socket } = await ask(await portIn(file))
  controller.abort()
  // With grace 0 a SIGKILL would have been on its way before these rounds through the keepers.
  for (let round = 0; round < 20; round++) await run('true', { env })
  socket.write('still there?\n')
  const [answer] = await once(socket, 'data')
  t.is(Number(answer), pid)
  t.like(await kept.end(), { outcome: 'ended', reason: 'end' })
})

// ---- the ladder for what is left
test('what is left gets SIGTERM and the time that it was given, and with 0 SIGKILL at once (C90)', async (t) => {
  const at = folder(t)
  for (const [name, options, tidied] of [
    ['long', { backgroundGrace: 60_000 }, true],
    ['none', { backgroundGrace: 0 }, false],
    ['other', { backgroundGrace: 60_000, killSignal: 'SIGKILL' }, false],
  ]) {
    const file = join(at, name)
    const result = await run('sh', ['-c', TIDIES, 'sh', file], { env, ...options })
    t.like(result, { exitCode: 3, report: { outcome: 'ended', reason: 'exit' } })
    t.deepEqual([existsSync(`${file}.ready`), existsSync(file)], [true, tidied], name)
  }
})

test('what is left and deaf to SIGTERM is killed when the time is over (C90)', async (t) => {
  const child = spawn('sh', ['-c', "trap '' TERM; sleep 60 & echo x"], { env, backgroundGrace: 300 })
  await once(child, 'exit')
  const exited = performance.now()
  t.like(await child.ended, { outcome: 'ended', reason: 'exit', leftoverCount: 1 })
  const passed = performance.now() - exited
  // The exit was told a moment after it was.
  t.true(passed > 250 && passed < 20_000, `${passed} ms`)
  t.deepEqual(marked(mark), [])
})

// ---- what the keeper is told, and what becomes of its word, without the time that it takes
const addon = createRequire(import.meta.url)('../npm/linux-x64-gnu/holdfast.linux-x64-gnu.node')

/** Until the end of the test, `change` is called with what a function of the addon is given or gives. */
function replace(t, name, wrapped) {
  const original = addon[name]
  addon[name] = wrapped(original)
  t.teardown(() => {
    addon[name] = original
  })
}

test('the keeper is told the times for what is left, and whether the command is to lead', async (t) => {
  const told = []
  replace(t, 'start', (start) => (...values) => {
    told.push([values[11], values[12], values[15]])
    return start(...values)
  })
  const options = { backgroundGrace: 7, backgroundSettle: 9, detached: true }
  for (const one of [{}, options, { backgroundSettle: 0, detached: null }, { backgroundSettle: 2 ** 31 - 1 }]) {
    await run('true', { env, ...one })
    await spawn('true', { env, stdio: 'ignore', ...one }).ended
  }
  const [usual, asked, off, longest] = told.filter((_, index) => index % 2 === 0)
  t.deepEqual(
    [usual, asked, off, longest],
    [
      [500, 100, false],
      [7, 9, true],
      [500, 0, false],
      [500, 2 ** 31 - 1, false],
    ],
  )
  t.deepEqual(
    told.filter((_, index) => index % 2 === 1),
    [usual, asked, off, longest],
  )
})

/** Every end is told with this in it. */
const endWith = (t, facts) =>
  replace(
    t,
    'receive',
    (receive) => (number) => receive(number).map((event) => (event.kind === 'ended' ? { ...event, ...facts } : event)),
  )

test('output that was cut off is told by a notice, is not ok, and fails a check', async (t) => {
  t.like(await run('true', { env, check: true }), { ok: true, notices: [] })
  endWith(t, { settle: 'writing' })
  const result = await run('echo', ['x'], { env })
  t.like(result, { ok: false, exitCode: 0, stdout: 'x\n', notices: [notices.background] })
  t.like(result.report, { outcome: 'ended', reason: 'exit', notice: notices.background })
  t.is((await spawn('true', { env, stdio: 'ignore' }).ended).notice, notices.background)

  const failed = (options) => t.throwsAsync(run('echo', ['x'], { env, check: true, ...options }))
  const error = await failed({ backgroundSettle: 250 })
  t.like(error, { code: 'ERR_HOLDFAST_CHECK', ran: true, result: { ok: false, notices: [notices.background] } })
  t.regex(error.message, /^echo x left .* 250 ms were over; .* raise backgroundSettle, .*background: 'keep'$/)
  // The exit code says more.
  const { message } = await t.throwsAsync(run('false', { env, check: true }))
  t.is(message, 'false exited with code 1')
})

test('output that was cut off is told beside what else there is to say', async (t) => {
  endWith(t, { settle: 'writing', outcome: 'survivors' })
  const result = await run('yes | head -c 100', { env, shell: true, maxOutput: 10 })
  t.like(result, { ok: false, notices: [notices.end, notices.background, notices.cut] })
  t.is(result.report.notice, notices.end)
})
