// The limit on open files binds in any step of a call: the error says so, nothing ran, the helper is kept, and the next
// call that has room works.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { descriptors, helpersOf, leftByUs, newMark, noneMarked, stat, until } from './support/facts.mjs'
import { SESSION, startHost } from './support/host.mjs'
import { folder } from './support/suite.mjs'

const MOST_FREE = 12
/** Reactor and helper have to be started as well. */
const FIRST = [0, 1, 2, 3, 4, 6, 8, 11, 14, 24]
const LIMITED = ['prlimit', '--nofile=200', process.execPath]

test.after.always('nothing is left', (t) => t.deepEqual(leftByUs(), []))

/** `leave(n)` leaves n descriptors free, `room()` gives up all that it took. `tried()` is what came of a promise. */
const LIMITS = `
  const fs = require('node:fs')
  const taken = []
  const room = () => { while (taken.length > 0) fs.closeSync(taken.pop()) }
  const take = () => {
    try {
      for (;;) taken.push(fs.openSync('/dev/null'))
    } catch (error) {
      if (error.code !== 'EMFILE') throw error
    }
  }
  const leave = (free) => {
    room()
    take()
    for (let count = 0; count < free; count++) fs.closeSync(taken.pop())
  }
  const tried = (promise) => promise.then(
    (value) => ({ value }),
    ({ code, errno, ran, step, message }) => ({ code, errno, ran, step, message }),
  )
  const told = async (count) => new Promise((resolve) => process.stdin.once('data', resolve))
  // Nothing that is loaded at its first use is to be loaded at the limit.
  const plain = require('node:child_process').spawn
  const { guard, probe, resetHelper } = holdfast
  const { startSession } = require(${JSON.stringify(SESSION)})
`

function host(t, body) {
  const mark = newMark()
  const started = startHost(LIMITS + body, { command: LIMITED, env: { MARK: mark } })
  t.teardown(async () => {
    started.kill()
    await noneMarked(mark)
  })
  return started
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
for (const [what, operation] of Object.entries(operations)) {
  test(`C83 ${what} with 0 to ${MOST_FREE} free descriptors`, async (t) => {
    const program = host(
      t,
      `
      const operation = () => tried(${operation})
      report(await operation())
      await told()
      const results = []
      for (let free = 0; free <= ${MOST_FREE}; free++) {
        leave(free)
        const first = await operation()
        const second = await operation()
        room()
        results.push({ free, first, second, after: await operation() })
      }
      report(results)
      await told()
      process.stdin.destroy()
      `,
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

test(`C83 guard() with 0 to ${MOST_FREE} free descriptors`, async (t) => {
  const program = host(
    t,
    `
    report(await tried(run('true')))
    await told()
    const children = []
    const child = () => {
      const made = plain('sleep', ['50'], { detached: true, stdio: 'ignore' })
      children.push(made)
      return made
    }
    const results = []
    for (let free = 0; free <= ${MOST_FREE}; free++) {
      const target = child()
      leave(free)
      const first = await tried(guard(target))
      room()
      const guarded = first.value ?? (await guard(target))
      const { outcome } = await guarded.end({ grace: 0 })
      results.push({ free, first: { ...first, value: first.value && 'guarded' }, outcome })
    }
    report(results)
    await told()
    process.stdin.destroy()
    `,
  )
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
  test(`C83 ${what} of a host with 0 to ${FIRST.at(-1)} free descriptors`, async (t) => {
    const outcomes = []
    for (const free of FIRST) {
      const program = host(
        t,
        `
        const target = plain('sleep', ['50'], { detached: true, stdio: 'ignore' })
        let ended
        const operation = () => tried(${operation})
        leave(${free})
        const first = await operation()
        room()
        report([first, await operation(), await tried(${operations['run()']})])
        target.kill('SIGKILL')
        await told()
        process.stdin.destroy()
        `,
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

test('C83 with none free a helper can be given up, and everything that runs can be ended', async (t) => {
  const program = host(
    t,
    `
    const up = (child) => new Promise((resolve) => child.stdout.once('data', () => resolve(child)))
    const start = () => up(spawn('sh', ['-c', 'setsid sleep 50 & echo up; exec sleep 50']))
    const [first, second] = [await start(), await start()]
    leave(0)
    report([first.kill('SIGTERM'), (await first.ended).outcome])
    report((await endAll({ grace: 0, scope: 'process' })).map(({ outcome }) => outcome))
    resetHelper()
    report(await tried(${operations['run()']}))
    room()
    report(await tried(${operations['run()']}))
    `,
  )
  t.deepEqual(await program.next(), [true, 'ended'])
  t.deepEqual(await program.next(), ['ended'])
  // A new one needs more than the old one has left.
  worked(t, await program.next(), 'after resetHelper()')
  t.deepEqual(await program.next(), { value: 'x\n' })
})

test('C83 a kept call resolves where its host reaches the limit before it exits', async (t) => {
  const program = host(
    t,
    `
    const input = new (require('node:stream').Readable)({ read() {} })
    // Also what is given up on the way is not free when it exits.
    const fill = () => {
      take()
      filling = setImmediate(fill)
    }
    let filling
    const onOutput = () => {
      fill()
      input.push('go\\n')
      input.push(null)
    }
    const { report: { outcome }, kept } = await run('sh', ['-c', 'sleep 50 & echo up; read line'],
      { background: 'keep', input, onOutput })
    clearImmediate(filling)
    report([outcome, (await kept.end({ grace: 0 })).outcome])
    `,
  )
  t.deepEqual(await program.next(), ['kept', 'ended'])
})

for (const [how, start] of [
  ['run()', "run('sh', args, { background: 'keep', input })"],
  ['spawn()', "child('sh', args, { background: 'keep' })"],
]) {
  test(`C83 where its keeper reaches the limit a kept command goes on writing: ${how}`, async (t) => {
    if (process.getuid() !== 0) {
      t.log('skipped: not root, so that the descriptors of a keeper cannot be read')
      t.pass()
      return
    }
    const through = join(folder(t), 'through')
    const program = host(
      t,
      `
      const script = 'read line; (yes | head -c 2000000 && echo through > "$0"; exec sleep 50) &'
      const args = ['-c', script, ${JSON.stringify(through)}]
      const input = new (require('node:stream').Readable)({ read() {} })
      const child = (file, args, options) => {
        const child = spawn(file, args, options)
        input.pipe(child.stdin)
        return new Promise((resolve) => child.once('close', () => resolve({ kept: child })))
      }
      const started = ${start}
      report(running()[0].pid)
      await told()
      input.push('go\\n')
      input.push(null)
      const { kept } = await started
      report('kept')
      await told()
      report((await kept.end({ grace: 0 })).outcome)
      process.stdin.destroy()
      `,
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
