// C87: a limit, an abort and end() win over a consumer that does not answer.
import { Readable } from 'node:stream'
import { endAll, run, running, spawn } from '../dist/index.js'
import { within } from './support/command-line.mjs'
import { until } from './support/facts.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const never = () => new Promise(() => {})
const WRITER = ['sh', ['-c', 'while :; do echo line; done']]
const GRACE = { env, grace: 50 }

/** An AbortSignal that is aborted when the consumer has been called. */
function abortedByConsumer() {
  const controller = new AbortController()
  const { signal } = controller
  return {
    signal,
    onOutput: () => {
      setImmediate(() => controller.abort())
      return never()
    },
  }
}

test('a command that writes on, and a consumer that never answers: the limit (C87)', async (t) => {
  const result = await within(run(...WRITER, { ...GRACE, timeout: 200, onOutput: never }), 'the limit')
  t.like(result, { timedOut: true, ok: false, report: { outcome: 'ended', reason: 'timeout' } })
  // What the consumer was not given is in the result.
  t.true(result.stdout.startsWith('line\nline\n'))
})

test('the same, and an abort (C87)', async (t) => {
  const result = await within(run(...WRITER, { ...GRACE, ...abortedByConsumer() }), 'the abort')
  t.like(result, { aborted: true, ok: false, report: { outcome: 'ended', reason: 'abort' } })
})

for (const [title, end] of [
  ['end() of running()', () => running()[0].end()],
  ['endAll()', () => endAll()],
]) {
  test(`the same, and ${title} (C87)`, async (t) => {
    let isCalled = false
    const pending = run(...WRITER, {
      ...GRACE,
      onOutput() {
        isCalled = true
        return never()
      },
    })
    await until(() => isCalled, 'output')
    await within(end(), title)
    t.like(await within(pending, 'the result'), { ok: false, report: { outcome: 'ended', reason: 'end' } })
  })
}

test('a command that has exited, and a consumer that never answers: the limit (C87)', async (t) => {
  const result = await within(run('echo', ['x'], { env, timeout: 300, onOutput: never }), 'the limit')
  // It did exit by itself.
  t.like(result, { timedOut: true, ok: false, exitCode: 0, stdout: 'x\n', report: { reason: 'exit' } })
})

test('the same, and an abort; with `check` it rejects (C87)', async (t) => {
  const result = await within(run('echo', ['x'], { env, ...abortedByConsumer() }), 'the abort')
  t.like(result, { aborted: true, ok: false, exitCode: 0, stdout: 'x\n' })
  const pending = run('echo', ['x'], { env, ...abortedByConsumer(), check: true })
  t.is((await t.throwsAsync(within(pending, 'the abort'))).name, 'AbortError')
})

for (const [title, endOf] of [
  ['end() of what running() gave', (call) => call.end()],
  ['endAll()', () => endAll()],
]) {
  test(`a command that has exited, and ${title} (C87)`, async (t) => {
    let isCalled = false
    const pending = run('echo', ['x'], {
      env,
      onOutput() {
        isCalled = true
        return never()
      },
    })
    const [call] = running()
    await until(() => isCalled && running().length === 0, 'the end of the command')
    await within(endOf(call), title)
    t.like(await within(pending, 'the result'), { stdout: 'x\n', exitCode: 0, report: { outcome: 'ended' } })
    t.deepEqual(await within(endAll(), 'nothing'), [])
  })
}

test("the same with background 'keep', and the limit (C87)", async (t) => {
  const options = { env, timeout: 300, background: 'keep', onOutput: never }
  const result = await within(run('sh', ['-c', 'echo x; sleep 60 &'], options), 'the limit')
  t.like(result, { timedOut: true, exitCode: 0, stdout: 'x\n', report: { outcome: 'kept' } })
  await result.kept.end({ grace: 0 })
})

test('a consumer that is slow has everything, where nothing ends it (C87)', async (t) => {
  let length = 0
  const result = await run('seq', ['100000'], {
    env,
    timeout: 60_000,
    async onOutput({ data }) {
      await new Promise((resolve) => setImmediate(resolve))
      length += data.length
    },
  })
  t.like(result, { ok: true, timedOut: false })
  t.is(length, result.stdout.length)
})

test('no listener is left at the signal (C87)', async (t) => {
  const added = []
  const removed = []
  const { signal } = new AbortController()
  const watched = new Proxy(signal, {
    get(target, name) {
      if (name === 'addEventListener') return (...args) => added.push(args[1])
      if (name === 'removeEventListener') return (...args) => removed.push(args[1])
      return Reflect.get(target, name, target)
    },
  })
  await run('echo', ['x'], { env, signal: watched, onOutput: () => new Promise((resolve) => setImmediate(resolve)) })
  t.true(added.length > 0)
  t.deepEqual(removed, added)
})

test('input that never ends, input that stalls in the middle: the limit (C87)', async (t) => {
  const stalled = new Readable({ read() {} })
  stalled.push('x')
  for (const input of [new Readable({ read() {} }), stalled]) {
    const result = await within(run('cat', { ...GRACE, timeout: 200, input }), 'the limit')
    t.like(result, { timedOut: true, report: { outcome: 'ended' } })
  }
})

test('a consumer that throws, or rejects, while the command writes on (C87)', async (t) => {
  const failures = [
    () => {
      throw new Error('mine')
    },
    async () => {
      throw new Error('mine')
    },
  ]
  for (const onOutput of failures) {
    const error = await t.throwsAsync(within(run(...WRITER, { ...GRACE, onOutput }), 'the end'))
    t.is(error.code, 'ERR_HOLDFAST_CONSUMER')
    t.is(error.cause.message, 'mine')
  }
})

test('a consumer that throws what cannot be looked at (C87)', async (t) => {
  const trap = () => {
    throw new Error('trap')
  }
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  for (const thrown of [
    {
      get message() {
        return trap()
      },
    },
    new Proxy({}, { get: trap, getPrototypeOf: trap }),
    proxy,
  ]) {
    const pending = run(...WRITER, {
      ...GRACE,
      onOutput() {
        throw thrown
      },
    })
    const error = await t.throwsAsync(within(pending, 'the end'))
    t.is(error.code, 'ERR_HOLDFAST_CONSUMER')
    t.true(error.cause === thrown)
    t.true(error.result.stdout.startsWith('line\n'))
  }
})

test('streams of spawn() that are paused, or never read: limit and abort end it (C87)', async (t) => {
  for (const prepare of [() => {}, (child) => child.stdout.pause(), (child) => child.stdout.on('readable', () => {})]) {
    for (const isLimit of [true, false]) {
      const controller = new AbortController()
      const child = spawn(...WRITER, { ...GRACE, ...(isLimit ? { timeout: 200 } : { signal: controller.signal }) })
      prepare(child)
      child.once('spawn', () => controller.abort())
      t.is((await within(child.ended, 'the end')).outcome, 'ended')
    }
  }
})
