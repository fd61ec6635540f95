// What becomes of output: pipes beyond stderr, the order of stdout and stderr, the limits of run(), and its rejections.
import childProcess from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Duplex } from 'node:stream'
import { HoldfastError, notices, run, spawn } from '../dist/index.js'
import { PYTHON } from './support/fixtures.mjs'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const MARKER = `\n${notices.cut}\n`
const DEFAULT_LIMIT = 64 * 1024 * 1024

async function textOf(stream) {
  let text = ''
  for await (const chunk of stream.setEncoding('utf8')) text += chunk
  return text
}

test('stdio[3] is duplex: both directions, and the end of one (C73)', async (t) => {
  const script = 'while read -r line; do echo "got $line"; done <&3 >&3; echo "end of input" >&3'
  const child = spawn('sh', ['-c', script], { env, stdio: ['ignore', 'ignore', 'inherit', 'pipe'] })
  const three = child.stdio[3]
  t.true(three instanceof Duplex)
  t.is(child.stdio.length, 4)
  three.write('one\n')
  const [first] = await once(three, 'data')
  t.is(String(first), 'got one\n')
  three.end('two\n')
  t.is(await textOf(three), 'got two\nend of input\n')
  t.like(await child.ended, { outcome: 'ended', reason: 'exit' })
  t.is(child.exitCode, 0)
})

test('places 3 and 4 are apart, and a lot goes through both ways at once (C73)', async (t) => {
  const child = spawn('sh', ['-c', 'cat <&3 >&3 & cat <&4 >&4 & wait'], {
    env,
    stdio: ['ignore', 'ignore', 'inherit', 'pipe', 'pipe'],
  })
  const sizes = [3_000_000, 1_000_000]
  const received = await Promise.all(
    sizes.map(async (size, index) => {
      const place = child.stdio[3 + index]
      place.end(Buffer.alloc(size, String(index)))
      const parts = []
      for await (const part of place) parts.push(part)
      return Buffer.concat(parts)
    }),
  )
  for (const [index, size] of sizes.entries()) {
    t.is(received[index].length, size)
    t.true(received[index].equals(Buffer.alloc(size, String(index))))
  }
  await child.ended
  t.is(child.exitCode, 0)
})

test('a program that opens the descriptor as a socket (C73)', async (t) => {
  const script = `
    const socket = new (require('node:net').Socket)({ fd: 3 })
    socket.on('data', (data) => socket.write(String(data).toUpperCase()))
    socket.on('end', () => socket.end('bye'))
  `
  const child = spawn(process.execPath, ['-e', script], { env, stdio: ['ignore', 'ignore', 'inherit', 'pipe'] })
  child.stdio[3].write('hello ')
  const [answer] = await once(child.stdio[3], 'data')
  t.is(String(answer), 'HELLO ')
  child.stdio[3].end()
  t.is(await textOf(child.stdio[3]), 'bye')
  await child.ended
  t.is(child.exitCode, 0)
})

const LINES = 2000
const BOTH = `i=0; while [ $i -lt ${LINES} ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); done`
const inOrder = Array.from({ length: LINES }, (_, i) => `out ${i}\nerr ${i}\n`).join('')

test("'stdout' as stderr keeps the order of writes (C73)", async (t) => {
  const child = spawn('sh', ['-c', BOTH], { env, stdio: ['ignore', 'pipe', 'stdout'] })
  t.is(child.stderr, null)
  t.is(await textOf(child.stdout), inOrder)
  await child.ended

  const result = await run('sh', ['-c', BOTH], { env, stdio: ['ignore', 'pipe', 'stdout'] })
  t.is(result.stdout, inOrder)
  t.is(result.stderr, '')
  // One pipe, not one file opened twice.
  const { stdout } = await run('sh', ['-c', '[ /dev/fd/1 -ef /dev/fd/2 ] && readlink /proc/$$/fd/1'], {
    env,
    stdio: ['ignore', 'pipe', 'stdout'],
  })
  t.regex(stdout, /^pipe:/)
})

test("'stdout' as stderr where stdout itself is not a pipe of ours (C73)", async (t) => {
  const path = join(folder(t), 'log')
  const file = openSync(path, 'w')
  await run('sh', ['-c', BOTH], { env, stdio: ['ignore', file, 'stdout'] })
  closeSync(file)
  t.is(readFileSync(path, 'utf8'), inOrder)
  const { exitCode, stdout } = await run('sh', ['-c', 'echo lost; echo lost >&2'], {
    env,
    stdio: ['ignore', 'ignore', 'stdout'],
  })
  t.is(exitCode, 0)
  t.is(stdout, '')
})

test('places 0 to 2 are pipes that can be opened (C73)', async (t) => {
  const script = 'cat /dev/stdin > /dev/stdout; echo err > /dev/stderr; echo next > /dev/stdout'
  t.like(await run('sh', ['-c', script], { env, input: 'in\n' }), {
    stdout: 'in\nnext\n',
    stderr: 'err\n',
    exitCode: 0,
  })
})

// ---- C76
/** 1 to 4 bytes a character, so that a cut of any length falls into each of them. */
const TEXT = 'aé€😀'.repeat(30_000)
const BYTES = Buffer.byteLength(TEXT)

const printer = [process.execPath, ['-e', "process.stdout.write('aé€😀'.repeat(30_000))"]]

test('beyond maxOutput head and tail stay, with the marker at the cut, and UTF-8 whole (C76)', async (t) => {
  const limits = [0, 1, 2, 3, 9, 10, 11, 12, 13, 4096, 65_537, 100_003, BYTES - 1]
  await Promise.all(
    [0, 1].map(async (half) => {
      for (const maxOutput of limits.filter((_, index) => index % 2 === half)) {
        const result = await run(...printer, { env, maxOutput })
        t.like(result, { exitCode: 0, ok: true, stderr: '', notices: [notices.cut] }, `${maxOutput}`)
        const parts = result.stdout.split(MARKER)
        t.is(parts.length, 2, `${maxOutput}`)
        const [head, tail] = parts
        t.true(TEXT.startsWith(head) && TEXT.endsWith(tail), `${maxOutput}`)
        t.false(result.stdout.includes('\ufffd'), `${maxOutput}`)
        const sizes = [head, tail].map((part) => Buffer.byteLength(part))
        // Each half is as long as it may be, but for the character that the cut goes through.
        t.true(
          sizes[0] <= Math.ceil(maxOutput / 2) && sizes[0] > Math.ceil(maxOutput / 2) - 4,
          `${maxOutput}: ${sizes}`,
        )
        t.true(
          sizes[1] <= Math.floor(maxOutput / 2) && sizes[1] > Math.floor(maxOutput / 2) - 4,
          `${maxOutput}: ${sizes}`,
        )
        t.deepEqual(result.dropped, { stdout: BYTES - sizes[0] - sizes[1], stderr: 0 }, `${maxOutput}`)
      }
    }),
  )
})

test('what just fits is not cut; the limit is for each stream (C76)', async (t) => {
  t.like(await run(...printer, { env, maxOutput: BYTES }), {
    stdout: TEXT,
    dropped: { stdout: 0, stderr: 0 },
    notices: [],
  })
  const script = 'head -c 1000 /dev/zero | tr "\\0" o; head -c 3000 /dev/zero | tr "\\0" e >&2'
  const result = await run('sh', ['-c', script], { env, maxOutput: 1000 })
  t.is(result.stdout, 'o'.repeat(1000))
  t.is(result.stderr, 'e'.repeat(500) + MARKER + 'e'.repeat(500))
  t.deepEqual(result.dropped, { stdout: 0, stderr: 2000 })
  t.true(result.ok)
})

test('with bytes for output the cut is exact (C76)', async (t) => {
  const { stdout, dropped } = await run(...printer, { env, maxOutput: 1001, encoding: 'buffer' })
  const all = Buffer.from(TEXT)
  t.true(stdout instanceof Uint8Array)
  t.true(Buffer.concat([all.subarray(0, 501), Buffer.from(MARKER), all.subarray(-500)]).equals(stdout))
  t.is(dropped.stdout, BYTES - 1001)
})

test('a cut by the default limit is not ok; a cut that was asked for is (C76)', async (t) => {
  const over = 1_000_000
  const print = ['-c', `head -c ${DEFAULT_LIMIT + over} /dev/zero`]
  const cut = await run('sh', print, { env, encoding: 'buffer' })
  t.like(cut, { ok: false, exitCode: 0, signal: null, notices: [notices.cut] })
  t.deepEqual(cut.dropped, { stdout: over, stderr: 0 })
  t.is(cut.stdout.length, DEFAULT_LIMIT + MARKER.length)

  const error = await t.throwsAsync(run('sh', print, { env, encoding: 'buffer', check: true }), {
    instanceOf: HoldfastError,
    code: 'ERR_HOLDFAST_CHECK',
  })
  t.like(error.result, { ok: false, exitCode: 0 })
  t.true(error.message.includes(`${DEFAULT_LIMIT}`) && error.message.includes('maxOutput'), error.message)

  const asked = await run('sh', print, { env, encoding: 'buffer', maxOutput: DEFAULT_LIMIT, check: true })
  t.like(asked, { ok: true, exitCode: 0, notices: [notices.cut] })
})

test('check: true rejects with the result (C76)', async (t) => {
  const failed = (script, options) =>
    t.throwsAsync(run('sh', ['-c', script], { env, check: true, ...options }), {
      instanceOf: HoldfastError,
      code: 'ERR_HOLDFAST_CHECK',
    })
  const code = await failed('echo out; echo err >&2; exit 3')
  const message = "sh -c 'echo out; echo err >&2; exit 3' exited with code 3. It wrote:\nerr"
  t.like(code, { ran: true, message })
  t.like(code.result, { exitCode: 3, signal: null, stdout: 'out\n', stderr: 'err\n', ok: false })
  t.is(code.result.report.outcome, 'ended')

  const signal = await failed('echo out; kill -USR1 $$')
  t.true(signal.message.includes('SIGUSR1'), signal.message)
  t.like(signal.result, { exitCode: null, signal: 'SIGUSR1', stdout: 'out\n' })

  const late = await failed('echo out; exec sleep 50', { timeout: 100 })
  t.true(late.message.includes('100 ms'), late.message)
  t.like(late.result, { timedOut: true, aborted: false, signal: 'SIGTERM', stdout: 'out\n' })
  t.is(late.result.report.reason, 'timeout')

  t.like(await run('true', { env, check: true }), { ok: true, exitCode: 0 })
  // Without it the same resolves.
  t.like(await run('sh', ['-c', 'exit 3'], { env }), { ok: false, exitCode: 3 })
})

test('an aborted call rejects AbortError with check, and resolves without (C76)', async (t) => {
  for (const check of [true, false]) {
    const controller = new AbortController()
    const reason = new Error('enough')
    const started = deferred()
    const done = run('sh', ['-c', 'echo up; exec sleep 50'], {
      env,
      check,
      signal: controller.signal,
      onOutput: () => started.resolve(),
    })
    await started.promise
    controller.abort(reason)
    const expected = { aborted: true, timedOut: false, ok: false, signal: 'SIGTERM', stdout: 'up\n' }
    if (check) {
      const error = await t.throwsAsync(done, { name: 'AbortError', code: 'ABORT_ERR' })
      t.like(error, { cause: reason, ran: true })
      t.like(error.result, expected)
      t.like(error.result.report, { outcome: 'ended', reason: 'abort' })
    } else {
      t.like(await done, expected)
    }
  }
})

function deferred() {
  let resolve
  const promise = new Promise((done) => (resolve = done))
  return { promise, resolve }
}

test('a program that writes once, without waiting, loses no more than under child_process', async (t) => {
  const script = 'import os; os.set_blocking(1, False); os.write(2, b"%d" % os.write(1, b"x" * (4 << 20)))'
  const taken = async (start) => {
    const child = start(PYTHON, ['-c', script], { stdio: ['ignore', 'pipe', 'pipe'], env })
    let told = ''
    child.stderr.on('data', (data) => {
      told += data
    })
    // Nothing is read until it has written.
    await once(child.stderr, 'data')
    child.stdout.resume()
    await once(child, 'close')
    return Number(told)
  }
  const [expected, actual] = [await taken(childProcess.spawn), await taken(spawn)]
  t.true(expected > 64 * 1024, `${expected}`)
  t.true(actual >= expected, `${actual} of ${expected}`)
})
