// C31 and C32: numbers that have become somebody else's, and names that are looked for.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { capabilities } from '../dist/index.js'
import { CLI, keeperOf } from './support/command-line.mjs'
import { argsOf, newWord } from './support/facts.mjs'
import { compiled, fixture, programOf } from './support/fixtures.mjs'
import { orderedHost } from './support/guard.mjs'
import { HOLDFAST, SESSION } from './support/host.mjs'
import { FEW, FEW_NUMBERS, NAMESPACE, NO_FEW_NUMBERS, NO_NAMESPACE, STRANGERS } from './support/namespace.mjs'
import { has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)

const START_SESSION = `const { startSession } = require(${JSON.stringify(SESSION)})`
const OWN_GROUP = JSON.stringify(fixture('own-group.py'))

/** A host in a namespace of its own, with strangers at hand. Undefined, with the reason on the log, where there is none. */
function inNamespace(t, { start = '', namespace = NAMESPACE, rules = [] } = {}) {
  if (!has(t, namespace === FEW_NUMBERS ? NO_FEW_NUMBERS : NO_NAMESPACE)) return undefined
  const filter = rules.length === 0 ? [] : [compiled(t, 'filter'), ...rules, '--']
  if (filter[0] === undefined && rules.length > 0) return undefined
  return orderedHost(t, STRANGERS + start, { command: [...namespace, ...filter, process.execPath] })
}

// ---- C31, number by number
const kernels = {
  'this kernel': { rules: [], held: 'pidfd' },
  'pidfd_open refused': { rules: ['no-pidfd'], held: 'pidfd' },
  'no signal to a group by a pidfd': { rules: ['no-group-signal'], held: 'members' },
  'neither of both': { rules: ['no-pidfd', 'no-group-signal'], held: 'members' },
}
/** What happens when the number is another group's by now. The guard is stopped meanwhile. */
const lateEnds = {
  'the sweep': { act: "process.kill(guardian, 'SIGCONT'); const ended = group.ended", reason: 'exit' },
  'end()': { act: 'const ended = group.end(); wake(guardian)', reason: 'end' },
  "end() with background 'keep'": {
    options: "{ background: 'keep' }",
    act: 'const ended = group.end({ grace: 50 }); wake(guardian)',
    reason: 'end',
  },
  'the loss of its guard': { act: "process.kill(guardian, 'SIGKILL'); const ended = group.ended" },
}

for (const [kernel, { rules, held }] of Object.entries(kernels))
  for (const [end, { options = '{}', act, reason }] of Object.entries(lateEnds))
    test(`the number of a guarded leader has become another group's, and then comes ${end}: ${kernel} (C31)`, async (t) => {
      const host = await inNamespace(t, { rules })
      if (host === undefined) return
      const { report, taken, last } = await host.do(`
        const child = plain('sleep', ['60'], { detached: true, stdio: 'ignore' })
        const group = await guard(child, ${options})
        const [guardian] = facts.guardsOf(process.pid)
        await stop(guardian)
        child.kill('SIGKILL')
        await once(child, 'exit')
        const others = await strangers(child.pid)
        const { pgrp, session } = facts.stat(child.pid)
        ${act}
        return { report: await ended, taken: [pgrp, session].every((id) => id === child.pid), last: await others.leave() }
      `)
      t.true(taken)
      t.is(last, 'unharmed')
      t.deepEqual(host.held(), [held])
      // By members it is not known whose they are.
      if (reason === undefined) t.like(report, { outcome: 'unconfirmed', by: 'host', reason: 'guard-gone' })
      else t.like(report, { outcome: held === 'pidfd' ? 'ended' : 'refused', by: 'guard', reason, survivors: [] })
    })

/** A host in a host, so that somebody is there after its death. */
const INNER = `
  setTimeout(() => process.exit(), 60_000).unref()
  const child = require('node:child_process').spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
  child.on('exit', () => console.log('exited'))
  require(${JSON.stringify(HOLDFAST)}).guard(child).then(() => console.log(child.pid))
  process.stdin.resume()
`

for (const [kernel, { rules }] of Object.entries(kernels))
  test(`the number of a guarded leader has become another group's, and then the host dies: ${kernel} (C31)`, async (t) => {
    const host = await inNamespace(t, { rules })
    if (host === undefined) return
    const { taken, last } = await host.do(programOf('wrong-process/host-dies', { INNER }))
    t.true(taken)
    t.is(last, 'unharmed')
  })

test('the number of a group that is held by a pin is nobody else’s (C31)', async (t) => {
  const start = `
    const child = plain(PYTHON, [${OWN_GROUP}], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
  `
  const host = await inNamespace(t, { start, namespace: FEW_NUMBERS })
  if (host === undefined) return
  const { leader, numbers, report, last } = await host.do(programOf('wrong-process/held-by-pin'))
  t.deepEqual(host.held(), ['pin'])
  // Every number that is free was given out several times.
  t.true(numbers.length > (FEW - 300) / 2, `${numbers.length}`)
  t.false(numbers.includes(leader))
  t.like(report, { outcome: 'ended', by: 'guard', reason: 'exit' })
  t.is(last, 'unharmed')
})

test('the number of a call has become another group’s: kill() is false, end() signals nothing (C31)', async (t) => {
  const host = await inNamespace(t, { start: START_SESSION })
  if (host === undefined) return
  const { answers, outcomes, last } = await host.do(programOf('wrong-process/after-the-exit'))
  t.deepEqual(answers, Array(4 * 4 * 2).fill(false))
  t.deepEqual(outcomes, Array(4).fill('ended'))
  t.is(last, 'unharmed')
})

test('the number of a lost keeper, and of a lost helper, has become another group’s (C31)', async (t) => {
  const host = await inNamespace(t)
  if (host === undefined) return
  const { by, stdout, last } = await host.do(programOf('wrong-process/lost-keeper'))
  t.is(by, 'helper')
  t.is(stdout, 'next\n')
  t.deepEqual(last, ['unharmed', 'unharmed'])
})

// ---- C31, many times
/** Each starts something, has it ended in its way, and gives its numbers. */
const ROUNDS = programOf('wrong-process/rounds')

test('calls, guards and sessions among strangers who have their numbers next: nobody of those is signalled (C31)', async (t) => {
  const outside = readFileSync('/proc/sys/kernel/pid_max', 'utf8')
  const host = await inNamespace(t, { start: `${START_SESSION}\n${ROUNDS}`, namespace: FEW_NUMBERS })
  if (host === undefined) return
  const ENOUGH = process.env.HOLDFAST_LONG ? 2000 : 100
  const { count, reused, answers, seen, last } = await host.do(
    programOf('wrong-process/among-strangers', { enough: ENOUGH }),
  )
  t.log(`${count} rounds, ${reused} numbers that strangers had after them, ${seen} strangers`)
  t.true(reused >= ENOUGH)
  t.true(answers.every((answer) => answer === false))
  t.is(last, 'unharmed')
  t.is(readFileSync('/proc/sys/kernel/pid_max', 'utf8'), outside)
})

// ---- C32
/** A word that is on no command line but those that it is given to. */
const WORD = "'w' + process.hrtime.bigint().toString(36)"
const NO_PKILL = (() => {
  const { error } = spawnSync('pkill', ['--version'])
  return error === undefined ? '' : `there is no pkill: ${error.code}`
})()

/** The same where there is a pkill. */
const withPkill = (t, start) => (has(t, NO_PKILL) ? inNamespace(t, { start }) : undefined)

const staff = 'const [helper] = facts.helpersOf(process.pid); const staff = [helper, ...facts.keepersOf(helper)]'

test('pkill -f with a word of its own command line: helper and keepers do not match (C32)', async (t) => {
  const host = await withPkill(t)
  if (host === undefined) return
  for (const signal of ['TERM', 'KILL']) {
    const { stdout, signalCode, report, lost } = await host.do(`
      const word = ${WORD}
      const settled = 'until read -r name < /proc/$!/comm && [ "$name" = sleep ]; do :; done'
      const script = 'setsid sleep 60 & ' + settled + '; echo up; read _; pkill -${signal} -f "$0"; echo "$?"; sleep 60'
      const child = spawn('bash', ['-c', script, word])
      let stdout = ''
      child.stdout.on('data', (text) => (stdout += text))
      await once(child.stdout, 'data')
      ${staff}
      child.stdin.write('\\n')
      const report = await child.ended
      return { stdout, signalCode: child.signalCode, report, lost: staff.filter((pid) => !facts.isAlive(pid)) }
    `)
    // It has found the command itself.
    t.is(signalCode, `SIG${signal}`)
    t.is(stdout, 'up\n')
    t.like(report, { outcome: 'ended', by: 'keeper', reason: 'exit' })
    // pkill itself may be there still.
    t.true(report.leftovers.some(({ name }) => name === 'sleep'))
    t.deepEqual(lost, [])
  }
})

test('pkill node and pkill -f node: helper and keepers do not match (C32)', async (t) => {
  const host = await withPkill(t, "process.title = 'host'")
  if (host === undefined) return
  for (const options of ['-TERM', '-KILL', '-KILL -f']) {
    const { stdout, report, lost } = await host.do(`
      const script = '"$0" -e "setTimeout(() => console.log(1), 60000); console.log(0)" & read _; pkill ${options} node; wait $!; echo "$?"'
      const child = spawn('bash', ['-c', script.replace('$0', process.execPath)])
      let stdout = ''
      child.stdout.on('data', (text) => (stdout += text))
      await once(child.stdout, 'data')
      ${staff}
      child.stdin.write('\\n')
      const report = await child.ended
      return { stdout, report, lost: staff.filter((pid) => !facts.isAlive(pid)) }
    `)
    // With -f the shell matches, too.
    t.is(stdout, { '-TERM': '0\n143\n', '-KILL': '0\n137\n', '-KILL -f': '0\n' }[options], options)
    t.like(report, { outcome: 'ended', by: 'keeper', reason: 'exit' })
    t.deepEqual(lost, [])
  }
})

test('pkill node takes its host along: the call is ended by its keeper (C32)', async (t) => {
  const host = await withPkill(t, "process.title = 'host'")
  if (host === undefined) return
  const inner = `
    const script = 'sleep 60 & setsid sleep 60 & (setsid sleep 60 &); echo up; read _; pkill -KILL node; sleep 60'
    const options = { stdio: ['inherit', 'inherit', 'inherit'], grace: 100 }
    require(${JSON.stringify(HOLDFAST)}).spawn('bash', ['-c', script], options)
  `
  const left = await host.do(`
    const inner = plain(process.execPath, ['-e', ${JSON.stringify(inner)}], { stdio: ['pipe', 'pipe', 'inherit'] })
    await once(inner.stdout, 'data')
    ${staff.replace('process.pid', 'inner.pid')}
    inner.stdin.write('\\n')
    const [, signal] = await once(inner, 'exit')
    if (signal !== 'SIGKILL') throw new Error(signal)
    await facts.gone(staff)
    return facts.marked(process.env.MARK).map(facts.comm).filter((name) => name === 'sleep' || name === 'bash')
  `)
  t.deepEqual(left, [])
})

test('a command that kills its keeper is ended all the same, by the helper (C32)', async (t) => {
  const host = await inNamespace(t)
  if (host === undefined) return
  const { report, next, left } = await host.do(`
    const script = 'sleep 60 & setsid sleep 60 & (setsid sleep 60 &); kill -KILL $PPID; sleep 60'
    const child = spawn('bash', ['-c', script])
    const report = await child.ended
    const { stdout } = await run('echo', ['next'])
    return { report, next: stdout, left: facts.marked(process.env.MARK).map(facts.comm).filter((name) => name === 'sleep') }
  `)
  t.like(report, { outcome: 'ended', mechanism: 'subreaper', by: 'helper', reason: 'keeper-gone' })
  t.is(report.notice, undefined)
  t.deepEqual(left, [])
  t.is(next, 'next\n')
})

/** A shell that leads a guarded group, with a process beside it. */
const GUARDED = `
  const word = ${WORD}
  const lead = async (script) => {
    const child = plain('bash', ['-c', 'sleep 60 & echo up; read _; ' + script, word], {
      detached: true, stdio: ['pipe', 'pipe', 'ignore'],
    })
    await once(child.stdout, 'data')
    const group = await guard(child)
    return { child, group, guardian: facts.guardsOf(process.pid)[0] }
  }
`

test('pkill in a guarded group: the guard does not match (C32)', async (t) => {
  const host = await withPkill(t, `process.title = 'host'\n${GUARDED}`)
  if (host === undefined) return
  for (const pkill of ['pkill -KILL -f "$0"', 'pkill -KILL bash', 'pkill -KILL -f bash']) {
    const report = await host.do(`
      const { child, group } = await lead(${JSON.stringify(pkill)})
      child.stdin.write('\\n')
      return group.ended
    `)
    t.like(report, { outcome: 'ended', by: 'guard', reason: 'exit' }, pkill)
    // pkill itself, unless it has ended by then.
    t.true(report.leftoverCount <= 1)
  }
  const [lost] = await host.do(programOf('wrong-process/pkill-by-name'))
  t.deepEqual(lost, [])
  // One for each: none was replaced.
  t.is(host.held().length, 4)
})

test('a guarded group that kills its guard is guarded by another one (C32)', async (t) => {
  const host = await withPkill(t, GUARDED)
  if (host === undefined) return
  for (const end of ['group.end()', "process.kill(child.pid, 'SIGKILL'); return group.ended"]) {
    await host.do("globalThis.guarded = await lead('pkill -KILL holdfast-helper; echo; read _')")
    const before = host.held().length
    await host.do("guarded.child.stdin.write('\\n'); await once(guarded.child.stdout, 'data')")
    await host.nowHeld(before + 1)
    const report = await host.do(`const { child, group } = guarded; return ${end}`.replace('return process', 'process'))
    t.like(report, { outcome: 'ended', by: 'guard', leftoverCount: 1 })
  }
})

// The keeper of both is a fork that keeps the command line. `pkill -KILL -f` takes the two of them at once, and what has
// left the group lives on.
for (const [title, command] of Object.entries({
  'a starter': [capabilities().helper.path, '__session-starter', '--'],
  'holdfast run': [process.execPath, CLI, 'run', '--'],
}))
  test(`the keeper of ${title} does not match a word of its command's line (C32)`, async (t) => {
    const word = newWord()
    const [file, ...args] = [...command, 'bash', '-c', 'echo up; read _', word]
    const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'inherit'], env })
    const exited = once(child, 'exit')
    t.teardown(async () => {
      child.stdin.end()
      await exited
    })
    await once(child.stdout, 'data')
    const keeper = await keeperOf(child.pid)
    t.false(argsOf(keeper).includes(word))
  })
