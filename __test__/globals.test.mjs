// C88: tests replace timers and clocks, and have realms of their own. Nothing hangs for it, and nothing is refused.
import { dirname } from 'node:path'
import { runInNewContext } from 'node:vm'
import { run, spawn } from '../dist/index.js'
import { within } from './support/command-line.mjs'
import { programOf } from './support/fixtures.mjs'
import { HOLDFAST, SESSION, startHost } from './support/host.mjs'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)

/**
 * Fake timers that never fire, and clocks that stand still; as globals and in `node:timers`. What Node.js itself puts
 * off by process.nextTick goes on, or none of its streams would.
 */
const FAKES = (folder) => programOf('globals/fakes', { folder })

/** One of each wait that there is. */
const JOBS = {
  'run() with much output, input, and a consumer': `
    const result = await run('cat', { input: 'x'.repeat(5_000_000), async onOutput() {} })
    return result.stdout.length`,
  'events and streams': `
    const { once } = require('node:events')
    const child = spawn('sh', ['-c', 'cat; head -c 3000000 /dev/zero'])
    await once(child, 'spawn')
    child.stdin.end('x')
    let length = 0
    for await (const chunk of child.stdout) length += chunk.length
    await once(child, 'close')
    await child.ended
    return length`,
  'a start that fails': `return (await spawn('holdfast-none').on('error', () => {}).ended).reason`,
  'an abort before the start': `
    return (await spawn('true', { signal: AbortSignal.abort() }).on('error', () => {}).ended).reason`,
  'a limit over a consumer that does not answer': `
    const result = await run('echo', ['x'], { timeout: 300, onOutput: () => new Promise(() => {}) })
    return result.timedOut`,
  'end() and endAll()': `
    const children = [1, 2].map(() => spawn('sleep', ['60'], { grace: 100 }))
    await children[0].end()
    const [{ outcome }] = await endAll()
    return outcome`,
  'a session': `
    const { startSession } = require(${JSON.stringify(SESSION)})
    const session = await startSession('cat')
    session.stdin.end('x')
    let text = ''
    for await (const chunk of session.stdout) text += chunk
    return text + (await session.exited).exitCode`,
  'a session that is not acknowledged': `
    const { startSession } = require(${JSON.stringify(SESSION)})
    return startSession('sleep', ['60'], { via: 'request', ackTimeout: 100 }).catch((error) => error.code)`,
  'a guard': `
    const child = require('node:child_process').spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
    return (await (await holdfast.guard(child)).end({ grace: 0 })).outcome`,
}
const EXPECTED = {
  'run() with much output, input, and a consumer': 5_000_000,
  'events and streams': 3_000_001,
  'a start that fails': 'not-started',
  'an abort before the start': 'not-started',
  'a limit over a consumer that does not answer': true,
  'end() and endAll()': 'ended',
  'a session': 'x0',
  'a session that is not acknowledged': 'ERR_HOLDFAST_NOT_CONTAINED',
  'a guard': 'ended',
}

for (const [title, job] of Object.entries(JOBS)) {
  test(`fake timers and clocks: ${title} (C88)`, async (t) => {
    const load = `require(${JSON.stringify(SESSION)})`
    const host = startHost(
      `${load}\n${FAKES(dirname(HOLDFAST))}\nreport(await (async () => {${job}})())\nprocess.exit()`,
      {
        env,
      },
    )
    t.teardown(() => host.kill())
    t.deepEqual(await within(host.next(), title), EXPECTED[title])
    await host.exited
  })
}

/** Loads the package in a context of its own, as test runners do: none of its classes is the main context's. */
const LOADER = programOf('globals/load-in-context')
for (const [title, job] of Object.entries(JOBS)) {
  test(`loaded in a context of its own: ${title} (C88)`, async (t) => {
    const inContext = job.replace('require(', 'load(').replaceAll("load('node:", "require('node:")
    const host = startHost(
      `${LOADER}
      await (async (holdfast, { spawn, run, endAll }) => {
        report(await (async () => {${inContext}})())
      })(load(${JSON.stringify(HOLDFAST)}), load(${JSON.stringify(HOLDFAST)}))
      process.exit()`,
      { env },
    )
    t.teardown(() => host.kill())
    t.deepEqual(await within(host.next(), title), EXPECTED[title])
    await host.exited
  })
}

test('values of another realm are taken (C88)', async (t) => {
  const foreign = (code) => runInNewContext(code)
  const bytes = foreign('new Uint8Array([104, 105])')
  t.false(bytes instanceof Uint8Array)
  t.is((await run('cat', { env, input: bytes })).stdout, 'hi')
  t.is(
    (await run('cat', { env, input: foreign('new DataView(new Uint8Array([104, 105, 33]).buffer, 1)') })).stdout,
    'i!',
  )
  t.is((await run('cat', foreign('["-"]'), { env, input: 'x' })).stdout, 'x')
  t.is(
    (await run('sh', foreign('["-c", "echo $A"]'), { env: foreign('({ A: "a", PATH: "/bin:/usr/bin" })') })).stdout,
    'a\n',
  )
  const options = foreign('({ stdio: ["ignore", "pipe", "inherit"] })')
  t.is((await run('echo', ['x'], Object.assign(options, { env }))).stdout, 'x\n')

  const child = spawn('cat', { env })
  child.stdin.end(bytes)
  let text = ''
  for await (const chunk of child.stdout) text += chunk
  t.is(text, 'hi')
})

test('an AbortSignal and a URL of another realm or library are taken (C88)', async (t) => {
  const at = new URL(`file://${folder(t)}`)
  const { href, protocol, hostname, pathname, host, search, hash } = at
  const like = { href, protocol, hostname, pathname, host, search, hash, toString: () => href }
  t.is((await run('pwd', { env, cwd: like })).stdout, `${at.pathname}\n`)

  const listeners = new Set()
  const signal = {
    aborted: false,
    reason: undefined,
    addEventListener: (_, listener) => listeners.add(listener),
    removeEventListener: (_, listener) => listeners.delete(listener),
  }
  const running = run('sleep', ['60'], { env, grace: 0, signal })
  t.is(listeners.size, 1)
  signal.aborted = true
  // An event without a target.
  for (const listener of [...listeners]) listener({ type: 'abort' })
  t.true((await within(running, 'the abort')).aborted)
  const after = { ...signal, aborted: false }
  await run('true', { env, signal: after })
  t.is([...listeners].length <= 1, true)
})

test('what cannot be unlistened is no AbortSignal, and is refused before the start (C88)', async (t) => {
  const signal = { aborted: false, addEventListener() {} }
  await t.throwsAsync(run('true', { env, signal }), { code: 'ERR_INVALID_ARG_TYPE', message: /options\.signal/ })
})
