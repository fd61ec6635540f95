// The limit on open files binds in any step of a call: the error says so, nothing ran, the helper is kept, and the next
// call that has room works.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { descriptors, helpersOf, newMark, noneMarked, stat, until } from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { SESSION } from './support/host.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const MOST_FREE = 12
/** Reactor and helper have to be started as well. */
const FIRST = [0, 1, 2, 3, 4, 6, 8, 11, 14, 24]
const LIMITED = ['prlimit', '--nofile=200', process.execPath]

const { host } = suite(test, { patience: 0 })

/** `leave(n)` leaves n descriptors free, `room()` gives up all that it took. `tried()` is what came of a promise. */
const LIMITS = programOf('limits/limits', { SESSION })

function limited(t, body) {
  const mark = newMark()
  t.teardown(() => noneMarked(mark))
  return host(t, body, { before: LIMITS, command: LIMITED, mark })
}

const LIMIT = /this process has reached its limit on open files/

/** It worked, or it was refused for the one reason. Whether it worked. */
function worked(t, { value, ...error }, what) {
  if (value !== undefined) return true
  t.is(error.errno, -24, `${what}: ${JSON.stringify(error)}`)
  t.regex(error.message, LIMIT, what)
  return false
}

const operations = {
  'run()': "run('echo', ['x']).then(({ stdout }) => stdout)",
  'run() without pipes': "run('true', { stdio: 'ignore' }).then(({ ok }) => ok)",
  'spawn() with five pipes': `new Promise((resolve, reject) => {
    const child = spawn('sh', ['-c', 'echo x; cat <&3 >&4'], { stdio: ['pipe', 'pipe', 'pipe', 'pipe', 'pipe'] })
    child.on('error', reject)
    child.stdio.forEach((stream) => stream.on('error', () => {}).resume?.())
    child.stdio[3].end()
    child.ended.then(({ outcome, error }) => (error ? undefined : resolve(outcome)))
  })`,
  "background: 'keep'": `run('sh', ['-c', 'sleep 50 & echo x'], { background: 'keep' })
    .then(({ kept, report }) => kept.end({ grace: 0 }).then(({ outcome }) => [report.outcome, outcome]))`,
  'a session': `startSession('sh', ['-c', 'exit 3'])
    .then((session) => { session.stderr.resume(); return session.exited })`,
}
const CALL = `const call = () => tried(${operations['run()']})\n`
for (const [what, operation] of Object.entries(operations)) {
  test(`${what} with 0 to ${MOST_FREE} free descriptors (C83)`, async (t) => {
    const program = limited(
      t,
      `const operation = () => tried(${operation})\n${programOf('limits/each-free', { most: MOST_FREE })}`,
    )
    const { value } = await program.next()
    t.not(value, undefined)
    const helpers = helpersOf(program.pid)
    t.is(helpers.length, 1)
    program.child.stdin.write('go\n')
    const results = await program.next()
    const outcomes = results.map(({ free, first, second, after }) => {
      t.deepEqual(after, { value }, `with room, after ${free}`)
      for (const result of [first, second]) if (result.value !== undefined) t.deepEqual(result, { value })
      const did = worked(t, first, `${free} free`)
      // A second try may have what a first one gave up, or a keeper that came too late for it.
      t.true(worked(t, second, `${free} free, again`) || !did, `${free} free`)
      return did
    })
    // Without pipes it needs no more than the idle keepers give up.
    if (what !== 'run() without pipes') t.false(outcomes[0], 'with none free')
    t.true(outcomes[MOST_FREE], `with ${MOST_FREE} free`)
    t.deepEqual(helpersOf(program.pid), helpers)
    program.child.stdin.write('go\n')
    t.deepEqual(await program.exited, { code: 0, signal: null })
  })
}

test(`guard() with 0 to ${MOST_FREE} free descriptors (C83)`, async (t) => {
  const program = limited(t, programOf('limits/guard-each-free', { most: MOST_FREE }))
  await program.next()
  const helpers = helpersOf(program.pid)
  program.child.stdin.write('go\n')
  const results = await program.next()
  const outcomes = results.map(({ free, first, outcome }) => {
    t.is(outcome, 'ended')
    return worked(t, first, `${free} free`)
  })
  t.false(outcomes[0])
  t.true(outcomes[MOST_FREE])
  // Every guard was reaped, and the helper is the one it was.
  await until(() => helpersOf(program.pid).length === 1, 'the end of the guards')
  t.deepEqual(helpersOf(program.pid), helpers)
  program.child.stdin.write('go\n')
  t.deepEqual(await program.exited, { code: 0, signal: null })
})

for (const [what, operation] of Object.entries({
  'the first call': operations['run()'],
  'the first call, of best effort,': "run('echo', ['x'], { containment: 'best-effort' }).then(({ stdout }) => stdout)",
  'the first probe()': `probe().then(({ helper }) => {
    if (helper.problem === undefined) return 'x\\n'
    throw Object.assign(new Error(helper.problem), { errno: -24 })
  })`,
  'the first session': `startSession('sh', ['-c', 'exit 3'])
    .then((session) => { session.stderr.resume(); return session.exited })
    .then(({ exitCode }) => exitCode === 3 ? 'x\\n' : exitCode)`,
  'the first guard()': `(async () => {
    ended ??= (await (await guard(target)).end({ grace: 0 })).outcome
    return ended === 'ended' ? 'x\\n' : ended
  })()`,
  'the first resetHelper()': "(async () => { resetHelper(); return 'x\\n' })()",
  'the first endAll()': "endAll({ scope: 'process' }).then(({ length }) => length === 0 ? 'x\\n' : length)",
})) {
  test(`${what} of a host with 0 to ${FIRST.at(-1)} free descriptors (C83)`, async (t) => {
    const outcomes = []
    for (const free of FIRST) {
      const program = limited(
        t,
        `const operation = () => tried(${operation})\n${CALL}${programOf('limits/first-of-a-host', { free })}`,
      )
      const [first, after, call] = await program.next()
      t.deepEqual(after, { value: 'x\n' })
      t.deepEqual(call, { value: 'x\n' })
      outcomes.push(worked(t, first, `${free} free`))
      await until(() => helpersOf(program.pid).length === 1, 'one helper')
      program.child.stdin.write('go\n')
      t.deepEqual(await program.exited, { code: 0, signal: null })
    }
    t.false(outcomes[0])
    t.true(outcomes.at(-1))
  })
}

test('with none free a helper can be given up, and everything that runs can be ended (C83)', async (t) => {
  const program = limited(t, CALL + programOf('limits/none-free'))
  t.deepEqual(await program.next(), [true, 'ended'])
  t.deepEqual(await program.next(), ['ended'])
  // A new one needs more than the old one has left.
  worked(t, await program.next(), 'after resetHelper()')
  t.deepEqual(await program.next(), { value: 'x\n' })
})

test('a kept call resolves where its host reaches the limit before it exits (C83)', async (t) => {
  const program = limited(t, programOf('limits/kept-at-the-limit'))
  t.deepEqual(await program.next(), ['kept', 'ended'])
})

for (const [how, start] of [
  ['run()', "run('sh', args, { background: 'keep', input })"],
  ['spawn()', "child('sh', args, { background: 'keep' })"],
]) {
  test(`where its keeper reaches the limit a kept command goes on writing: ${how} (C83)`, async (t) => {
    if (!has(t, process.getuid() === 0 ? '' : 'not root, so that the descriptors of a keeper cannot be read')) return
    const through = join(folder(t), 'through')
    const program = limited(
      t,
      `const begin = (args, input, child) => ${start}\n${programOf('limits/kept-command', { through })}`,
    )
    const keeper = stat(await program.next()).ppid
    // It has what it needs so far, and no number that is free.
    const held = descriptors(keeper)
    let limit = 0
    while (held.has(limit)) limit++
    t.is(spawnSync('prlimit', ['--pid', `${keeper}`, `--nofile=${limit}:`]).status, 0)
    program.child.stdin.write('go\n')
    t.is(await program.next(), 'kept')
    await until(() => existsSync(through), 'the end of what was written after the exit')
    program.child.stdin.write('go\n')
    t.is(await program.next(), 'ended')
    t.deepEqual(await program.exited, { code: 0, signal: null })
  })
}
