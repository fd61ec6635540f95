// C20 to C24 and C26: ways out of a group, and of being seen.
import { spawn as plainSpawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { run, spawn } from '../dist/index.js'
import {
  childrenOf,
  comm,
  descendantsOf,
  descriptors,
  gone,
  helpersOf,
  isAlive,
  keepersOf,
  marked,
  newMark,
  newWord,
  noneWithWord,
  stat,
  until,
  withWord,
} from './support/facts.mjs'
import { compiled, fixture, programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { bind } from './support/port.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const isLong = Boolean(process.env.HOLDFAST_LONG)
const environment = (mark) => ({ ...process.env, MARK: mark })

suite(test, { patience: 0 })

/** How many processes each form leaves. */
const FORMS = { setsid: 1, 'double-fork': 1, bare: 1, nohup: 1, orphans: 300, chain: 1 }
const script = (form) => fixture(`escape/${form}.sh`)
/** The form, and then a command that stays. */
const STAY = 'bash "$0" "$1"; exec sleep "$1"'

/** Every form at once, each with a word of its own. */
function forms(act) {
  return Promise.all(Object.entries(FORMS).map(([form, count]) => act(form, newWord(), count)))
}

test('what escaped is gone after a normal exit (C20)', async (t) => {
  await forms(async (form, word, count) => {
    const { stdout, exitCode, report } = await run('bash', [script(form), word])
    t.deepEqual(withWord(word), [], form)
    t.deepEqual([stdout, exitCode, report.outcome, report.reason], ['up\n', 0, 'ended', 'exit'], form)
    t.true(report.leftoverCount >= count, `${form}: ${report.leftoverCount}`)
    t.is(report.leftovers.length, Math.min(report.leftoverCount, 64), form)
    // Of the chain many middles may still be on their way out.
    // And a shell may not have become `sleep` yet.
    t.true(
      report.leftoverCount > 64 ||
        report.leftovers.some(({ name }) => ['sleep', 'sh', 'bash', 'setsid'].includes(name)),
      form,
    )
  })
})

test('what escaped is gone after a timeout (C20)', async (t) => {
  await forms(async (form, word) => {
    const { stdout, timedOut, report } = await run('bash', ['-c', STAY, script(form), word], {
      timeout: 4000,
      grace: 100,
    })
    t.deepEqual(withWord(word), [], form)
    t.deepEqual([stdout, timedOut, report.outcome, report.reason], ['up\n', true, 'ended', 'timeout'], form)
  })
})

test('what escaped is gone after end() (C20)', async (t) => {
  await forms(async (form, word, count) => {
    const child = spawn('bash', ['-c', STAY, script(form), word])
    const [text] = await once(child.stdout, 'data')
    t.is(String(text), 'up\n')
    await until(() => stat(child.pid)?.state === 'S' && comm(child.pid) === 'sleep', `${form} stays`)
    const others = withWord(word).filter((pid) => pid !== child.pid)
    t.is(others.length, count, form)
    for (const pid of others) t.is(stat(pid).ppid, stat(child.pid).ppid, `${form}: the keeper has adopted it`)
    if (form === 'setsid' || form === 'double-fork' || form === 'bare') t.not(stat(others[0]).pgrp, child.pid, form)
    if (form === 'bare') t.is(descriptors(others[0]).size, 0)
    t.like(await child.end(), { outcome: 'ended', reason: 'end', leftoverCount: count }, form)
    t.deepEqual(withWord(word), [], form)
  })
})

test('what escaped is gone after SIGKILL of the host (C20)', async (t) => {
  const words = Object.keys(FORMS).map((form) => [script(form), newWord()])
  const host = startHost(`
    const started = ${JSON.stringify(words)}.map(([script, word]) => {
      const child = spawn('bash', ['-c', ${JSON.stringify(STAY)}, script, word])
      return new Promise((resolve) => child.stdout.once('data', resolve))
    })
    await Promise.all(started)
    report('up')
  `)
  t.is(await host.next(), 'up')
  const counts = Object.values(FORMS)
  await until(() => words.every(([, word], index) => withWord(word).length === counts[index] + 1), 'all of them')
  const [helper] = helpersOf(host.pid)
  const keepers = keepersOf(helper)
  host.kill()
  for (const [, word] of words) await noneWithWord(word, 5000)
  await gone([helper, ...keepers])
  t.pass()
})

test('a command that makes a pid namespace is ended with all that is in it', async (t) => {
  if (!hasNamespaces(t)) return
  const word = newWord()
  const script = `setsid sleep ${word} & echo up; exec sleep ${word}`
  const child = spawn('unshare', ['--pid', '--fork', 'sh', '-c', script])
  await once(child.stdout, 'data')
  await until(() => withWord(word).length === 2, 'both')
  t.like(await child.end({ grace: 0 }), { outcome: 'ended' })
  t.deepEqual(withWord(word), [])
})

test('a command that enters the pid namespace of somebody else: what hangs on it is ended, an orphan in there is not seen', async (t) => {
  if (!hasNamespaces(t)) return
  const [own, other] = [newWord(), newWord()]
  // Its process 1, bounded as everything is, and ended below by the handle of its parent.
  const owner = plainSpawn('unshare', ['--pid', '--fork', '--kill-child', 'sleep', other], { stdio: 'ignore' })
  t.teardown(() => owner.kill('SIGKILL'))
  const [first] = await until(
    () => some(childrenOf(owner.pid).filter((pid) => withWord(other).includes(pid))),
    'process 1',
  )
  const script = `(setsid sleep ${own} &); echo up; exec sleep ${own}`
  const child = spawn('nsenter', ['--target', `${first}`, '--pid', 'sh', '-c', script])
  await once(child.stdout, 'data')
  const hasLeft = (pid) => stat(pid)?.ppid === first && stat(pid)?.session === pid
  const [orphan] = await until(() => some(withWord(own).filter(hasLeft)), 'the orphan')
  t.like(await child.end({ grace: 0 }), { outcome: 'ended' })
  t.deepEqual(withWord(own), [orphan], 'said in docs/guarantees.md')
  owner.kill('SIGKILL')
  await noneWithWord(own)
})

const some = (list) => list.length > 0 && list

// ---- C21
const NAMESPACE = ['unshare', '--pid', '--mount', '--fork', '--mount-proc', '--kill-child']
/** A user that nothing else runs as: RLIMIT_NPROC counts all of a user's processes. */
const USER = 61234
const FACTS = new URL('./support/facts.mjs', import.meta.url).href

function hasNamespaces(t) {
  const { status, error, stderr } = spawnSync(NAMESPACE[0], [...NAMESPACE.slice(1), 'true'], { encoding: 'utf8' })
  if (status === 0 && process.getuid() === 0) return true
  t.log(`skipped: no pid namespace of one's own here (${error?.message ?? (stderr.trim() || 'not root')})`)
  t.pass()
  return false
}

/** Starts a storm in a namespace, ends it there when its limit is reached, and tells what was seen. */
async function storm(program, form, most) {
  const host = startHost(programOf('escape/end-storm', { FACTS, most, program, form, USER }), {
    command: [...NAMESPACE, 'sh', '-c', '"$0" "$@"; exit $?', process.execPath],
  })
  const seen = await host.next()
  await host.exited
  return seen
}

for (const form of ['group', 'sessions', 'leaving']) {
  test(`a storm of 500 is ended within the budget: ${form} (C21)`, async (t) => {
    const program = compiled(t, 'storm')
    if (program === undefined || !hasNamespaces(t)) return
    for (let round = 0; round < (isLong ? 10 : 1); round++) {
      const seen = await storm(program, form, 500)
      t.log(`${seen.leftoverCount} ended, ${seen.proofTime.toFixed(0)} ms to the proof`)
      t.true(seen.pid < 20, 'in a namespace of its own')
      t.like(seen, { outcome: 'ended', reason: 'end', survivors: [], left: 0, stdout: 'the next call works\n' })
    }
  })
}

if (isLong) {
  test('a storm of 1,500: ended, or survivors and then done (C21)', async (t) => {
    const program = compiled(t, 'storm')
    if (program === undefined || !hasNamespaces(t)) return
    const seen = await storm(program, 'sessions', 1500)
    t.log(JSON.stringify(seen, ['outcome', 'proofTime', 'leftoverCount', 'left']))
    t.true(['ended', 'survivors'].includes(seen.outcome))
    t.is(seen.outcome === 'survivors', seen.left > 0)
    t.is(seen.outcome === 'survivors', seen.survivors.length > 0)
    t.is(seen.stdout, 'the next call works\n')
  })
}

// ---- C22
const isStopped = (pid) => stat(pid)?.state === 'T'
const isTraced = (pid) => stat(pid)?.state === 't'

test('stopped processes in the background are ended (C22)', async (t) => {
  const word = newWord()
  const stop = 'kill -STOP $!; until grep -q "^State:.T" /proc/$!/status; do :; done; echo stopped'
  const script = `sleep "$0" & ${stop}; setsid sleep "$0" & ${stop}`
  const { report, stdout } = await run('bash', ['-c', script, word])
  t.is(stdout, 'stopped\nstopped\n')
  t.like(report, { outcome: 'ended', reason: 'exit', leftoverCount: 2 })
  t.deepEqual(withWord(word), [])
})

test('a stopped command is woken for the first step of the ladder (C22)', async (t) => {
  const child = spawn('sleep', [newWord()])
  child.kill('SIGSTOP')
  await until(() => isStopped(child.pid), 'a stop')
  t.like(await child.end({ grace: 30_000 }), { outcome: 'ended', reason: 'end' })
  t.is(child.signalCode, 'SIGTERM')
})

test('a stopped group is ended by the timeout (C22)', async (t) => {
  const word = newWord()
  const child = spawn('sh', ['-c', 'trap "" TERM; setsid sleep "$0" & sleep "$0"; :', word], {
    timeout: 3000,
    grace: 100,
  })
  // A shell that waits for its child's exec cannot be stopped, and a child that is stopped before it does not get there.
  const isUp = () => withWord(word).filter((pid) => comm(pid) === 'sleep').length === 2
  const pids = await until(() => isUp() && withWord(word), 'three processes')
  for (const pid of pids) process.kill(pid, 'SIGSTOP')
  await until(() => pids.every(isStopped), 'three stopped processes')
  t.like(await child.ended, { outcome: 'ended', reason: 'timeout' })
  t.is(child.signalCode, 'SIGKILL')
  t.deepEqual(withWord(word), [])
})

test('a stopped command is ended by the death of its host (C22)', async (t) => {
  const word = newWord()
  const host = startHost(`
    const child = spawn('sh', ['-c', 'trap "" TERM; sleep "$0"; :', ${JSON.stringify(word)}], { grace: 100 })
    report(child.pid)
  `)
  await host.next()
  // A shell that waits for its child's exec cannot be stopped, and a child that is stopped before it does not get there.
  const isUp = () => withWord(word).some((pid) => comm(pid) === 'sleep')
  const pids = await until(() => isUp() && withWord(word).length === 2 && withWord(word), 'two processes')
  for (const pid of pids) process.kill(pid, 'SIGSTOP')
  await until(() => pids.every(isStopped), 'two stopped processes')
  host.kill()
  await noneWithWord(word, 5000)
  t.pass()
})

test('a process that is traced within the call is ended (C22)', async (t) => {
  const tracer = compiled(t, 'tracer')
  if (tracer === undefined) return
  const word = newWord()
  const child = spawn('sh', ['-c', 'sleep "$1" & "$0" $!', tracer, word])
  const lines = linesOf(child.stdout)
  t.is(await lines.next(), 'traced')
  t.true(withWord(word).some(isTraced))
  t.like(await child.end({ grace: 100 }), { outcome: 'ended', reason: 'end' })
  t.deepEqual(withWord(word), [])
  t.is(await lines.next(), undefined)
})

test('a process that is traced from outside is ended (C22)', async (t) => {
  const program = compiled(t, 'tracer')
  if (program === undefined) return
  const child = spawn('sleep', [newWord()])
  const tracer = plainSpawn(program, [String(child.pid)], { stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(tracer, 'exit')
  t.is(await linesOf(tracer.stdout).next(), 'traced')
  t.true(isTraced(child.pid))
  t.like(await child.end({ grace: 100 }), { outcome: 'ended', reason: 'end' })
  t.is(child.signalCode, 'SIGKILL')
  t.false(isAlive(child.pid))
  t.deepEqual(await exited, [0, null], 'the tracer is not of the call')
})

// ---- C23
/** Starts three nested hosts; the pids of the levels, the innermost command as level 0. */
async function startNest(t, word) {
  const child = spawn(process.execPath, [fixture('nest.cjs'), '3', word])
  const lines = linesOf(child.stdout)
  const levels = new Map()
  let escaped = 0
  while (levels.size < 4 || escaped < 1) {
    const line = await lines.next()
    if (line === undefined) throw new Error('the nest ended')
    if (line === 'up') escaped++
    else levels.set(...line.split(' ').map(Number))
  }
  t.is(levels.get(3), child.pid)
  // On each level `sh` and `sleep` beside the next host, plus the two of the innermost one, plus the hosts.
  await until(() => withWord(word).length === 3 + 3 * 2 + 2, 'the whole nest')
  return { child, levels }
}

test('end() of the outer call leaves nothing of the inner ones (C23)', async (t) => {
  const word = newWord()
  const { child } = await startNest(t, word)
  const below = [child.pid, ...descendantsOf(child.pid)]
  t.is(
    below.filter((pid) => comm(pid) === 'holdfast-helper').length >= 3 + 5,
    true,
    'helpers and keepers of three hosts',
  )
  const report = await child.end({ grace: 200 })
  t.is(report.outcome, 'ended')
  t.deepEqual(below.filter(isAlive), [])
  t.deepEqual(withWord(word), [])
})

test('SIGKILL of the outer first process leaves nothing of the inner ones (C23)', async (t) => {
  const word = newWord()
  const { child } = await startNest(t, word)
  const below = [child.pid, ...descendantsOf(child.pid)]
  child.kill('SIGKILL')
  t.is((await child.ended).outcome, 'ended')
  t.deepEqual(below.filter(isAlive), [])
  t.deepEqual(withWord(word), [])
})

test('SIGKILL of the middle host leaves nothing below it, and the outer one is not touched (C23)', async (t) => {
  const word = newWord()
  const { child, levels } = await startNest(t, word)
  const middle = levels.get(2)
  const above = new Set([child.pid, ...childrenOf(child.pid)])
  const below = [middle, ...descendantsOf(middle)]
  process.kill(middle, 'SIGKILL')
  await gone(below)
  t.deepEqual(
    [...above].filter((pid) => !isAlive(pid)),
    [],
  )
  t.is(child.exitCode, null)
  await until(() => withWord(word).length === 3, 'the outer host, and `sh` and `sleep` beside what was the middle one')
  t.is((await child.end({ grace: 200 })).outcome, 'ended')
  t.deepEqual(withWord(word), [])
})

// ---- C24
test('the port of a server in a session of its own is free after the call (C24)', async (t) => {
  const mark = newMark()
  const serve = 'read -r port < <(exec setsid "$0" "$1"); echo "$port"'
  const args = ['-c', serve, process.execPath, fixture('listener.mjs')]
  const { stdout, report } = await run('bash', args, { env: environment(mark) })
  t.regex(stdout, /^\d+\n$/)
  await t.notThrowsAsync(bind(Number(stdout)))
  t.like(report, { outcome: 'ended', leftoverCount: 1 })
  t.deepEqual(marked(mark), [])

  // While the call runs it cannot be had: this is what the above would have said.
  const child = spawn('bash', ['-c', `${serve}; sleep 60`, ...args.slice(2)], { env: environment(mark) })
  const port = Number(await linesOf(child.stdout).next())
  await t.throwsAsync(bind(port), { code: 'EADDRINUSE' })
  await child.end()
  await t.notThrowsAsync(bind(port))
})

// ---- C26
const isLeaderless = (pid) => stat(pid)?.state === 'Z' && stat(pid).threads > 1

test('a process whose first thread has left is ended when it is left over (C26)', async (t) => {
  const program = compiled(t, 'leaderless')
  if (program === undefined) return
  // It is told from a dead one by its second thread alone; it holds the pipe until it is really gone.
  const wait = 'until grep -q "^State:.Z" /proc/$!/status; do :; done; echo $!'
  const { stdout, report } = await run('bash', ['-c', `"$0" & ${wait}`, program])
  const pid = Number(stdout.match(/\d+/)[0])
  t.deepEqual(report.leftovers, [{ pid, name: 'leaderless' }])
  t.is(report.outcome, 'ended')
  t.is(stat(pid), undefined)
})

test('a command whose first thread has left has not exited, and is ended (C26)', async (t) => {
  const program = compiled(t, 'leaderless')
  if (program === undefined) return
  const child = spawn(program)
  const events = []
  for (const event of ['exit', 'close', 'ended']) child.on(event, () => events.push(event))
  const lines = linesOf(child.stdout)
  t.is(await lines.next(), 'up')
  await until(() => isLeaderless(child.pid), 'a leader that has left')
  // A call beside it, from start to end: the keeper's word about this one would have come by then.
  await run('true')
  t.deepEqual(events, [])
  t.true(isAlive(child.pid))
  t.like(await child.end({ grace: 200 }), { outcome: 'ended', reason: 'end' })
  t.is(child.signalCode, 'SIGTERM')
  t.is(stat(child.pid), undefined)
  t.is(await lines.next(), undefined)
})

test('a command whose first thread has left is ended by the death of its host (C26)', async (t) => {
  const program = compiled(t, 'leaderless')
  if (program === undefined) return
  const host = startHost(`
    const child = spawn(${JSON.stringify(program)})
    child.stdout.once('data', () => report(child.pid))
  `)
  const pid = await host.next()
  await until(() => isLeaderless(pid), 'a leader that has left')
  host.kill()
  await gone([pid], 5000)
  t.pass()
})
