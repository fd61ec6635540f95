// C86: nothing that prints, serialises or walks what holdfast returns or throws comes upon the environment.
import { executionAsyncResource } from 'node:async_hooks'
import { spawn as plain } from 'node:child_process'
import { once } from 'node:events'
import { inspect } from 'node:util'
import { guard, run, running, spawn } from '../dist/index.js'
import { startSession } from '../dist/session.js'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const SECRET = 'hunter2-in-the-environment'
const secretive = { env: { ...env, TOKEN: SECRET } }

/** Whatever a logger does with it. */
const printers = {
  'util.inspect': (value) => inspect(value, { depth: Number.POSITIVE_INFINITY, maxStringLength: null }),
  'util.inspect, as console.dir may': (value) =>
    inspect(value, { depth: Number.POSITIVE_INFINITY, maxStringLength: null, showHidden: true, getters: true }),
  'inspect() without customInspect': (value) =>
    inspect(value, { depth: 9, showHidden: true, getters: true, customInspect: false }),
  'util.inspect without customInspect': (value) =>
    inspect(value, { depth: Number.POSITIVE_INFINITY, maxStringLength: null, customInspect: false }),
  'JSON.stringify': (value) => {
    const seen = new Set()
    return JSON.stringify(value, (_, one) => {
      if (typeof one !== 'object' || one === null) return one
      return seen.has(one) ? undefined : seen.add(one) && one
    })
  },
  'a walk by Object.keys': (value) => walk(value, Object.keys).join(' '),
  'a walk by Reflect.ownKeys': (value) => walk(value, Reflect.ownKeys).join(' '),
}

function walk(value, keysOf, seen = new Set()) {
  if (typeof value === 'string') return [value]
  // Functions and what belongs to Node.js are not holdfast's.
  if (typeof value !== 'object' || value === null || seen.has(value) || value === process || value === globalThis)
    return []
  seen.add(value)
  return keysOf(value).flatMap((key) => {
    let one
    try {
      one = value[key]
    } catch {}
    return walk(one, keysOf, seen)
  })
}

function showsNothing(t, what, value) {
  for (const [printer, print] of Object.entries(printers)) {
    const text = print(value) ?? ''
    if (text.includes(SECRET)) t.fail(`${what}, by ${printer}: ${text.slice(0, 300)}`)
  }
  t.pass()
}

test('a call, its streams, and what its listeners run in (C86)', async (t) => {
  const child = spawn('sh', ['-c', 'echo out; read line'], { ...secretive, stdio: ['pipe', 'pipe', 'pipe', 'pipe'] })
  const values = { child, 'child.stdin': child.stdin, 'child.stdout': child.stdout, 'child.stdio': child.stdio }
  for (const [what, value] of Object.entries(values)) showsNothing(t, what, value)
  await once(child, 'spawn')
  await once(child.stdout, 'data')
  for (const [what, value] of Object.entries(values)) showsNothing(t, `${what}, while it runs`, value)
  showsNothing(t, 'running()', running())
  child.stdout.once('data', () => {})
  child.once('exit', () => showsNothing(t, 'executionAsyncResource()', executionAsyncResource()))
  child.stdin.end('\n')
  showsNothing(t, 'the report', await child.ended)
  for (const [what, value] of Object.entries(values)) showsNothing(t, `${what}, at the end`, value)
})

test('a call inspects as its id, pid, file and state (C86)', async (t) => {
  const child = spawn('cat', [], secretive)
  t.is(inspect(child), `ContainedProcess { id: '${child.id}', pid: ${child.pid}, file: 'cat', state: 'starting' }`)
  await once(child, 'spawn')
  t.regex(inspect({ child }), /file: 'cat',\s+state: 'running'/)
  t.regex(inspect(running()), /^\[\s+{\s+id: .*file: 'cat',\s+state: 'running'\s+}\s+\]$/s)
  child.stdin.end()
  await child.ended
  t.regex(inspect(child), /state: 'ended' }$/)
  t.is(typeof JSON.stringify(child), 'string')
  // As a ChildProcess has them.
  t.true(
    ['spawnfile', 'spawnargs', 'exitCode', 'signalCode', 'killed'].every((key) => Object.keys(child).includes(key)),
  )
})

test('results, kept calls and errors (C86)', async (t) => {
  showsNothing(t, 'a result', await run('true', secretive))
  const kept = await run('sh', ['-c', 'sleep 60 & echo'], { ...secretive, background: 'keep' })
  showsNothing(t, 'a kept call', kept)
  await kept.kept.end({ grace: 0 })
  const failures = {
    'a missing program': run('holdfast-no-such-program', secretive),
    'too long arguments': run('true', ['x'.repeat(200 << 10)], secretive),
    check: run('false', { ...secretive, check: true }),
    abort: run('true', { ...secretive, signal: AbortSignal.abort() }),
    'a consumer': run('echo', ['x'], {
      ...secretive,
      onOutput() {
        throw new Error('mine')
      },
    }),
  }
  for (const [what, failure] of Object.entries(failures)) showsNothing(t, what, await t.throwsAsync(failure))
  const child = spawn('holdfast-no-such-program', [], secretive)
  const [error] = await once(child, 'error').catch((error) => [error])
  showsNothing(t, 'the event error', error)
  await child.ended
})

test('sessions and guards (C86)', async (t) => {
  const session = await startSession('cat', [], secretive)
  for (const what of ['stdin', 'stdout', 'stderr']) showsNothing(t, `session.${what}`, session[what])
  showsNothing(t, 'a session', session)
  t.regex(inspect(session), /^Session {\s+id: .*file: 'cat'.*contained: true/s)
  await session.end({ grace: 0 })
  const error = await t.throwsAsync(startSession('true', [], { ...secretive, via: 'request' }))
  showsNothing(t, 'a session that is refused', error)

  const child = plain('sleep', ['60'], { ...secretive, detached: true, stdio: 'ignore' })
  const guarded = await guard(child)
  showsNothing(t, 'a guard', guarded)
  await guarded.end({ grace: 0 })
})
