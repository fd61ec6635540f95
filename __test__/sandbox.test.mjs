// C52: hosts in sandboxes that refuse system calls, and with no usable /proc.
import { spawnSync } from 'node:child_process'
import { closeSync, constants, copyFileSync, openSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { notices } from '../dist/index.js'
import {
  argsOf,
  childrenOf,
  comm,
  descendantsOf,
  descriptors,
  gone,
  helpersOf,
  keepersOf,
  marked,
  newMark,
  noneMarked,
  stat,
  statusOf,
  until,
} from './support/facts.mjs'
import { compiled, fixture, loadNative, PYTHON, programOf, SHARED } from './support/fixtures.mjs'
import { guardHost, orderedHost, ownGroup, users } from './support/guard.mjs'
import { SESSION } from './support/host.mjs'
import { FOREIGN, NO_NAMESPACE, STRANGERS } from './support/namespace.mjs'
import { ACK, belowStarter, HELPER, starter, starterToEnd } from './support/session.mjs'
import { folder, has, killMarked, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { host } = suite(test)
const IMPORT_FACTS = `const facts = await import(${JSON.stringify(import.meta.resolve('./support/facts.mjs'))})\n`

const STRICT = ['no-pidfd', 'no-close-range', 'no-memfd', 'no-clone3']
const sandboxes = {
  'pidfd_open is EPERM': { rules: ['no-pidfd'] },
  'close_range is EPERM': { rules: ['no-close-range'] },
  'memfd_create is EPERM': { rules: ['no-memfd'] },
  'clone3 is ENOSYS': { rules: ['no-clone3'] },
  'all four of them': { rules: STRICT },
  'all four, and pidfd_send_signal is EPERM': { rules: [...STRICT, 'no-pidfd-signal'] },
  'clone3 becomes EPERM before the first call': { before: 'holdfast.resetHelper()' },
  'clone3 becomes EPERM after a call': {
    before: "await run('true', { containment: 'best-effort' }); holdfast.resetHelper()",
  },
  'no process shares memory': { rules: ['no-shared-clone'] },
  'as under qemu-user': { rules: ['no-shared-clone', 'no-subreaper'], mechanism: 'group' },
  'no subreaper': { rules: ['no-subreaper'], mechanism: 'group' },
  'no subreaper, and all four': { rules: ['no-subreaper', ...STRICT], mechanism: 'group' },
}

/** The executable that filters; undefined, with the reason on the log, where it cannot be. */
function filterFor(t) {
  const filter = compiled(t, 'filter')
  if (filter === undefined) return undefined
  const { status, stderr } = spawnSync(filter, ['no-memfd', '--', 'true'], { encoding: 'utf8' })
  return has(t, status === 0 ? '' : `no seccomp filter can be installed: ${stderr.trim()}`) ? filter : undefined
}

/** For the text of a host: how many filters its main thread has. */
const FILTERS = "require('node:fs').readFileSync('/proc/thread-self/status', 'utf8').match(/^Seccomp_filters:.*/m)?.[0]"

/** What a host needs to be in it: { command, before }. Undefined, with the reason on the log, where it cannot be. */
function enter(t, { rules, before: first }) {
  const filter = filterFor(t)
  if (filter === undefined) return undefined
  if (rules !== undefined) return { command: [filter, ...rules, '--', process.execPath], before: '' }
  const library = compiled(t, 'deny-clone3', SHARED)
  const load = `const filters = ${FILTERS}; ${loadNative(library)}; if (filters === ${FILTERS}) throw new Error('no filter')`
  return { command: [process.execPath], before: `${first}\n${load}\n` }
}

const QUIET = { stdio: ['pipe', 'pipe', 'ignore'] }
/** Comes before the sandbox: where no thread can be started, neither can a module be read. */
const after = (first, { before, ...entered }) => ({ ...entered, before: first + before })

// ---- the same results
/**
 * A bit of everything that stays in its group; what may differ from run to run is left out. Names are not known where
 * nothing can be read, nor can a shell there tell what its children have become.
 */
const workload = (hasProc) => programOf('sandbox/workload', { hasProc })

const ordinary = new Map()
/** What the workload comes to in a host of the ordinary kind. */
async function expected(t, hasProc, { mechanism = 'subreaper', outcome = 'ended' } = {}) {
  if (!ordinary.has(hasProc)) ordinary.set(hasProc, host(t, workload(hasProc)).next())
  const results = await ordinary.get(hasProc)
  // So that a workload that fails everywhere in the same way is no success.
  t.like(results[0], { exitCode: 7, stdout: 'done\n', outcome: 'ended', mechanism: 'subreaper', count: 2 })
  t.like(results[1], { signal: 'SIGKILL', timedOut: true, reason: 'timeout', stderr: 'deaf\n' })
  t.like(results[2], { signal: 'SIGTERM', timedOut: true, reason: 'timeout' })
  t.like(results[3], { signal: 'SIGTERM', aborted: true, reason: 'abort' })
  t.like(results[5], { stdout: 'through' })
  t.deepEqual(
    results.slice(6, 11).map(({ code, step, ran }) => [code, step, ran]),
    [
      ['ENOENT', 'program', false],
      ['ENOENT', 'program', false],
      ['EACCES', 'program', false],
      ['EACCES', 'program', false],
      ['ENOENT', 'cwd', false],
    ],
  )
  t.deepEqual(results[11], ['ended', 'end', 'SIGTERM'])
  return results.map((result, at) => {
    if (at === 11) return [outcome, ...result.slice(1)]
    if (result.mechanism === undefined) return result
    // Who cannot be seen is not counted, either.
    const unseen = outcome === 'ended' ? {} : { notices: [notices.end], ...('count' in result && { count: 0 }) }
    return { ...result, mechanism, outcome, ...unseen }
  })
}

for (const [sandbox, rule] of Object.entries(sandboxes)) {
  test(`${sandbox}: the same results (C52)`, async (t) => {
    const entered = enter(t, rule)
    if (entered === undefined) return
    t.deepEqual(await host(t, workload(true), entered).next(), await expected(t, true, rule))
  })

  test(`${sandbox}: the host is killed (C52)`, async (t) => {
    const entered = enter(t, rule)
    if (entered === undefined) return
    const own = newMark()
    const escapee = rule.mechanism === 'group' ? '' : '(setsid sleep 50 &);'
    const script = `${escapee} setsid sleep 50 & sleep 50 & (trap "" TERM; sleep 50 & wait; wait) & echo up; wait`
    const body = `
      const child = spawn('bash', ['-c', ${JSON.stringify(script)}], { grace: 200 })
      child.stdout.once('data', () => report(child.pid))
    `
    const program = host(t, body, { ...entered, env: { MARK: own } })
    await program.next()
    const count = rule.mechanism === 'group' ? 4 : 5
    const isThere = () => marked(own).filter((pid) => comm(pid) === 'sleep').length === count - 1
    await until(isThere, 'all of it')
    const staff = helpersOf(program.pid).flatMap((helper) => [helper, ...keepersOf(helper)])
    program.kill()
    await program.exited
    await noneMarked(own)
    await gone(staff)
    t.pass()
  })
}

// ---- with best effort
const HELPER_FOLDER = dirname(HELPER)
/** As the platform package's, without the helper. */
function withoutHelper(t) {
  const at = folder(t)
  for (const name of ['holdfast.linux-x64-gnu.node', 'package.json'])
    copyFileSync(join(HELPER_FOLDER, name), join(at, name))
  return { HOLDFAST_BINARY_PATH: at }
}

const EFFORT = programOf('sandbox/best-effort')
const failed = { code: 'ENOENT', step: 'program', ran: false }

for (const [sandbox, rule] of Object.entries(sandboxes)) {
  const { mechanism = 'subreaper' } = rule
  test(`${sandbox}: best effort is contained where there is a helper (C52)`, async (t) => {
    const entered = enter(t, rule)
    if (entered === undefined) return
    const { results } = await host(t, EFFORT, after(IMPORT_FACTS, entered)).next()
    t.deepEqual(results, [
      { exitCode: 7, signal: null, stdout: 'done\n', timedOut: false, notices: [], outcome: 'ended', mechanism },
      { exitCode: null, signal: 'SIGTERM', stdout: '', timedOut: true, notices: [], outcome: 'ended', mechanism },
      failed,
    ])
  })

  test(`${sandbox}: best effort without a helper (C52)`, async (t) => {
    const entered = enter(t, rule)
    if (entered === undefined) return
    const seen = await host(t, EFFORT, { ...after(IMPORT_FACTS, entered), env: withoutHelper(t) }).next()
    const uncontained = { notices: [notices.helper], outcome: 'unconfirmed', mechanism: 'none' }
    t.deepEqual(seen.results, [
      { exitCode: 7, signal: null, stdout: 'done\n', timedOut: false, ...uncontained },
      { exitCode: null, signal: 'SIGTERM', stdout: '', timedOut: true, ...uncontained },
      failed,
    ])
    t.deepEqual(seen.zombies, [])
  })
}

// ---- clone3 and EPERM
test('clone3 is EPERM before there is a reactor: one clear error, nothing ran (C52)', async (t) => {
  const entered = enter(t, { before: '' })
  if (entered === undefined) return
  const program = host(
    t,
    `
    const facts = ({ code, step, ran, message }) => ({ code, step, ran, message })
    for (const containment of ['required', 'best-effort']) report(await run('true', { containment }).catch(facts))
    const { helper } = await holdfast.probe()
    report(helper.problem)
    `,
    entered,
  )
  for (let call = 0; call < 2; call++) {
    const { message, ...error } = await program.next()
    t.deepEqual(error, { code: 'ERR_HOLDFAST_NO_HELPER', step: 'helper', ran: false })
    t.regex(message, /starting the reactor: .*not permitted/)
  }
  t.regex(await program.next(), /starting the reactor/)
})

test('clone3 is EPERM: the helper that was forked is as any other (C52)', async (t) => {
  const entered = enter(t, { before: 'holdfast.resetHelper()' })
  if (entered === undefined) return
  const seen = []
  for (const { command, before } of [{ command: [process.execPath], before: '' }, entered]) {
    // What the host has open for itself, everybody or nobody is not to be found in its helper.
    const body = "const open = fs.openSync('/dev/zero'); await run('true'); report('ran'); process.stdin.resume()"
    const program = host(t, `const fs = require('node:fs'); ${body}`, { command, before })
    await program.next()
    const [helper] = helpersOf(program.pid)
    const kinds = [...descriptors(helper)].map(([number, what]) => `${number} ${what.replace(/:.*/, '')}`).sort()
    const { session, pgrp } = stat(helper)
    const lines = ['SigIgn', 'SigBlk', 'SigCgt', 'Uid', 'Gid'].map((line) => statusOf(helper, line))
    seen.push({ kinds, lines, args: argsOf(helper), leads: session === helper && pgrp === helper })
    program.kill()
  }
  t.true(seen[0].kinds.length > 3)
  t.deepEqual(seen[1], seen[0])
})

// ---- a pin that has to be forked
for (const [sandbox, rule] of Object.entries({
  'no process shares memory': sandboxes['no process shares memory'],
  'as under qemu-user': sandboxes['as under qemu-user'],
  'no vfork(2)': { rules: ['no-vfork'] },
}))
  test(`${sandbox}: a kept call holds its group until it is over (C52)`, async (t) => {
    const entered = enter(t, rule)
    if (entered === undefined) return
    const { mechanism = 'subreaper' } = rule
    const body = programOf('sandbox/kept-group')
    const program = host(t, body, after(IMPORT_FACTS, entered))
    for (let call = 0; call < 2; call++)
      t.deepEqual(await program.next(), [[true, true], 'ended', mechanism, false, true])
  })

// ---- no signal at the keeper's death
test('PR_SET_PDEATHSIG is EPERM: the start is refused, and the message names it (C52)', async (t) => {
  const entered = enter(t, { rules: ['no-parent-death'] })
  if (entered === undefined) return
  const body = `
    const facts = ({ code, step, ran, message }) => ({ code, step, ran, message })
    report(await run('true').catch(facts))
    report(await run('true', { background: 'keep' }).catch(facts))
  `
  const program = host(t, body, entered)
  for (let call = 0; call < 2; call++) {
    const { message, ...error } = await program.next()
    t.deepEqual(error, { code: 'EPERM', step: 'helper', ran: false })
    t.regex(message, /refuses prctl\(PR_SET_PDEATHSIG\)/)
  }
  const typed = spawnSync(entered.command[0], ['no-parent-death', '--', HELPER, '__run', 'true'], { encoding: 'utf8' })
  t.deepEqual(
    [typed.status, typed.stderr],
    [125, "holdfast: cannot run 'true': parent-death signal: Operation not permitted (os error 1)\n"],
  )
})

// ---- mechanism 'group'
const GROUP = sandboxes['no subreaper']
const SETTLED = 'until read -r name < /proc/$!/comm && [ "$name" = sleep ]; do :; done'
/** Prints the pid of a process that has left the session, and then loses its parent. It holds stdout. */
const ESCAPE = `(setsid sleep 50 & ${SETTLED}; echo $!)`

const escapes = {
  'the exit': { script: `sleep 50 & ${ESCAPE}`, reason: 'exit' },
  'a timeout': { script: `${ESCAPE}; exec sleep 50`, options: { timeout: 400 }, reason: 'timeout' },
  'end()': { script: `${ESCAPE}; echo up; exec sleep 50`, act: 'await child.end()', reason: 'end' },
}

for (const [end, { script, options = {}, act = '', reason }] of Object.entries(escapes))
  test(`no subreaper: an orphan that has left the group is not seen by ${end}, lives on, and holds nobody up (C52)`, async (t) => {
    const entered = enter(t, GROUP)
    if (entered === undefined) return
    const own = newMark()
    const body = `const act = async (child) => { ${act} }\n${programOf('sandbox/orphan', { script, options, isDone: act === '' })}`
    const program = host(t, body, { ...entered, env: { MARK: own } })
    const [orphan, ended, events] = await program.next()
    t.like(ended, { outcome: 'ended', mechanism: 'group', by: 'keeper', reason, survivors: [] })
    t.is(ended.notice, undefined)
    t.deepEqual(events, ['exit', 'close', 'ended'])
    t.deepEqual(await program.exited, { code: 0, signal: null })
    t.deepEqual(marked(own), [orphan])
    killMarked(orphan, own)
    await noneMarked(own)
  })

test('no subreaper: an orphan in the group is seen, ended, and named (C52)', async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const body = `
    const script = '(sleep 50 & ${SETTLED}; echo $!)'
    const { stdout, report: ended } = await run('bash', ['-c', script])
    report([Number(stdout), ended, facts.isAlive(Number(stdout))])
  `
  const [orphan, ended, isAlive] = await host(t, body, after(IMPORT_FACTS, entered)).next()
  t.like(ended, { outcome: 'ended', mechanism: 'group', leftoverCount: 1, leftovers: [{ pid: orphan, name: 'sleep' }] })
  t.false(isAlive)
})

test('no subreaper: what has left the group and hangs on it by its parents is ended (C52)', async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const body = programOf('sandbox/left-by-parents')
  const program = host(t, body, after(IMPORT_FACTS, entered))
  t.deepEqual(await program.next(), ['ended', 'group', 'end', []])
  t.deepEqual(await program.next(), ['ended', 'group', 'timeout', []])
})

// Nobody tells the keeper of the end of an orphan, and it does not look before the time is up (core/src/keeper.rs).
test('no subreaper: end() comes back when all are gone, and not when the grace time is over (C52)', async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const body = programOf('sandbox/slow-orphan')
  const [outcome, duration] = await host(t, body, entered).next()
  t.is(outcome, 'ended')
  t.true(duration < 4000, `${duration} ms`)
})

test('no subreaper: what has left the group is held from the beginning of the end, though its parent dies of the first signal (C80)', async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const body = `
    const deaf = 'trap "" TERM; echo $$; while :; do sleep 0.1; done'
    const child = spawn('bash', ['-c', 'setsid bash -c "$0" & sleep 50', deaf])
    const [text] = await require('node:events').once(child.stdout, 'data')
    const { outcome, mechanism } = await child.end({ grace: 200 })
    report([outcome, mechanism, facts.isAlive(Number(text))])
  `
  const program = host(t, body, after(IMPORT_FACTS, entered))
  t.deepEqual(await program.next(), ['ended', 'group', false])
})

test("no subreaper: background 'keep' runs on until end() (C52)", async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const body = `
    const kept = await run('bash', ['-c', 'sleep 50 & ${SETTLED}; echo $!'], { background: 'keep' })
    const pid = Number(kept.stdout)
    const runs = facts.isAlive(pid)
    const ended = await running()[0].end()
    report([kept.report.outcome, kept.report.mechanism, runs, ended, facts.isAlive(pid)])
  `
  const [outcome, mechanism, runs, ended, isAlive] = await host(t, body, after(IMPORT_FACTS, entered)).next()
  t.deepEqual([outcome, mechanism, runs, isAlive], ['kept', 'group', true, false])
  t.like(ended, { outcome: 'ended', mechanism: 'group', reason: 'end', leftoverCount: 1 })
})

// The same: of a kept call without anybody in its group it is not learned that it is over.
test("no subreaper: a call of background 'keep' is over when its last process has left (C52)", async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const body = `
    const child = spawn('bash', ['-c', '(read -r _ <&3) & exit 0'], { background: 'keep', stdio: ['ignore', 'ignore', 'ignore', 'pipe'] })
    await new Promise((resolve) => child.once('exit', resolve))
    child.stdio[3].write('\\n')
    const late = new Promise((resolve) => setTimeout(resolve, 3000, 'runs on'))
    report(await Promise.race([late, child.ended.then(({ outcome }) => outcome)]))
  `
  t.is(await host(t, body, entered).next(), 'ended')
})

test('no subreaper: a keeper that is killed leaves what the kernel does not end with it, and that is said (C52)', async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const own = newMark()
  const body = `
    const child = spawn('bash', ['-c', 'sleep 50 & echo $!; exec sleep 50'])
    const [text] = await require('node:events').once(child.stdout, 'data')
    const other = Number(text)
    process.kill(facts.stat(child.pid).ppid, 'SIGKILL')
    report([child.pid, other, await child.ended])
  `
  const program = host(t, body, { ...after(IMPORT_FACTS, entered), env: { MARK: own } })
  const [first, other, ended] = await program.next()
  t.like(ended, {
    outcome: 'unconfirmed',
    mechanism: 'group',
    by: 'helper',
    reason: 'keeper-gone',
    notice: notices.end,
  })
  await gone([first])
  await program.exited
  t.deepEqual(marked(own), [other])
  killMarked(other, own)
  await noneMarked(own)
})

// It starts a helper and nothing more, so that it is not told whether there are subreapers (src/native/capabilities.ts).
test('no subreaper: probe() says so (C52)', async (t) => {
  const entered = enter(t, GROUP)
  if (entered === undefined) return
  const { mechanism, hostDeath, escapees, proof, helper } = await host(
    t,
    'report(await holdfast.probe())',
    entered,
  ).next()
  t.like(helper, { probed: true, problem: undefined })
  t.deepEqual([mechanism, hostDeath, escapees, proof], ['group', 'group', 'not-seen', 'process-table'])
})

// ---- guards
/** By each the group is ended. What is left of the guard itself in its host is guard-held.test.mjs's. */
const guardEnds = {
  'end()': { act: 'return group.end()', reason: 'end' },
  'the exit of its leader': { act: "process.kill(child.pid, 'SIGKILL'); return group.ended", reason: 'exit' },
  'SIGKILL of the host': {},
}

for (const [sandbox, rule] of Object.entries(sandboxes)) {
  // There a guard has no way to signal, or to ask.
  if (rule.rules?.includes('no-pidfd-signal')) continue
  const forms = { 'another session': users['child_process.spawn'], "the host's session": ownGroup }
  for (const [session, form] of Object.entries(forms))
    test(`${sandbox}: a guarded group of ${session} is ended by every end (C52)`, async (t) => {
      for (const { act, reason } of Object.values(guardEnds)) {
        const entered = enter(t, rule)
        if (entered === undefined) return
        const more = { command: entered.command }
        const guarded = await guardHost(t, { ...form, start: entered.before + form.start }, more)
        if (act === undefined) guarded.kill()
        else t.like(await guarded.do(act), { outcome: 'ended', mechanism: 'group', by: 'guard', reason, survivors: [] })
        await gone([...guarded.members, guarded.guard])
      }
    })
}

// It takes hold by members, says that it is ready, and can signal none of them (core/src/guard.rs).
test('pidfd_send_signal is EPERM: a group of another session is refused, and lives on (C52)', async (t) => {
  const entered = enter(t, { rules: ['no-pidfd-signal'] })
  if (entered === undefined) return
  const { start, count } = users['child_process.spawn']
  const guarding = await orderedHost(t, start, { command: entered.command })
  await until(() => guarding.others().length === count, 'all of it')
  try {
    const { code, message } = (await guarding.error('await guard(child)')) ?? {}
    t.is(code, 'ERR_HOLDFAST_GUARD')
    t.regex(message, /no way to hold/)
    t.is(guarding.others().length, count)
  } finally {
    for (const pid of guarding.others()) killMarked(pid, guarding.mark)
  }
})

// ---- starters
const REAL_FILTERS = Object.entries(sandboxes).filter(([, { rules }]) => rules !== undefined)
for (const [sandbox, rule] of REAL_FILTERS) {
  test(`${sandbox}: a starter ends what its Engine has left, and exits as it did (C52)`, async (t) => {
    const filter = filterFor(t)
    if (filter === undefined) return
    const command = [filter, ...rule.rules, '--', HELPER, '__session-starter']
    // Without a subreaper nobody sees an orphan that has left the group.
    const orphan = rule.mechanism === 'group' ? 'sleep' : 'setsid sleep'
    const script = `sleep 50 & (${orphan} 50 &); echo ready; exit 7`
    const { code, out, err, mark: one } = await starterToEnd(['--ack', '--', 'bash', '-c', script], { command })
    t.deepEqual([code, out, err], [7, `${ACK}ready\n`, ''])
    t.deepEqual(marked(one), [])

    const missing = await starterToEnd(['--ack', '--', 'no-such-program'], { command })
    t.deepEqual([missing.code, missing.out], [127, ACK])
  })

  test(`${sandbox}: SIGTERM and SIGKILL to a starter, SIGKILL to its Engine (C52)`, async (t) => {
    const filter = filterFor(t)
    if (filter === undefined) return
    const command = [filter, ...rule.rules, '--', HELPER, '__session-starter']
    const script = 'trap "" HUP; setsid sleep 50 & sleep 50 & echo ready; wait'
    for (const end of ['SIGTERM', 'SIGKILL', 'engine']) {
      const started = starter(['--grace', '100', '--', 'bash', '-c', script], { command })
      await started.shows('ready')
      await until(() => marked(started.mark).filter((pid) => comm(pid) === 'sleep').length === 2, 'both')
      const { engine } = await belowStarter(started.child.pid)
      const left = marked(started.mark).find((pid) => stat(pid).session === pid && comm(pid) === 'sleep')
      if (end === 'engine') process.kill(engine, 'SIGKILL')
      else started.child.kill(end)
      t.deepEqual(await started.exited, { code: null, signal: end === 'engine' ? 'SIGKILL' : end })
      if (end === 'engine' && rule.mechanism === 'group') killMarked(left, started.mark)
      await noneMarked(started.mark)
      await started.closed
    }
  })
}

test('clone3 becomes EPERM in the running host: a session (C52)', async (t) => {
  for (const { before } of [
    sandboxes['clone3 becomes EPERM before the first call'],
    sandboxes['clone3 becomes EPERM after a call'],
  ]) {
    const entered = enter(t, { before })
    if (entered === undefined) return
    const first = `const { startSession } = require(${JSON.stringify(SESSION)})\n`
    const body = `
      const session = await startSession('bash', ['-c', 'setsid sleep 50 & sleep 50 & echo ready; read -r _; exit 7'])
      await new Promise((resolve) => session.stdout.once('data', resolve))
      session.stdin.end('\\n')
      const { outcome, mechanism } = await session.ended
      report([session.contained, await session.exited, outcome, mechanism])
    `
    t.deepEqual(await host(t, body, after(first, entered)).next(), [
      true,
      { exitCode: 7, signal: null },
      'ended',
      'subreaper',
    ])
  }
})

// ---- no usable /proc
const inMounts = (script) => [
  ...['unshare', '--mount', '--propagation', 'private'],
  ...['sh', '-c', `${script} && exec "$@"`, 'sh'],
]
const NO_MOUNTS = (() => {
  const { status, error, stderr } = spawnSync('unshare', ['--mount', 'true'], { encoding: 'utf8' })
  return status === 0 ? '' : `no mount namespace can be made: ${error?.message ?? stderr.trim()}`
})()

/** Each is [a command that makes it so, why that cannot be]. */
const tables = {
  'no /proc': (t) => [inMounts(`mount --bind ${folder(t)} /proc`), NO_MOUNTS],
  '/proc of a namespace outside': () => [FOREIGN, NO_NAMESPACE],
  // Whoever is in there has it mounted where we see it, and stays for a minute, or until the test is over.
  '/proc of a namespace inside': (t) => {
    const at = folder(t)
    const fifo = join(folder(t), 'fifo')
    t.teardown(() => {
      try {
        closeSync(openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK))
      } catch (error) {
        // The test has ended it.
        if (error.code !== 'ENXIO') throw error
      }
    })
    const stay = `unshare --pid --fork --kill-child sh -c 'mount -t proc proc ${at} && exec timeout 60 cat ${fifo}'`
    const wait = `until [ -e ${at}/1 ]; do :; done; mount --bind ${at} /proc`
    return [inMounts(`mkfifo ${fifo}; ${stay} </dev/null >/dev/null 2>&1 & ${wait}`), NO_NAMESPACE]
  },
}
/** As above; undefined where it cannot be. */
function makeTable(t, table, rules) {
  const [command, reason] = tables[table](t)
  if (!has(t, reason)) return undefined
  if (rules === undefined) return command
  const filter = filterFor(t)
  return filter && [...command, filter, ...rules, '--']
}

for (const table of Object.keys(tables)) {
  test(`${table}: the same results (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const program = host(t, workload(false), { command: [...command, process.execPath] })
    t.deepEqual(await program.next(), await expected(t, false))
  })

  test(`${table}: when nothing is left no pid is asked for (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const script = `trap '' TERM; for i in 1 2 3; do setsid sh -c 'sleep 30; :' & done; echo up; wait`
    const body = programOf('sandbox/twenty-ends', { script })
    const program = host(t, body, { command: [...command, process.execPath] })
    for (const { outcome, proofTime } of await program.next()) {
      t.is(outcome, 'ended')
      // All of four million took longer.
      t.true(proofTime < 2000, `${proofTime}`)
    }
  })

  test(`${table}: orphans are reaped while the call goes on (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const script = 'for i in {1..100}; do (exec bash -c "true & exit"); done; echo up; read -r _'
    const program = host(
      t,
      `const child = spawn('/bin/bash', ['-c', ${JSON.stringify(script)}])
       child.stdout.once('data', () => report())
       process.stdin.once('data', async () => {
         child.stdin.end('\\n')
         report((await child.ended).outcome)
       })`,
      { command: [...command, process.execPath] },
    )
    await program.next()
    const zombies = () => descendantsOf(program.pid).filter((pid) => stat(pid)?.state === 'Z').length
    // Each keeper has one, which holds a group.
    await until(() => zombies() < 10, 'orphans that are reaped')
    program.child.stdin.write('\n')
    t.is(await program.next(), 'ended')
  })

  test(`${table}, and no subreaper: unconfirmed, with the notice (C52)`, async (t) => {
    const command = makeTable(t, table, GROUP.rules)
    if (command === undefined) return
    const program = host(t, workload(false), { command: [...command, process.execPath] })
    t.deepEqual(await program.next(), await expected(t, false, { mechanism: 'group', outcome: 'unconfirmed' }))
  })

  test(`${table}: the host is killed (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const own = newMark()
    // Host and all that it starts are below a shell that stays, so that a namespace is not ended with its host.
    const script = '(setsid sleep 50 &); setsid sleep 50 & sleep 50 & echo up; wait'
    const body = `
      const child = spawn('/bin/bash', ['-c', ${JSON.stringify(script)}], { grace: 200 })
      child.stdout.once('data', () => report('up'))
    `
    const stay = ['sh', '-c', '"$@"; sleep 50', 'sh']
    const program = host(t, body, {
      command: [...command, ...stay, process.execPath],
      env: { MARK: own },
      options: QUIET,
    })
    t.is(await program.next(), 'up')
    const sleepers = () => marked(own).filter((pid) => comm(pid) === 'sleep')
    await until(() => sleepers().length === 3, 'all of it')
    const [node] = marked(own).filter((pid) => helpersOf(pid).length === 1)
    const brood = sleepers()
    const staff = helpersOf(node).flatMap((helper) => [helper, ...keepersOf(helper)])
    process.kill(node, 'SIGKILL')
    await gone([...brood, ...staff])
    t.is(sleepers().length, 1)
    program.kill()
    for (const pid of marked(own)) killMarked(pid, own)
    await noneMarked(own)
  })
}

for (const table of Object.keys(tables)) {
  test(`${table}: a guarded group of the host's session is ended, and that is not confirmed (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const guarding = await orderedHost(t, `${ownGroup.start}\nconst group = await guard(child)`, {
      command: [...command, process.execPath],
    })
    t.deepEqual(guarding.held(), ['pin'])
    const exited = "const exited = once(child, 'exit')"
    const report = await guarding.do(
      `${exited}; const report = await group.end({ grace: 100 }); await exited; return report`,
    )
    t.like(report, { outcome: 'unconfirmed', mechanism: 'group', by: 'guard', reason: 'end', notice: notices.end })
    await until(() => marked(guarding.mark).every((pid) => comm(pid) !== basename(PYTHON)), 'the end of the group')
  })

  test(`${table}: a guarded group of another session is ended, and that is unconfirmed (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const start = `const child = plain('bash', ['-c', 'sleep 60 & sleep 60 & wait'], { detached: true, stdio: 'ignore' })`
    const guarding = await orderedHost(t, `${start}\nconst group = await guard(child)`, {
      command: [...command, process.execPath],
    })
    t.deepEqual(guarding.held(), ['pidfd'])
    // The kernel says that the group is empty. What has left it cannot be looked for.
    const report = await guarding.do('return group.end({ grace: 100 })')
    t.like(report, { outcome: 'unconfirmed', by: 'guard', reason: 'end', notice: notices.end })
    t.deepEqual(
      marked(guarding.mark).filter((pid) => comm(pid) === 'sleep'),
      [],
    )
  })

  test(`${table}: a starter ends what its Engine has left, and exits as it did (C52)`, async (t) => {
    const command = makeTable(t, table)
    if (command === undefined) return
    const script = 'sleep 50 & (setsid sleep 50 &); echo ready; exit 7'
    const {
      code,
      out,
      mark: one,
    } = await starterToEnd(['--ack', '--', 'bash', '-c', script], {
      command: [...command, HELPER, '__session-starter'],
    })
    t.deepEqual([code, out], [7, `${ACK}ready\n`])
    t.deepEqual(
      marked(one).filter((pid) => comm(pid) === 'sleep'),
      [],
    )
  })
}

// ---- nobody else is signalled
/** For the text of a host: the next process that it starts has this number in its namespace, if that is free. */
const NUMBERED = programOf('sandbox/numbered', { SESSION })
/** What is started, and how it is ended. What it has is a shell with a child, a child in another session, and an orphan. */
const SCRIPT = JSON.stringify([
  '-c',
  'trap "" TERM; sleep 60 & setsid sleep 60 & (setsid sleep 60 &); echo up; while :; do wait; done',
])
const subjects = {
  'a call': {
    start: `undo(spawn('bash', ${SCRIPT}))`,
    end: 'return (await subject.end({ grace: 50 })).outcome',
    outcomes: { subreaper: 'ended', group: 'unconfirmed' },
  },
  'a guarded group of another session': {
    start: `undo(plain('bash', ${SCRIPT}, { detached: true }))`,
    // Held or refused, it is to be harmless.
    end: `
      const group = await guard(subject).catch((error) => error.code)
      const word = group.end ? (await group.end({ grace: 50 })).outcome : group
      subject.kill('SIGKILL')
      return word
    `,
    outcomes: { subreaper: ['unconfirmed', 'ERR_HOLDFAST_GUARD'] },
  },
  "a guarded group of the host's session": {
    start: `undo(plain(PYTHON, [${JSON.stringify(fixture('own-group.py'))}], { stdio: ['ignore', 'pipe', 'inherit'] }))`,
    end: 'const group = await guard(subject); return (await group.end({ grace: 50 })).outcome',
    outcomes: { subreaper: 'unconfirmed' },
  },
  'a session': {
    start: `startSession('bash', ${SCRIPT}).then(undo)`,
    end: 'return (await subject.end({ grace: 50 })).outcome',
    outcomes: { subreaper: 'ended', group: 'unconfirmed' },
  },
}

for (const [subject, { start, end, outcomes }] of Object.entries(subjects))
  for (const [mechanism, outcome] of Object.entries(outcomes))
    test(`/proc of a namespace outside: nobody who has a number that is in it is signalled: ${subject}, by ${mechanism} (C52)`, async (t) => {
      const command = makeTable(t, '/proc of a namespace outside', mechanism === 'group' ? GROUP.rules : [])
      if (command === undefined) return
      const guarding = await orderedHost(t, STRANGERS + NUMBERED, { command: [...command, process.execPath] })
      // The keepers that are there are enough: none is forked in between.
      for (let call = 0; call < 3; call++) await guarding.do("await run('true')")
      // Its number here is that of this very process, whose children /proc takes for its own.
      await guarding.do(`
        globalThis.subject = await numbered(${process.pid}, () => ${start})
        await once(subject.stdout, 'data')
      `)
      const isIn = (pid) => statusOf(pid, 'NSpid')?.split('\t').length > 1
      const there = await until(() => {
        const pids = descendantsOf(guarding.pid).filter(isIn)
        const left = marked(guarding.mark).filter((pid) => isIn(pid) && !pids.includes(pid))
        return pids.length > 7 && [...pids, ...left]
      }, 'all of it')
      const inner = (pid) => Number(statusOf(pid, 'NSpid')?.split('\t').at(-1))
      const numbers = [...new Set([...there, ...childrenOf(process.pid), ...childrenOf(1)])]
      const free = numbers.filter((number) => !there.map(inner).includes(number)).slice(0, 40)
      t.true(free.length >= 8, `${free}`)
      await guarding.do(`globalThis.others = await strangers(${free})`)
      const word = await guarding.do(end)
      t.is(await guarding.do('return others.leave()'), 'unharmed')
      t.true([outcome].flat().includes(word), word)
    })
