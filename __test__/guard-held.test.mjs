// The ways to hold a group, one after the other: what the kernel refuses decides which one it is, and all come to the
// same ends.
import { gone, guardsOf, isAlive, noneMarked, stat, statusOf, until } from './support/facts.mjs'
import { compiled } from './support/fixtures.mjs'
import { ends, guardHost, orderedHost, ownGroup, shellOf, users } from './support/guard.mjs'
import { killMarked, suite } from './support/suite.mjs'
import test from './support/test.mjs'

suite(test)

const ignoresTerm = (pid) => ((BigInt(`0x${statusOf(pid, 'SigIgn')}`) >> 14n) & 1n) === 1n
const TWO = { start: shellOf('sleep 60 & sleep 60 & wait'), count: 3 }
const spawned = users['child_process.spawn']

const kernels = {
  'this one': { rules: [], held: 'pidfd' },
  'pidfd_open refused': { rules: ['no-pidfd'], held: 'pidfd' },
  'no signal to a group by a pidfd': { rules: ['no-group-signal'], held: 'members' },
  'neither of both': { rules: ['no-pidfd', 'no-group-signal'], held: 'members' },
}

for (const [kernel, { rules, held }] of Object.entries(kernels)) {
  /** A host on such a kernel that guards this; undefined where the filter cannot be built. */
  const hostOf = async (t, form, more) => {
    const filter = compiled(t, 'filter')
    return filter && guardHost(t, form, { command: [filter, ...rules, '--', process.execPath], ...more })
  }
  const about = `${kernel}:`

  for (const [end, come] of Object.entries(ends)) {
    test(`${about} a group of another session is ended by ${end} (C52)`, async (t) => {
      const host = await hostOf(t, spawned)
      if (host === undefined) return
      t.deepEqual(host.held(), [held])
      await come(t, host)
    })

    test(`${about} a group of the host's session is ended by ${end} (C52)`, async (t) => {
      const host = await hostOf(t, ownGroup)
      if (host === undefined) return
      t.deepEqual(host.held(), ['pin'])
      await come(t, host)
    })
  }

  test(`${about} members that came after the guard, and the exit of the leader (C52 C05)`, async (t) => {
    const form = { start: shellOf('read _; sleep 60 & sleep 60 & wait', ['pipe', 'ignore', 'ignore']), count: 1 }
    const host = await hostOf(t, form)
    if (host === undefined) return
    await host.do("child.stdin.write('\\n')")
    await until(() => host.others().length === 3, 'the members')
    const report = await host.do("process.kill(child.pid, 'SIGKILL'); return group.ended")
    t.like(report, { outcome: 'ended', reason: 'exit' }, JSON.stringify(report))
    t.deepEqual(host.others(), [])
  })

  test(`${about} what ignores SIGTERM, is stopped, or has left the group by its chain of parents (C52)`, async (t) => {
    const script = `trap '' TERM; setsid sleep 60 & bash -c 'kill -STOP $$' & while :; do sleep 1; done`
    const isSettled = (pids) =>
      pids.some((pid) => stat(pid)?.state === 'T') && pids.filter((pid) => stat(pid)?.session === pid).length === 2
    const host = await hostOf(t, { start: shellOf(script), count: 3, isSettled })
    if (host === undefined) return
    t.like(await host.do('return group.end({ grace: 200 })'), { outcome: 'ended', reason: 'end' })
    t.deepEqual(host.others(), [])
  })

  test(`${about} what was found is ended when the first signal has taken its parent (C52 C80)`, async (t) => {
    const script = `setsid bash -c 'trap "" TERM; sleep 60; :' & sleep 60`
    const isSettled = (pids) => pids.some((pid) => stat(pid)?.session === pid && ignoresTerm(pid))
    const host = await hostOf(t, { start: shellOf(script), count: 4, isSettled })
    if (host === undefined) return
    const report = await host.do('return group.end({ grace: 200 })')
    t.deepEqual(host.others(), [])
    t.like(report, { outcome: 'ended', reason: 'end', leftoverCount: 3, survivors: [] }, JSON.stringify(report))
  })

  test(`${about} members that come and go, and a leader that leaves before them (C52)`, async (t) => {
    // Generations of shells, of which each leaves when it has started the next one; bounded by 10 s.
    const script = `
      next() { [ $SECONDS -lt 10 ] && (next) & }
      next; read _
    `
    const start = shellOf(script, ['pipe', 'ignore', 'ignore'])
    const host = await hostOf(t, { start, count: 2 }, { options: "{ background: 'keep' }" })
    if (host === undefined) return
    await host.do("child.stdin.end(); await once(child, 'exit')")
    const report = await host.do('return group.end({ grace: 0 })')
    t.like(report, { outcome: 'ended', reason: 'end' }, `${held}: ${JSON.stringify(report)}`)
    t.deepEqual(host.others(), [])
  })

  test(`${about} background 'keep', release(), and a guard that is killed (C52)`, async (t) => {
    const form = { start: shellOf('sleep 60 & sleep 60 & read _', ['pipe', 'ignore', 'ignore']), count: 3 }
    const host = await hostOf(t, form, { options: "{ background: 'keep' }" })
    if (host === undefined) return
    process.kill(host.guard, 'SIGKILL')
    t.deepEqual(await host.nowHeld(2), [held, held])
    const sleepers = host.members.filter((pid) => pid !== host.leader)
    await host.do("child.stdin.end(); await once(child, 'exit')")
    t.deepEqual(sleepers.filter(isAlive), sleepers)
    t.like(await host.do('return group.release()'), { outcome: 'released', by: 'guard', reason: 'release' })
    host.kill()
    await host.exited
    await until(() => guardsOf(host.pid).length === 0, 'the end of the guard')
    t.deepEqual(sleepers.filter(isAlive), sleepers)
    for (const pid of sleepers) killMarked(pid, host.mark)
    await noneMarked(host.mark)
  })

  test(`${about} a guard that is killed, and then the host (C52)`, async (t) => {
    const host = await hostOf(t, TWO)
    if (host === undefined) return
    process.kill(host.guard, 'SIGKILL')
    await host.nowHeld(2)
    const [guardian] = guardsOf(host.pid)
    host.kill()
    await noneMarked(host.mark)
    await gone([guardian])
    t.pass()
  })

  test(`${about} what it refuses, it refuses here as well (C52 C30)`, async (t) => {
    const filter = compiled(t, 'filter')
    if (filter === undefined) return
    const start = `
      const own = plain('sleep', ['60'], { stdio: 'ignore' })
      const zombie = plain('sleep', ['60'], { stdio: 'ignore', detached: true })
      const outer = plain('bash', ['-c', 'setsid bash -c "echo \\\\$\\\\$; exec sleep 60" & wait'], {
        detached: true, stdio: ['ignore', 'pipe', 'ignore'],
      })
      const grandchild = Number((await once(outer.stdout, 'data'))[0])
    `
    const host = await orderedHost(t, start, { command: [filter, ...rules, '--', process.execPath] })
    const refusal = async (code) => {
      const { code: is, message } = await host.error(`await guard(${code})`)
      t.is(is, 'ERR_HOLDFAST_GUARD', message)
      return message
    }
    t.regex(await refusal('own'), /in the process group of this process/)
    t.regex(await refusal('grandchild'), /not a child of this process/)
    t.regex(await refusal('process.ppid'), /not a child of this process/)
    const dead = `
      zombie.kill('SIGKILL')
      while (!fs.readFileSync('/proc/' + zombie.pid + '/stat', 'utf8').includes(') Z '));
      await guard(zombie.pid)
    `
    t.regex((await host.error(dead)).message, /it has ended/)
    t.is(guardsOf(host.pid).length, 0)
    t.is(host.others().length, 3)
    await host.do("const group = await guard(outer); await group.end(); own.kill('SIGKILL'); await once(own, 'exit')")
    await until(() => host.others().length === 0, 'the end of all')
  })
}
