// C85: a stream of the host that is given to a command as stdio is read by that command, and not by the host as well.
import childProcess from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream, readFileSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { run, running, spawn } from '../dist/index.js'
import { within } from './support/command-line.mjs'
import { until } from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { HOLDFAST, startHost } from './support/host.mjs'
import { folder, has, suite } from './support/suite.mjs'
import { NO_TERMINAL, openTerminal } from './support/terminal.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const LINES = 200_000

async function textOf(stream) {
  let text = ''
  for await (const chunk of stream) text += chunk
  return text
}
/** Counts the lines that come by that stream. */
const counters = {
  'spawn()': async (stream) => {
    const child = spawn('wc', ['-l'], { env, stdio: [stream, 'pipe', 'inherit'] })
    if (child.stdin !== null) throw new Error('it has a stdin')
    const text = await textOf(child.stdout)
    await child.ended
    return Number(text)
  },
  'run()': async (stream) => Number((await run('wc', ['-l'], { env, stdio: [stream, 'pipe', 'inherit'] })).stdout),
}
const producers = { child_process: childProcess.spawn, holdfast: spawn }
/** What the host has done with the stream before. Resolves to the lines that it has had of it. */
const moments = {
  'right after the start': async () => 0,
  'after `spawn`': async (child) => {
    await once(child, 'spawn')
    return 0
  },
  'when the host holds some of it': async (child) => {
    child.stdout.once('readable', () => {})
    await until(() => child.stdout.readableLength > 0, 'data in the host')
    return 0
  },
  'when the host has had some of it': (child) =>
    new Promise((resolve) => {
      child.stdout.once('data', (chunk) => {
        child.stdout.pause()
        resolve(String(chunk).split('\n').length - 1)
      })
    }),
}
for (const [producer, start] of Object.entries(producers)) {
  for (const [moment, before] of Object.entries(moments)) {
    for (const [counter, count] of Object.entries(counters)) {
      test(`${LINES} lines of a child of ${producer}, given to ${counter} ${moment} (C85)`, async (t) => {
        const child = start('seq', [`${LINES}`], { env })
        const closed = once(child, 'close')
        const had = await before(child)
        t.is(had + (await within(count(child.stdout), 'the count')), LINES)
        await within(closed, '`close` of the writer')
      })
    }
  }
}

test('a pipeline of holdfast: the writer has SIGPIPE when the reader has left (C85)', async (t) => {
  for (const isHeld of [false, true]) {
    const yes = spawn('yes', [], { env })
    if (isHeld) await moments['when the host holds some of it'](yes)
    const head = spawn('head', ['-2'], { env, stdio: [yes.stdout, 'pipe', 'inherit'] })
    t.is(await within(textOf(head.stdout), 'two lines'), 'y\ny\n')
    t.like(await within(yes.ended, 'the end of yes'), { outcome: 'ended', reason: 'exit' })
    t.is(yes.signalCode, 'SIGPIPE')
    t.like(await within(head.ended, 'the end of head'), { outcome: 'ended', reason: 'exit' })
  }
  t.deepEqual(running(), [])
})

test('a pipeline of holdfast: output into the stdin of a call, behind what was written to it (C85)', async (t) => {
  const cat = spawn('cat', [], { env })
  const text = textOf(cat.stdout)
  cat.stdin.write('first\n')
  const echo = spawn('echo', ['second'], { env, stdio: ['ignore', cat.stdin, 'inherit'] })
  await echo.ended
  t.is(await within(text, 'the output of cat'), 'first\nsecond\n')
})

test('a pipeline whose reader cannot be started ends (C85)', async (t) => {
  const yes = spawn('yes', [], { env })
  const none = spawn('holdfast-no-such-program', [], { env, stdio: [yes.stdout, 'ignore', 'ignore'] })
  none.on('error', () => {})
  t.is((await within(none.ended, 'the refusal')).reason, 'not-started')
  await within(yes.ended, 'the end of yes')
  t.is(yes.signalCode, 'SIGPIPE')
})

test('a socket, given when it is new and when the host holds some of it (C85)', async (t) => {
  const sent = Buffer.alloc(2_000_000, 'line\n')
  const server = createServer((socket) => socket.on('error', () => {}).end(sent)).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  for (const isHeld of [false, true]) {
    const socket = connect({ port: server.address().port, host: '127.0.0.1' })
    t.teardown(() => socket.destroy())
    await once(socket, 'connect')
    if (isHeld) await until(() => socket.readableLength > 0, 'data in the host')
    t.is(await within(counters['spawn()'](socket), 'the count'), sent.length / 5)
  }
})

test('a file, given before and after the host has begun to read it (C85)', async (t) => {
  const path = join(folder(t), 'lines')
  writeFileSync(path, 'x\n'.repeat(LINES))
  const fresh = createReadStream(path)
  await once(fresh, 'open')
  t.is(await counters['spawn()'](fresh), LINES)
  const begun = createReadStream(path)
  const had = await moments['when the host has had some of it']({ stdout: begun })
  t.is(had + (await counters['spawn()'](begun)), LINES)
  // And to write to.
  const out = createWriteStream(`${path}.out`)
  await once(out, 'open')
  await spawn('echo', ['out'], { env, stdio: ['ignore', out, 'inherit'] }).ended
  t.is(readFileSync(`${path}.out`, 'utf8'), 'out\n')
})

/** Reads its stdin, gives it to a command that wants a thousand lines, and reads on. */
const LENDER = programOf('streams/lender')
const THOUSAND = 'a line\n'.repeat(1000)

test('process.stdin that the host reads, a pipe: the command has it, and then the host again (C85)', async (t) => {
  const host = startHost(LENDER)
  t.teardown(() => host.kill())
  t.is(await host.next(), 'lent')
  host.child.stdin.write(THOUSAND)
  t.is(await within(host.next(), 'a thousand lines'), 1000)
  host.child.stdin.write('more\n')
  t.is(await within(host.next(), 'what came after'), 'more')
  await host.exited
})

test('process.stdin that the host reads, a terminal: the command has it, and then the host again (C85)', async (t) => {
  if (!has(t, NO_TERMINAL)) return
  const program = join(folder(t), 'host.cjs')
  const prelude = `const { spawn } = require(${JSON.stringify(HOLDFAST)})
    const report = (value) => console.log('report ' + value)
    setTimeout(() => process.exit(99), 60_000).unref()`
  writeFileSync(program, `${prelude};(async () => {${LENDER}})()`)
  const terminal = openTerminal(`stty -echo; exec '${process.execPath}' '${program}'`)
  await terminal.shows(/report lent/)
  terminal.type(THOUSAND)
  await terminal.shows(/report 1000/)
  terminal.type('more\n')
  await terminal.shows(/report more/)
  await terminal.exited
  t.pass()
})

test('a socket that was lent is the host’s again, and a resume() in between comes into effect then (C85)', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const mine = connect({ port: server.address().port, host: '127.0.0.1' })
  const [other] = await once(server, 'connection')
  t.teardown(() => {
    mine.destroy()
    other.destroy()
  })
  const child = spawn('head', ['-c', '6'], { env, stdio: [mine, 'pipe', 'inherit'] })
  const chunks = []
  mine.on('data', (chunk) => chunks.push(chunk))
  mine.resume()
  other.write('theirs')
  t.is(await within(textOf(child.stdout), 'six bytes'), 'theirs')
  await child.ended
  other.write('mine')
  await within(once(mine, 'data'), 'data for the host')
  t.is(String(Buffer.concat(chunks)), 'mine')
})

test('what has no descriptor is refused by a sentence (C85)', async (t) => {
  const ended = spawn('true', [], { env })
  const { stdout } = ended
  await ended.ended
  for (const [stream, name] of [
    [new PassThrough(), 'PassThrough'],
    [createReadStream('/dev/null'), 'ReadStream'],
    [stdout, 'PipeReadable'],
  ]) {
    for (const start of [async (stdio) => spawn('cat', { stdio }), (stdio) => run('cat', { stdio })]) {
      const error = await t.throwsAsync(start([stream, 'pipe', 'pipe']), { code: 'ERR_INVALID_ARG_VALUE' })
      t.true(
        error.message.startsWith(
          `The property 'options.stdio[0]' is a stream without an open file descriptor (${name}). `,
        ),
        error.message,
      )
    }
  }
})
