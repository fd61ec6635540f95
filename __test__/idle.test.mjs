// idleTimeout: a call that says nothing for too long is ended; one that speaks, or has spoken unheard, is not.
import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { run, spawn } from '../dist/index.js'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const bash = (script, options) => run('bash', ['-c', script], { env, ...options })

test('silence ends the call, and the result tells which limit struck', async (t) => {
  const result = await bash('echo begun; sleep 60', { idleTimeout: 200 })
  t.like(result, {
    stdout: 'begun\n',
    exitCode: null,
    signal: 'SIGTERM',
    ok: false,
    timedOut: false,
    idleTimedOut: true,
    aborted: false,
    report: { outcome: 'ended', reason: 'idle', by: 'keeper' },
  })
  t.true(result.duration >= 200)
})

test('output of either stream counts, however slow it is', async (t) => {
  const result = await bash('for i in {1..8}; do sleep 0.1; echo $i >&$((1 + i % 2)); done', { idleTimeout: 2000 })
  t.like(result, { ok: true, idleTimedOut: false, stdout: '2\n4\n6\n8\n', stderr: '1\n3\n5\n7\n' })
  t.true(result.duration >= 800)
})

test('each output begins the time anew', async (t) => {
  const result = await bash('for i in {1..6}; do echo $i; sleep 0.15; done; sleep 60', { idleTimeout: 500 })
  t.like(result, { stdout: '1\n2\n3\n4\n5\n6\n', report: { reason: 'idle' } })
  t.true(result.duration >= 750 + 500)
})

test('what came while the loop was blocked is read first', async (t) => {
  const result = bash('sleep 0.1; echo heard; sleep 0.6; echo twice', { idleTimeout: 5000 })
  const short = bash('sleep 0.1; echo heard; sleep 0.8; echo never', { idleTimeout: 400 })
  await setTimeout(0)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 450)
  t.like(await result, { stdout: 'heard\ntwice\n', ok: true })
  // The time begins when it was read.
  t.like(await short, { stdout: 'heard\n', report: { reason: 'idle' } })
})

test('a stream that nobody reads: what fills its pipe counts', async (t) => {
  const speaks = spawn('bash', ['-c', 'for i in {1..8}; do echo $i; sleep 0.2; done; exit 3'], {
    env,
    idleTimeout: 1000,
  })
  const [code] = await once(speaks, 'exit')
  t.is(code, 3)
  const silent = spawn('bash', ['-c', 'echo 1; sleep 60'], { env, idleTimeout: 300 })
  t.like(await silent.ended, { outcome: 'ended', reason: 'idle' })
  t.true(silent.killed)
})

test('what is kept may be silent', async (t) => {
  const { kept, idleTimedOut } = await bash('sleep 60 & exit 0', { idleTimeout: 50, background: 'keep' })
  await setTimeout(200)
  t.false(idleTimedOut)
  t.like(await kept.end({ grace: 0 }), { outcome: 'ended', reason: 'end' })
})

test('the limit wins over a consumer that does not answer', async (t) => {
  const result = await bash('echo one; sleep 60', { idleTimeout: 200, onOutput: () => new Promise(() => {}) })
  t.like(result, { stdout: 'one\n', idleTimedOut: true, report: { reason: 'idle' } })
})

test('check: the message names the limit', async (t) => {
  const error = await t.throwsAsync(bash('sleep 60', { idleTimeout: 100, check: true }), { code: 'ERR_HOLDFAST_CHECK' })
  t.regex(error.message, /wrote nothing for 100 ms and was ended/)
  t.true(error.result.idleTimedOut)
})

test('a call without a pipe for output is refused, and 0 is none', async (t) => {
  t.throws(() => spawn('true', { idleTimeout: 1, stdio: 'ignore' }), {
    code: 'ERR_INVALID_ARG_VALUE',
    message: /needs 'pipe' in the second or third place/,
  })
  t.like(await bash('sleep 0.1', { idleTimeout: 0, stdio: 'ignore' }), { ok: true })
})

test('it does not keep the host, and costs nothing after the end', async (t) => {
  const child = spawn('sleep', ['60'], { env, idleTimeout: 60_000, grace: 0 })
  t.like(await child.end(), { reason: 'end' })
  const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout')
  t.true(timers.length < 50)
})
