// guard(): the process group of a child that something else has started ends with its leader, by end(), and with the host.
import { execFileSync, spawn } from 'node:child_process'
import { getEventListeners, once } from 'node:events'
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { guard, HoldfastError, notices, running } from '../dist/index.js'
import {
  childrenOf,
  descriptors,
  gone,
  guardsOf,
  isAlive,
  marked,
  newMark,
  noneMarked,
  stat,
  statusOf,
  until,
} from './support/facts.mjs'
import { compiled, fixture, PYTHON, programOf } from './support/fixtures.mjs'
import { ends, guardHost, orderedHost, ownGroup, shellOf, users } from './support/guard.mjs'
import { HOLDFAST } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { folder, killMarked, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)

/** Two sleepers below a shell: three in the group, and the word that all are there. */
const TWO = { start: shellOf('sleep 60 & sleep 60 & wait'), count: 3 }

/** A shell in a group of its own, as a child of this process, with a mark of its own. */
function lead(t, script, { stdio = ['pipe', 'pipe', 'ignore'], detached = true } = {}) {
  const mark = newMark()
  const child = spawn('bash', ['--norc', '-c', script], { detached, stdio, env: { ...env, MARK: mark } })
  t.teardown(() => child.kill('SIGKILL'))
  return Object.assign(child, { mark, live: () => marked(mark) })
}

const livesOn = (t, ...pids) => t.deepEqual(pids.filter(isAlive), pids)

// ---- who uses it, and what becomes of it
for (const [user, form] of Object.entries({ ...users, 'a group in the session of the host': ownGroup }))
  for (const [end, come] of Object.entries(ends))
    test(`${user}: everything in the group is ended by ${end}`, async (t) => {
      await come(t, await guardHost(t, form, { early: true }))
    })

for (const [how, code] of Object.entries({
  'process.exit()': 'process.exit(3)',
  'an uncaught exception': "setImmediate(() => { throw new Error('uncaught') }); await new Promise(() => {})",
  'process.abort()': 'process.abort()',
  'the end of its work': 'process.stdin.destroy(); child.unref(); return new Promise(() => {})',
}))
  test(`the host ends by ${how} (C01 C02)`, async (t) => {
    const host = await guardHost(t, { start: shellOf('sh -c "sleep 60; true" & sleep 60; true'), count: 4 })
    host.tell(code)
    await host.exited
    await noneMarked(host.mark)
    await gone([host.guard])
    t.pass()
  })

test('the host ends by SIGSEGV, SIGTERM, SIGHUP (C02)', async (t) => {
  for (const signal of ['SIGSEGV', 'SIGTERM', 'SIGHUP']) {
    const host = await guardHost(t, TWO)
    host.kill(signal)
    t.is((await host.exited).signal, signal)
    await noneMarked(host.mark)
  }
})

const DEAF = `const child = plain(process.execPath, [${JSON.stringify(fixture('stubborn.mjs'))}], {
  detached: true, stdio: ['pipe', 'pipe', 'inherit'],
})
const heard = []
child.stdout.setEncoding('utf8').on('data', (text) => heard.push(...text.trim().split('\\n')))
while (!heard.includes('ready')) await once(child.stdout, 'data')`

test('one that ignores SIGTERM gets it once, and is killed after the grace time (C03)', async (t) => {
  const host = await guardHost(t, { start: DEAF, count: 1 })
  const began = Date.now()
  const report = await host.do('return group.end({ grace: 300 })')
  t.true(Date.now() - began >= 300)
  t.like(report, { outcome: 'ended', reason: 'end' })
  await host.do("if (child.signalCode === null) await once(child, 'close')")
  t.is(await host.do('return child.signalCode'), 'SIGKILL')
  t.deepEqual(await host.do('return heard'), ['ready', 'SIGTERM'])
})

test('one that ignores SIGTERM and the end of its stdin is ended by host death (C03)', async (t) => {
  const host = await guardHost(t, { start: DEAF, count: 1 })
  host.kill()
  await host.exited
  await noneMarked(host.mark)
  t.pass()
})

test('end() gives the signal that it is told to, and time to follow it', async (t) => {
  const child = lead(t, `trap 'echo INT; exit 5' INT; echo up; while :; do sleep 0.1; done`)
  const lines = linesOf(child.stdout)
  t.is(await lines.next(), 'up')
  const group = await guard(child)
  t.like(await group.end({ signal: 'SIGINT', grace: 60_000 }), { outcome: 'ended', reason: 'end' })
  t.is(await lines.next(), 'INT')
  if (child.exitCode === null) await once(child, 'exit')
  t.is(child.exitCode, 5)
})

test('a zombie that has left the group is not found anew in every look', async (t) => {
  // It ends when its parent has become a program that does not reap it.
  const ends = 'until read -r name < /proc/$PPID/comm && [ "$name" = sleep ]; do :; done'
  const child = lead(t, `setsid bash -c '${ends}' & exec sleep 60`)
  const isLeft = (pid) => stat(pid)?.state === 'Z' && stat(pid).session === pid
  await until(() => childrenOf(child.pid).some(isLeft), 'the zombie')
  const group = await guard(child)
  t.like(await group.end({ grace: 0 }), { outcome: 'ended', leftovers: [], leftoverCount: 0 })
})

test('the sweep after the exit of the leader needs no event loop (C13)', async (t) => {
  const fifo = join(folder(t), 'fifo')
  execFileSync('mkfifo', [fifo])
  const host = await guardHost(t, TWO)
  host.tell(`process.kill(child.pid, 'SIGKILL'); fs.readFileSync(${JSON.stringify(fifo)}); return group.ended`)
  // The host stands until somebody writes.
  await until(() => host.others().length === 0, 'the end of the group')
  t.is(stat(host.leader)?.state, 'Z')
  writeFileSync(fifo, '\n')
  t.like(await host.answer(), { outcome: 'ended', reason: 'exit', leftoverCount: 2 })
})

test('what is left when the leader has left by itself is ended as well (C05)', async (t) => {
  const child = lead(t, 'sleep 60 & sleep 60 & read _; exit 7')
  await until(() => child.live().length === 3, 'the shell and its children')
  const group = await guard(child)
  child.stdin.end()
  const report = await group.ended
  t.like(report, { outcome: 'ended', mechanism: 'group', by: 'guard', reason: 'exit', leftoverCount: 2 })
  t.deepEqual(
    report.leftovers.map(({ name }) => name),
    ['sleep', 'sleep'],
  )
  t.deepEqual(child.live(), [])
  if (child.exitCode === null) await once(child, 'exit')
  t.is(child.exitCode, 7)
})

test('a group that comes to its end by itself leaves a report without leftovers', async (t) => {
  const child = lead(t, 'read _')
  const group = await guard(child)
  child.stdin.end()
  t.like(await group.ended, { outcome: 'ended', reason: 'exit', leftoverCount: 0, leftovers: [] })
})

test('a leader that exits before guard() is ready (C05)', async (t) => {
  for (let round = 0; round < 10; round++) {
    const child = lead(t, 'sleep 60 & exit 0', { stdio: 'ignore' })
    // Held in time, or dead in time; in both cases what is told is true.
    const group = await guard(child).catch((error) => error)
    if (group instanceof Error) {
      t.is(group.code, 'ERR_HOLDFAST_GUARD', group.message)
      for (const pid of child.live()) killMarked(pid, child.mark)
      await noneMarked(child.mark)
    } else {
      t.like(await group.ended, { outcome: 'ended', reason: 'exit' })
      t.deepEqual(child.live(), [])
    }
  }
})

test('a leader whose first thread has left is alive (C26)', async (t) => {
  const program = compiled(t, 'leaderless')
  if (program === undefined) return
  const child = lead(t, `exec ${program}`)
  await once(child.stdout, 'data')
  await until(() => stat(child.pid).state === 'Z', 'the exit of the first thread')
  const group = await guard(child)
  t.true(isAlive(child.pid))
  t.like(await group.end({ grace: 0 }), { outcome: 'ended', reason: 'end' })
  t.false(isAlive(child.pid))
})

test('what is stopped is ended (C22)', async (t) => {
  const child = lead(t, 'sleep 60 & echo $!; wait')
  const sleeper = Number(await linesOf(child.stdout).next())
  const group = await guard(child)
  for (const pid of [sleeper, child.pid]) process.kill(pid, 'SIGSTOP')
  await until(() => stat(sleeper).state === 'T' && stat(child.pid).state === 'T', 'both stopped')
  t.like(await group.end(), { outcome: 'ended', reason: 'end' })
  t.deepEqual(child.live(), [])
})

// ---- what has left the group
test('what has left the group and hangs on it by its parents is ended (C20)', async (t) => {
  for (const end of ['end', 'host']) {
    const start = shellOf('setsid sleep 60 & bash -c "setsid sleep 60 & wait" & wait')
    const host = await guardHost(t, {
      start,
      count: 4,
      isSettled: (pids) => pids.filter((pid) => stat(pid)?.session === pid).length === 3,
    })
    if (end === 'host') host.kill()
    else t.like(await host.do('return group.end()'), { outcome: 'ended', reason: 'end' })
    await until(() => host.others().length === 0, 'the end of all')
  }
})

test('an orphan that has left the group is not seen, and not claimed to be (C20)', async (t) => {
  const start = shellOf('(setsid sleep 60 &); sleep 60; true')
  const host = await guardHost(t, {
    start,
    count: 3,
    isSettled: (pids) => pids.filter((pid) => stat(pid)?.session === pid).length === 2,
  })
  const orphan = host.members.find((pid) => pid !== host.leader && stat(pid).session !== host.leader)
  t.truthy(orphan)
  await until(() => !host.members.includes(stat(orphan).ppid), 'its parent is none of them')
  const report = await host.do('return group.end()')
  t.like(report, { outcome: 'ended', mechanism: 'group', leftoverCount: 1 })
  t.deepEqual(host.others(), [orphan])
  killMarked(orphan, host.mark)
  await until(() => host.others().length === 0, 'the end of the orphan')
})

// ---- background: 'keep'
test("background 'keep': what is left when the leader exits runs on until end() (C40)", async (t) => {
  const host = await guardHost(
    t,
    { start: shellOf('sleep 60 & sleep 60 & read _', ['pipe', 'ignore', 'inherit']), count: 3 },
    {
      options: "{ background: 'keep' }",
    },
  )
  await host.do("child.stdin.end(); await once(child, 'exit')")
  t.is(host.others().length, 2)
  t.like(await host.do('return group.end()'), { outcome: 'ended', reason: 'end', leftoverCount: 2 })
  t.deepEqual(host.others(), [])
})

test("background 'keep': what is left runs on until the host dies (C40)", async (t) => {
  const host = await guardHost(
    t,
    { start: shellOf('sleep 60 & sleep 60 & read _', ['pipe', 'ignore', 'inherit']), count: 3 },
    {
      options: "{ background: 'keep' }",
    },
  )
  await host.do("child.stdin.end(); await once(child, 'exit')")
  livesOn(t, ...host.members.filter((pid) => pid !== host.leader))
  host.kill()
  await noneMarked(host.mark)
  await gone([host.guard])
})

test("background 'keep': the last process leaves by itself (C40)", async (t) => {
  const child = lead(t, '(read _ <&3; true) & read _; exit 0', { stdio: ['pipe', 'ignore', 'ignore', 'pipe'] })
  await until(() => child.live().length === 2, 'both')
  const group = await guard(child, { background: 'keep' })
  child.stdin.end()
  await once(child, 'exit')
  t.is(child.live().length, 1)
  child.stdio[3].end()
  t.like(await group.ended, { outcome: 'ended', reason: 'exit', leftoverCount: 0 })
})

// ---- end(), release(), abort
test('end() at once, twice, and after the end (C04)', async (t) => {
  const child = lead(t, 'sleep 60 & sleep 60 & wait')
  const group = await guard(child)
  const both = await Promise.all([group.end(), group.end()])
  t.like(both[0], { outcome: 'ended', reason: 'end', by: 'guard' })
  t.is(both[1], both[0])
  t.deepEqual(child.live(), [])
  t.is(await group.end(), both[0])
  t.is(await group.end({ signal: 'SIGKILL', grace: 0 }), both[0])
  t.is(await group.ended, both[0])
  t.is(await group.release(), both[0])
  await group[Symbol.asyncDispose]()
})

test('a second end() shortens the first, and never lengthens it (C04)', async (t) => {
  t.timeout(20_000)
  const child = lead(t, `trap '' TERM; echo up; while :; do sleep 1; done`)
  await once(child.stdout, 'data')
  const group = await guard(child)
  const first = group.end({ grace: 60_000 })
  const second = group.end({ grace: 0 })
  const third = group.end({ grace: 60_000 })
  t.like(await first, { outcome: 'ended', reason: 'end' })
  t.is(await second, await first)
  t.is(await third, await first)
})

test('end() takes no wrong option, and does nothing then', async (t) => {
  const child = lead(t, 'sleep 60')
  const group = await guard(child)
  t.throws(() => group.end({ grace: -1 }), { code: 'ERR_OUT_OF_RANGE' })
  t.throws(() => group.end({ signal: 'SIGNONE' }), { code: 'ERR_UNKNOWN_SIGNAL' })
  t.throws(() => group.end({ signal: 0 }), { code: 'ERR_UNKNOWN_SIGNAL' })
  for (const wrong of [null, 5, 'SIGTERM']) t.throws(() => group.end(wrong), { code: 'ERR_INVALID_ARG_TYPE' })
  t.true(isAlive(child.pid))
  await group.end()
})

test('dispose ends the group, and waits for it', async (t) => {
  const child = lead(t, 'sleep 60 & sleep 60 & wait')
  await until(() => child.live().length === 3, 'all of it')
  const group = await guard(child)
  await group[Symbol.asyncDispose]()
  t.deepEqual(child.live(), [])
  t.like(await group.ended, { reason: 'end' })
})

test('release(): the group lives on after the host is gone (C41)', async (t) => {
  const host = await guardHost(t, TWO)
  const report = await host.do('return group.release()')
  t.like(report, { outcome: 'released', mechanism: 'group', by: 'guard', reason: 'release', leftoverCount: 0 })
  t.is(report.notice, undefined)
  await until(() => guardsOf(host.pid).length === 0, 'the end of the guard')
  host.kill()
  await host.exited
  livesOn(t, ...host.members)
  for (const pid of host.members) killMarked(pid, host.mark)
  await noneMarked(host.mark)
})

test('release(), and the host is gone before it can be answered (C41)', async (t) => {
  const host = await guardHost(t, TWO)
  // What was written before the end of the pipe is read before it.
  host.tell("group.release(); process.kill(process.pid, 'SIGKILL')")
  await host.exited
  await gone([host.guard])
  livesOn(t, ...host.members)
  for (const pid of host.members) killMarked(pid, host.mark)
  await noneMarked(host.mark)
})

test('release() after end() lets nothing go, and says so; end() after release() ends nothing', async (t) => {
  const child = lead(t, 'sleep 60')
  const group = await guard(child)
  const [ended, released] = await Promise.all([group.end(), group.release()])
  t.is(released, ended)
  t.like(ended, { outcome: 'ended', reason: 'end', notice: notices.release })

  const other = lead(t, 'sleep 60')
  const letGo = await guard(other)
  const [first, second] = await Promise.all([letGo.release(), letGo.end()])
  t.is(second, first)
  t.like(first, { outcome: 'released', reason: 'release' })
  t.true(isAlive(other.pid))
})

test('an aborted signal ends the group, and keeps no listener', async (t) => {
  const controller = new AbortController()
  const { signal } = controller
  const child = lead(t, 'sleep 60 & sleep 60 & wait')
  await until(() => child.live().length === 3, 'all of it')
  const group = await guard(child, { signal })
  t.is(getEventListeners(signal, 'abort').length, 1)
  controller.abort()
  t.like(await group.ended, { outcome: 'ended', reason: 'abort', by: 'guard' })
  t.deepEqual(child.live(), [])
  t.is(getEventListeners(signal, 'abort').length, 0)
  t.like(await group.end(), { reason: 'abort' })
})

test('a signal that is aborted while guard() waits', async (t) => {
  const controller = new AbortController()
  const child = lead(t, 'sleep 60 & sleep 60 & wait')
  const guarding = guard(child, { signal: controller.signal })
  controller.abort()
  t.like(await (await guarding).ended, { outcome: 'ended', reason: 'abort' })
  t.deepEqual(child.live(), [])
})

test('a signal keeps no listener after any end, and one for all (C62 C75)', async (t) => {
  const { signal } = new AbortController()
  const children = [1, 2, 3].map(() => lead(t, 'read _'))
  const groups = await Promise.all(children.map((child) => guard(child, { signal })))
  t.is(getEventListeners(signal, 'abort').length, 1)
  children[0].stdin.end()
  await groups[0].ended
  await groups[1].end()
  t.is(getEventListeners(signal, 'abort').length, 1)
  await groups[2].release()
  t.is(getEventListeners(signal, 'abort').length, 0)
  const own = spawn('sleep', ['50'], { stdio: 'ignore', env })
  t.teardown(() => own.kill('SIGKILL'))
  await t.throwsAsync(guard(own, { signal }), { code: 'ERR_HOLDFAST_GUARD' })
  t.is(getEventListeners(signal, 'abort').length, 0)
})

test('a signal that was aborted before: nothing is started, and the child runs on (C62)', async (t) => {
  const child = lead(t, 'sleep 60')
  const reason = new Error('why')
  const signal = AbortSignal.abort(reason)
  const error = await t.throwsAsync(guard(child, { signal }), { name: 'AbortError', code: 'ABORT_ERR' })
  t.is(error.cause, reason)
  t.true(error.ran)
  t.is(getEventListeners(signal, 'abort').length, 0)
  t.deepEqual(guardsOf(process.pid), [])
  t.true(isAlive(child.pid))
})

// ---- the guard itself
test('SIGTERM, SIGHUP, SIGINT and their like to a guard: nothing happens (C56)', async (t) => {
  const host = await guardHost(t, TWO)
  const signals = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGPIPE', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU']
  for (const signal of signals) process.kill(host.guard, signal)
  const ignored = BigInt(`0x${statusOf(host.guard, 'SigIgn')}`)
  for (const number of [15, 1, 2, 3, 13, 20, 21, 22]) t.is((ignored >> BigInt(number - 1)) & 1n, 1n, `signal ${number}`)
  livesOn(t, host.guard, ...host.members)
  t.not(stat(host.guard).state, 'T')
  t.like(await host.do('return group.end()'), { outcome: 'ended', by: 'guard', reason: 'end' })
  t.is(host.held().length, 1)
})

test('a guard is outside: in a group of its own, and with none of the pipes of the child or the host', async (t) => {
  const child = lead(t, 'sleep 60 & wait', { stdio: ['pipe', 'pipe', 'pipe', 'pipe'] })
  const group = await guard(child)
  const [pid] = guardsOf(process.pid)
  t.is(stat(pid).pgrp, pid)
  const held = [...descriptors(pid).values()]
  const foreign = new Set([...descriptors(child.pid).values(), ...descriptors(process.pid).values()])
  foreign.delete('/dev/null')
  for (const what of foreign) if (/^(pipe|socket):/.test(what)) t.false(held.includes(what), what)
  // So that the streams end with the group.
  const closed = once(child, 'close')
  await group.end()
  await closed
  await until(() => statusOf(pid, 'Name') === undefined, 'the end of the guard')
})

test('a guard that is killed is replaced, each time, and host death still ends the group', async (t) => {
  const host = await guardHost(t, TWO)
  let guardian = host.guard
  for (let count = 2; count < 6; count++) {
    process.kill(guardian, 'SIGKILL')
    await host.nowHeld(count)
    t.deepEqual(guardsOf(host.pid).length, 1)
    t.not(guardsOf(host.pid)[0], guardian)
    guardian = guardsOf(host.pid)[0]
    livesOn(t, ...host.members)
  }
  // None of them is left as a zombie.
  t.deepEqual(childrenOf(host.pid).sort(), [host.leader, guardian].sort())
  host.kill()
  await noneMarked(host.mark)
  await gone([guardian])
})

test('a guard that is killed is replaced, and the leader’s exit, end() and release() reach the new one', async (t) => {
  for (const [code, expected] of [
    ["process.kill(child.pid, 'SIGKILL'); return group.ended", { outcome: 'ended', reason: 'exit', leftoverCount: 2 }],
    ['return group.end()', { outcome: 'ended', reason: 'end', leftoverCount: 2 }],
    ['return group.release()', { outcome: 'released', reason: 'release' }],
  ]) {
    const host = await guardHost(t, TWO)
    process.kill(host.guard, 'SIGKILL')
    await host.nowHeld(2)
    t.like(await host.do(code), { ...expected, by: 'guard' })
    for (const pid of host.others()) killMarked(pid, host.mark)
    await until(() => host.others().length === 0, 'the end of all')
  }
})

test('a guard that is killed while it ends the group: the next one does it, within the same time', async (t) => {
  const host = await guardHost(t, { start: DEAF, count: 1 })
  // What it is asked to do is lost with it: the end of its pipe is seen later.
  const report = await host.do(`process.kill(${host.guard}, 'SIGKILL'); return group.end({ grace: 500 })`)
  t.like(report, { outcome: 'ended', by: 'guard', reason: 'end' })
  t.is(host.held().length, 2)
  t.deepEqual(await host.do('return heard'), ['ready', 'SIGTERM'])
})

test('a guard that is killed in the grace: what only it had found is not said to have ended (C80)', async (t) => {
  const ignoresTerm = (pid) => ((BigInt(`0x${statusOf(pid, 'SigIgn')}`) >> 14n) & 1n) === 1n
  const host = await guardHost(t, {
    // One that ignores SIGTERM outside the group, and one in it.
    start: shellOf(`(trap '' TERM; sleep 60; :) & setsid bash -c 'trap "" TERM; sleep 60; :' & sleep 60`),
    count: 6,
    isSettled: (pids) => pids.filter(ignoresTerm).length === 4,
  })
  await host.do('group.end({ grace: 60_000 })')
  await until(() => !isAlive(host.leader), 'the end of the leader, by the first signal')
  process.kill(host.guard, 'SIGKILL')
  const report = await host.do('return group.end({ grace: 0 })')
  t.like(report, { outcome: 'unconfirmed', by: 'guard', reason: 'end', notice: notices.end }, JSON.stringify(report))
  const left = host.others()
  t.is(left.length, 2)
  for (const pid of left) killMarked(pid, host.mark)
  await until(() => host.others().length === 0, 'the end of all')
})

test('a guard that is killed before it has let the group go: the next one does', async (t) => {
  const host = await guardHost(t, TWO)
  const report = await host.do(`process.kill(${host.guard}, 'SIGKILL'); return group.release()`)
  t.like(report, { outcome: 'released', by: 'guard', reason: 'release' })
  t.is(report.notice, undefined)
  livesOn(t, ...host.members)
  for (const pid of host.members) killMarked(pid, host.mark)
  await until(() => host.others().length === 0, 'the end of all')
})

test('a guard that is stopped is woken by what it is asked', async (t) => {
  for (const [ask, expected] of [
    ['end()', { outcome: 'ended', reason: 'end', leftoverCount: 2 }],
    ['release()', { outcome: 'released', reason: 'release' }],
  ]) {
    const host = await guardHost(t, TWO)
    process.kill(host.guard, 'SIGSTOP')
    await until(() => stat(host.guard).state === 'T', 'a guard that is stopped')
    t.like(await host.do(`return group.${ask}`), { ...expected, by: 'guard' })
    t.is(host.held().length, 1)
    for (const pid of host.others()) killMarked(pid, host.mark)
    await until(() => host.others().length === 0, 'the end of all')
  }
})

test('a guard that is killed while the leader exits', async (t) => {
  const host = await guardHost(t, TWO)
  process.kill(host.guard, 'SIGSTOP')
  await until(() => stat(host.guard).state === 'T', 'a guard that is stopped')
  await host.do("process.kill(child.pid, 'SIGKILL'); await once(child, 'exit')")
  t.is(host.others().length, 2)
  process.kill(host.guard, 'SIGKILL')
  const report = await host.do('return group.ended')
  // The next one has the leader's name, which outlives its number; or says what it cannot know.
  if (report.outcome === 'ended') {
    t.like(report, { by: 'guard', reason: 'exit', leftoverCount: 2 })
    t.deepEqual(host.others(), [])
  } else {
    t.like(report, { outcome: 'unconfirmed', by: 'host', reason: 'guard-gone', notice: notices.end })
    for (const pid of host.others()) killMarked(pid, host.mark)
  }
  await until(() => host.others().length === 0, 'the end of all')
})

// ---- helpers that are none
const NATIVE = fileURLToPath(new URL('../npm/linux-x64-gnu/', import.meta.url))
const HELPER = 'holdfast-helper.node'
const { version } = JSON.parse(readFileSync(`${NATIVE}package.json`, 'utf8'))
/** By which a helper of this version is known. */
const NAMED = `holdfast-helper ${version}: `

/** A folder like the platform package's. */
function packaged(t) {
  const at = join(folder(t), 'native')
  mkdirSync(at)
  for (const name of ['holdfast.linux-x64-gnu.node', 'package.json', HELPER])
    copyFileSync(join(NATIVE, name), join(at, name))
  return { helper: join(at, HELPER), env: { HOLDFAST_BINARY_PATH: at } }
}

for (const [what, make] of Object.entries({
  'is missing': (path) => rmSync(path),
  'leaves without a word': (path) => copyFileSync('/bin/true', path),
  'cannot be executed': (path) => writeFileSync(path, 'no program'),
  'says something else': (path) => writeFileSync(path, `#!/bin/sh\n# ${NAMED}\necho hello >&0\necho hello\n`),
}))
  test(`bad helper: one that ${what}: guard() rejects, and the child runs on`, async (t) => {
    const { helper, env } = packaged(t)
    rmSync(helper)
    copyFileSync(join(NATIVE, HELPER), helper)
    make(helper)
    const host = await orderedHost(t, shellOf('sleep 60 & wait'), { env })
    const error = await host.error('await guard(child)')
    t.like(error, { name: 'HoldfastError', code: 'ERR_HOLDFAST_NO_HELPER', step: 'helper', ran: true })
    t.is(error.notice, notices.helper)
    t.regex(error.message, /^guard \d+: it is not guarded: no holdfast helper is available: \S/)
    const pid = await host.do('return child.pid')
    await until(() => `${childrenOf(host.pid)}` === `${pid}`, 'the end of every failed helper')
    t.is(host.others().length, 2)
    for (const pid of host.others()) killMarked(pid, host.mark)
  })

/** A host whose guards say this, and leave. */
async function saying(t, text) {
  const { helper, env } = packaged(t)
  const lines = (what) => readFileSync(`${helper}-${what}`, 'utf8').trimEnd().split('\n')
  rmSync(helper)
  writeFileSync(helper, `#!/bin/sh\n# ${NAMED}\necho start >> "$0-starts"\n${text}\n`)
  chmodSync(helper, 0o755)
  const host = await orderedHost(t, "const child = plain('sleep', ['60'], { detached: true, stdio: 'ignore' })", {
    env,
  })
  return { ...host, starts: () => lines('starts').length, told: () => lines('told') }
}

for (const [what, text] of Object.entries({
  'a last line before its first': "echo 'ended exit 0 0'",
  'a process before its first line': "echo 'leftover 12 sleep'; echo 'ready pin'; echo 'ended exit 0 0'",
  'half a first line': "printf 'ready pi'",
  'to be ready in a way that there is not': "echo 'ready magic'; echo 'ended exit 0 0'",
  'that it refuses for a reason that there is not': "echo 'refused because'",
  'a line without an end': "head -c 100000 /dev/zero | tr '\\0' x",
  HTTP: "printf 'HTTP/1.1 400 Bad Request\\r\\n\\r\\n'",
}))
  test(`bad messages: a guard that says ${what} is started once more and given up`, async (t) => {
    const host = await saying(t, text)
    t.like(await host.error('await guard(child)'), { code: 'ERR_HOLDFAST_NO_HELPER', step: 'helper', ran: true })
    t.is(host.starts(), 2)
    t.is(host.others().length, 1)
    await host.do("child.kill('SIGKILL'); await once(child, 'exit')")
  })

for (const [why, reason] of Object.entries({
  unheld: /no way to hold/,
  dead: /has ended/,
  member: /could not join or leave its process group/,
  table: /process table/,
}))
  test(`a guard that refuses (${why}) is not started again`, async (t) => {
    const host = await saying(t, `echo 'refused ${why}'; exit 70`)
    const error = await host.error('await guard(child)')
    t.like(error, { name: 'HoldfastError', code: 'ERR_HOLDFAST_GUARD', step: 'guard', ran: true })
    t.regex(error.message, reason)
    t.is(host.starts(), 1)
    await host.do("child.kill('SIGKILL'); await once(child, 'exit')")
  })

test('what a guard says is told as it is', async (t) => {
  const names = "echo 'leftover 12 na\\303\\257ve name'; echo 'leftover 13 '; echo 'survivor 14 a-b:c/d'"
  for (const [last, expected] of [
    ['ended exit 1500 70', { outcome: 'ended', reason: 'exit', proofTime: 1.5, leftoverCount: 70 }],
    ['survivors end 5000000 2', { outcome: 'survivors', reason: 'end', proofTime: 5000, notice: notices.end }],
    ['unconfirmed exit 0 2', { outcome: 'unconfirmed', by: 'guard', notice: notices.end }],
    ['refused end 0 0', { outcome: 'refused', by: 'guard', leftoverCount: 0, notice: notices.end }],
    ['ended host-gone 0 0', { outcome: 'ended', reason: 'host-gone' }],
  ]) {
    const host = await saying(t, `echo 'ready pin'; ${names}; echo '${last}'`)
    const report = await host.do('return (await guard(child)).ended')
    t.like(report, { mechanism: 'group', by: 'guard', ...expected })
    t.is(report.notice, expected.notice)
    t.deepEqual(report.leftovers, [
      { pid: 12, name: 'naïve name' },
      { pid: 13, name: '' },
    ])
    t.deepEqual(report.survivors, [{ pid: 14, name: 'a-b:c/d' }])
    t.is(host.starts(), 1)
    await host.do("child.kill('SIGKILL'); await once(child, 'exit')")
  }
})

for (const [what, text] of Object.entries({
  leaves: '',
  'says something else': 'echo hello; read -r word; echo "$word" >> "$0-told"',
  'says so twice': "echo 'ready pin'; read -r _",
}))
  test(`a guard that is ready and ${what}, again and again, is given up: unconfirmed`, async (t) => {
    const host = await saying(t, `echo 'ready pin'; ${text}`)
    const report = await host.do('return (await guard(child)).ended')
    t.like(report, { outcome: 'unconfirmed', by: 'host', reason: 'guard-gone', notice: notices.end })
    t.true(host.starts() > 2 && host.starts() <= 32, `${host.starts()}`)
    t.true(isAlive(await host.do('return child.pid')))
    await host.do("child.kill('SIGKILL'); await once(child, 'exit')")
    await until(() => host.others().length === 0, 'the end of all guards')
    // A guard that is given up, and may be one after all, is not to end the group.
    if (text.includes('told')) t.deepEqual(new Set(host.told()), new Set(['release']))
  })

test('bad helper: one that says nothing is given up', async (t) => {
  const { helper, env } = packaged(t)
  const host = await orderedHost(t, shellOf('sleep 60 & wait'), { env })
  rmSync(helper)
  writeFileSync(helper, `#!/bin/sh\n# ${NAMED}\nread -r line\n`)
  chmodSync(helper, 0o755)
  t.like(await host.error('await guard(child)'), { code: 'ERR_HOLDFAST_NO_HELPER', ran: true })
  t.is(host.others().length, 2)
  for (const pid of host.others()) killMarked(pid, host.mark)
})

test('a guard that cannot be replaced: unconfirmed, with the notice', async (t) => {
  for (const follower of [undefined, '/bin/true']) {
    const { helper, env } = packaged(t)
    const host = await guardHost(t, TWO, { env })
    rmSync(helper)
    if (follower !== undefined) copyFileSync(follower, helper)
    process.kill(host.guard, 'SIGKILL')
    t.like(await host.do('return group.ended'), {
      outcome: 'unconfirmed',
      mechanism: 'group',
      by: 'host',
      reason: 'guard-gone',
      notice: notices.end,
    })
    t.like(await host.do('return group.end()'), { outcome: 'unconfirmed' })
    livesOn(t, ...host.members)
    for (const pid of host.members) killMarked(pid, host.mark)
    await until(() => host.others().length === 0, 'the end of all')
  }
})

test('a guard that is gone before release() could be handed over: unconfirmed, with the notice of that', async (t) => {
  const { helper, env } = packaged(t)
  const host = await guardHost(t, TWO, { env })
  rmSync(helper)
  t.like(await host.do(`process.kill(${host.guard}, 'SIGKILL'); return group.release()`), {
    outcome: 'unconfirmed',
    by: 'host',
    reason: 'guard-gone',
    notice: notices.release,
  })
  livesOn(t, ...host.members)
  for (const pid of host.members) killMarked(pid, host.mark)
})

// ---- in the host
test('a guard does not keep its host alive; a promise of its end does (C64)', async (t) => {
  const start = `${shellOf("trap '' TERM; while :; do sleep 1; done")}
    const group = await guard(child)
    child.unref()
    const told = ({ outcome }) => fs.writeSync(2, outcome + '\\n')
  `
  const leave = 'process.stdin.destroy(); return new Promise(() => {})'
  const idle = await orderedHost(t, start)
  idle.tell(leave)
  t.deepEqual(await idle.exited, { code: 0, signal: null })
  await noneMarked(idle.mark)

  for (const [code, outcome] of [
    ['group.end({ grace: 300 }).then(told)', 'ended'],
    ["group.ended.then(told); child.kill('SIGKILL')", 'ended'],
    ['group.release().then(told)', 'released'],
  ]) {
    const waiting = await orderedHost(t, start)
    waiting.tell(`${code}; ${leave}`)
    t.deepEqual(await waiting.exited, { code: 0, signal: null })
    await until(() => waiting.said.includes(outcome), 'the word of the end')
    for (const pid of waiting.others()) killMarked(pid, waiting.mark)
    await noneMarked(waiting.mark)
  }
})

test('an AsyncLocalStorage store is kept (C74)', async (t) => {
  const { AsyncLocalStorage } = await import('node:async_hooks')
  const storage = new AsyncLocalStorage()
  const child = lead(t, 'sleep 60')
  await storage.run('mine', async () => {
    const group = await guard(child)
    t.is(storage.getStore(), 'mine')
    await group.end()
    t.is(storage.getStore(), 'mine')
  })
})

test('a worker thread is terminated: its groups are ended, the main thread’s are not (C65)', async (t) => {
  const worker = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { spawn } = require('node:child_process')
    const { guard } = require(workerData)
    const child = spawn('bash', ['-c', 'sleep 60 & sleep 60 & wait'], { detached: true, stdio: 'ignore' })
    guard(child).then(() => parentPort.postMessage(child.pid))
  `
  const host = await guardHost(t, TWO)
  const theirs = await host.do(`
    const { Worker } = require('node:worker_threads')
    globalThis.worker = new Worker(${JSON.stringify(worker)}, { eval: true, workerData: ${JSON.stringify(HOLDFAST)} })
    return (await once(worker, 'message'))[0]
  `)
  await until(() => host.others().length === 6, 'both groups')
  t.true(isAlive(theirs))
  await host.do('return worker.terminate()')
  await until(() => host.others().length === 3, 'the end of the group of the worker')
  livesOn(t, ...host.members)
  t.like(await host.do('return group.end()'), { outcome: 'ended', reason: 'end' })
  await until(() => guardsOf(host.pid).length === 0, 'the end of both guards')
})

test('a hundred guards leave neither descriptor nor zombie in their host (C07)', async (t) => {
  const many = (count) => programOf('guard/many', { count })
  const host = await orderedHost(t, '')
  t.is(await host.do(many(2)), 2)
  await until(() => childrenOf(host.pid).length === 0, 'no child, zombies included')
  const before = [...descriptors(host.pid).values()].length
  t.is(await host.do(many(100)), 100)
  await until(() => childrenOf(host.pid).length === 0, 'no child, zombies included')
  t.is([...descriptors(host.pid).values()].length, before)
})

test('the leader exits while end() is on its way: the report always arrives (C69)', async (t) => {
  const host = await orderedHost(t, '')
  const reports = await host.do(programOf('guard/end-beside-exit'))
  for (const report of reports) {
    t.like(report, { outcome: 'ended', by: 'guard' })
    t.true(['exit', 'end'].includes(report.reason))
  }
  t.is(host.held().length, 40)
  await until(() => host.others().length === 0, 'the end of all')
})

test('the IPC channel of a forked child works on', async (t) => {
  const host = await guardHost(t, users['child_process.fork with IPC'])
  t.is(await host.do("child.send('round'); return (await once(child, 'message'))[0]"), 'round')
  t.like(await host.do('return group.end()'), { outcome: 'ended' })
  t.false(await host.do("if (child.connected) await once(child, 'disconnect'); return child.connected"))
})

test('running() does not list a guard', async (t) => {
  const child = lead(t, 'sleep 60')
  const group = await guard(child)
  t.is(group.group, child.pid)
  t.deepEqual(running(), [])
  await group.end()
})

test('the number of a child is as good as its handle', async (t) => {
  const child = lead(t, 'sleep 60')
  const group = await guard(child.pid)
  t.is(group.group, child.pid)
  t.like(await group.end(), { outcome: 'ended' })
})

// ---- C30
/** In a pid namespace of its own, where a signal to everybody would reach nobody else. */
const NAMESPACE = [
  ...['unshare', '--pid', '--mount', '--fork', '--kill-child', '--mount-proc'],
  ...['sh', '-c', '"$@"; exit', 'sh'],
]

test('guard() takes no wrong pid, and signals nothing (C30)', async (t) => {
  const host = await orderedHost(
    t,
    `
    const own = plain('sleep', ['50'], { stdio: 'ignore' })
    const stranger = plain('sleep', ['50'], { stdio: 'ignore', detached: true })
    const unstarted = plain('/no/such/program')
    const caught = []
    for (const name of ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGCONT']) process.on(name, () => caught.push(name))
    await Promise.all([once(own, 'spawn'), once(stranger, 'spawn'), once(unstarted, 'error')])
    `,
    { command: [...NAMESPACE, process.execPath] },
  )
  const answer = await host.do(programOf('guard/wrong-pids'))
  const range = Array(2).fill('ERR_OUT_OF_RANGE')
  const type = Array(2).fill('ERR_INVALID_ARG_TYPE')
  const value = Array(2).fill('ERR_INVALID_ARG_VALUE')
  t.deepEqual(answer.codes, {
    0: range,
    1: range,
    '-1': range,
    NaN: range,
    1.5: range,
    '2^31': range,
    '2^32': range,
    Infinity: range,
    negative: range,
    own: value,
    text: type,
    bigint: type,
    null: type,
    nothing: ['ERR_INVALID_ARG_TYPE', 'ERR_INVALID_ARG_VALUE'],
    unstarted: 'ERR_INVALID_ARG_VALUE',
    object: 'ERR_INVALID_ARG_VALUE',
    function: 'ERR_INVALID_ARG_TYPE',
    inOwnGroup: 'ERR_HOLDFAST_GUARD',
    numberInOwnGroup: 'ERR_HOLDFAST_GUARD',
    'option null': 'ERR_INVALID_ARG_TYPE',
    'option text': 'ERR_INVALID_ARG_TYPE',
    'option signal': 'ERR_INVALID_ARG_TYPE',
    'option background': 'ERR_INVALID_ARG_VALUE',
  })
  t.deepEqual(answer.caught, ['SIGCONT'])
  t.deepEqual([answer.own, answer.stranger], [Array(2).fill(null), Array(2).fill(null)])
})

/** Refused, for this reason, with the way out; nothing was started, and nothing was signalled. */
async function isRefused(t, target, reason) {
  const error = await t.throwsAsync(guard(target), { code: 'ERR_HOLDFAST_GUARD' }, `${reason}`)
  t.true(HoldfastError.is(error))
  t.like(error, { step: 'guard', ran: true })
  t.regex(error.message, reason)
  t.regex(error.message, /nothing was signalled/)
  t.regex(error.message, /spawn\(\)/)
  t.deepEqual(guardsOf(process.pid), [])
}

test('a child in the group of the host (C30)', async (t) => {
  const child = lead(t, 'sleep 60 & wait', { detached: false })
  await until(() => child.live().length === 2, 'both')
  const before = child.live()
  await isRefused(t, child, /in the process group of this process/)
  livesOn(t, ...before)
  for (const pid of before) killMarked(pid, child.mark)
})

test('processes that are no child of the host: its parent, a grandchild, the first process (C30)', async (t) => {
  const child = lead(t, 'setsid bash -c "echo \\$\\$; exec sleep 60" & wait')
  const grandchild = Number(await linesOf(child.stdout).next())
  t.is(stat(grandchild).pgrp, grandchild)
  await isRefused(t, grandchild, /not a child of this process/)
  await isRefused(t, { pid: process.ppid }, /not a child of this process/)
  livesOn(t, grandchild, process.ppid, child.pid)
  killMarked(grandchild, child.mark)
})

test('a call of holdfast is no child of the host (C30)', async (t) => {
  const host = await orderedHost(t, "const child = spawn('sleep', ['60'], { stdio: 'ignore' })")
  t.like(await host.error('await guard(child)'), { code: 'ERR_HOLDFAST_GUARD', ran: true })
  t.regex((await host.error('await guard(child.pid)')).message, /not a child of this process/)
  t.deepEqual(await host.do('return [child.exitCode, child.signalCode]'), [null, null])
  t.like(await host.do('return child.end()'), { outcome: 'ended', by: 'keeper', reason: 'end' })
})

test('a child that is dead: unreaped, reaped, by its handle and by its number (C30)', async (t) => {
  const zombie = lead(t, 'sleep 60', { stdio: 'ignore' })
  zombie.kill('SIGKILL')
  // Nothing is reaped while this loop stands.
  while (stat(zombie.pid)?.state !== 'Z');
  await isRefused(t, zombie.pid, /has ended/)
  if (zombie.signalCode === null) await once(zombie, 'exit')
  await isRefused(t, zombie, /has ended/)
  await isRefused(t, zombie.pid, /not a child of this process, or has already been waited for/)
})

test('a dead child with living ones in its group: they live on (C30)', async (t) => {
  const child = lead(t, 'sleep 60 & echo $!; read _')
  const sleeper = Number(await linesOf(child.stdout).next())
  child.kill('SIGKILL')
  await once(child, 'exit')
  await isRefused(t, child.pid, /has already been waited for/)
  t.true(isAlive(sleeper))
  killMarked(sleeper, child.mark)
})

test('a child that does not lead the group that it is in (C30)', async (t) => {
  const mark = newMark()
  const python = (...args) => {
    const options = { stdio: ['ignore', 'pipe', 'inherit'], env: { ...env, MARK: mark } }
    const child = spawn(PYTHON, [fixture('own-group.py'), ...args], options)
    t.teardown(() => child.kill('SIGKILL'))
    return child
  }
  const leader = python()
  await once(leader.stdout, 'data')
  const member = python(`${leader.pid}`)
  await once(member.stdout, 'data')
  t.is(stat(member.pid).pgrp, leader.pid)
  const all = marked(mark)
  t.is(all.length, 6)
  await isRefused(t, member, /does not lead a process group/)
  livesOn(t, ...all)
  const group = await guard(leader)
  t.like(await group.end(), { outcome: 'ended', leftoverCount: 5 })
  t.deepEqual(marked(mark), [])
})
