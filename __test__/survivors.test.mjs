// Who is reported as a survivor, and who must not be: processes that refuse SIGKILL, that are still dying, that wait to be
// reaped by others, and thousands that die at once.
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { endAll, spawn } from '../dist/index.js'
import { hostOfAnother as startHostOfAnother } from './support/another-user.mjs'
import { keeperOf, run as runOnCommandLine } from './support/command-line.mjs'
import {
  childrenOf,
  comm,
  gone,
  helpersOf,
  isAlive,
  keepersOf,
  marked,
  noneMarked,
  stat,
  until,
} from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { mark, env } = suite(test)

// ---- members of a pid namespace whose parents are outside of it
const FORMS = {
  'by root': ['unshare', '--pid'],
  'in a user namespace': ['unshare', '-Ur', '--pid'],
}
/** Its first member is a `sleep`, and has two fellows: all three are started by a shell outside. */
const members = (form, last = 'exec sleep 33') => `${FORMS[form].join(' ')} sh -c 'sleep 31 & sleep 32 & ${last}'`
const noNamespace = (form) => {
  const [file, ...args] = FORMS[form]
  const { status, error, stderr } = spawnSync(file, [...args, 'true'], { encoding: 'utf8' })
  return status === 0 ? '' : `${form}: no pid namespace can be made: ${error?.message ?? stderr.trim()}`
}

/** Starts a shell with such members below it, and waits until all three run. */
async function started(form, before = '') {
  const child = spawn('bash', ['-c', `${before}${members(form)} & wait`], { stdio: 'ignore', env })
  await until(() => sleepers().length === 3, 'three sleepers')
  return child
}
const sleepers = () => marked(mark).filter((pid) => comm(pid) === 'sleep')
const BUDGET = 5000

for (const form of Object.keys(FORMS)) {
  test(`members of a pid namespace with parents outside are ended, not waited for: end(), ${form} (C77)`, async (t) => {
    if (!has(t, noNamespace(form))) return
    const child = await started(form, 'setsid ')
    const report = await child.end({ grace: 0 })
    t.like(report, { outcome: 'ended', reason: 'end', by: 'keeper', survivors: [] })
    t.true(report.proofTime < BUDGET)
    t.deepEqual(marked(mark), [])
  })

  test(`the same by the spawn helper, when the keeper is lost: ${form} (C77)`, async (t) => {
    if (!has(t, noNamespace(form))) return
    const child = await started(form)
    process.kill(stat(child.pid).ppid, 'SIGKILL')
    const report = await child.ended
    t.like(report, { outcome: 'ended', reason: 'keeper-gone', by: 'helper', survivors: [] })
    t.true(report.proofTime < BUDGET)
    t.deepEqual(marked(mark), [])
  })

  test(`the same by the runner, when its keeper is lost: ${form} (C77)`, async (t) => {
    if (!has(t, noNamespace(form))) return
    const running = runOnCommandLine(['--', 'bash', '-c', `${members(form)} & echo up; wait`])
    await running.shows('up')
    await until(() => marked(running.mark).filter((pid) => comm(pid) === 'sleep').length === 3, 'three sleepers')
    process.kill(await keeperOf(running.child.pid), 'SIGKILL')
    t.deepEqual(await running.exited, { code: 125, signal: null })
    t.true(running.err().includes('everything that the command started was ended'), running.err())
    t.deepEqual(marked(running.mark), [])
  })

  test(`the same when the host is killed: helper and keeper leave: ${form} (C77)`, async (t) => {
    if (!has(t, noNamespace(form))) return
    const host = startHost(
      `spawn('bash', ['-c', ${JSON.stringify(`setsid ${members(form)} & wait`)}], { stdio: 'ignore', grace: 0 })
       setInterval(() => {}, 1000)`,
      { env },
    )
    await until(() => sleepers().length === 3, 'three sleepers')
    const [helper] = helpersOf(host.pid)
    const family = [helper, ...keepersOf(helper)]
    host.kill()
    await noneMarked(mark, BUDGET)
    await gone(family, BUDGET)
    t.pass()
  })
}

test('what dies of the first signal is reaped in the grace: its namespace does not wait for the grace to be over (C77)', async (t) => {
  if (!has(t, noNamespace('by root'))) return
  // The first member heeds SIGTERM, which it must do by a handler: it is process 1 in there.
  const script = `unshare --pid sh -c 'bash -c "trap exit\\ 0 TERM; sleep 30 & echo up; wait" & sleep 32 & exec sleep 33' & wait`
  const child = spawn('bash', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'], env, grace: 60_000 })
  await once(child.stdout, 'data')
  await until(() => sleepers().length === 3, 'three sleepers')
  t.like(await child.end(), { outcome: 'ended', proofTime: 0, survivors: [] })
  t.deepEqual(marked(mark), [])
})

test('members of a nested pid namespace are counted among the leftovers (C80)', async (t) => {
  if (!has(t, noNamespace('by root'))) return
  const script = `unshare --pid --fork sh -c 'sleep 31 & sleep 32 & sleep 33; :' & wait`
  const child = spawn('bash', ['-c', script], { stdio: 'ignore', env })
  await until(() => sleepers().length === 3, 'three sleepers')
  const { outcome, leftovers, leftoverCount } = await child.end({ grace: 0 })
  t.deepEqual(leftovers.map(({ name }) => name).sort(), ['sh', 'sleep', 'sleep', 'sleep', 'unshare'])
  t.deepEqual([outcome, leftoverCount], ['ended', 5])
})

// ---- who refuses
/** A host that is not root, and a program that it can start and cannot signal. `undefined`: skipped. */
const hostOfAnother = (t, body) => startHostOfAnother(t, 'refuses', body, { env })

test('a first process that refuses SIGKILL is named as a survivor (C80)', async (t) => {
  const host = hostOfAnother(
    t,
    `const child = await started('exec "$0" 2000')
     const { pid } = child
     const { outcome, survivors, leftovers } = await child.end({ grace: 0 })
     report({ pid, outcome, survivors, leftovers })
     process.stdin.resume()`,
  )
  if (host === undefined) return
  const { pid, outcome, survivors, leftovers } = await host.next()
  t.deepEqual([outcome, survivors, leftovers], ['survivors', [{ pid, name: 'refuses' }], []])
  t.true(isAlive(pid))
})

test('what refuses SIGKILL and exits by itself when the others are gone is no survivor (C80)', async (t) => {
  const host = hostOfAnother(
    t,
    `const child = await started('{ sleep 30; } | "$0" 150; :')
     const { outcome, survivors, leftovers } = await child.end({ grace: 0 })
     report({ outcome, survivors, names: leftovers.map(({ name }) => name).sort() })`,
  )
  if (host === undefined) return
  const { outcome, survivors, names } = await host.next()
  t.deepEqual([outcome, survivors], ['ended', []])
  t.true(names.includes('refuses'), `${names}`)
})

test('a brood that does not end spoils no other one: the next lost keeper’s is ended and reported (C80)', async (t) => {
  const host = hostOfAnother(t, programOf('survivors/one-after-the-other'))
  if (host === undefined) return
  const [stubborn, mild] = await host.next()
  const [helper] = helpersOf(host.pid)
  const keepers = [stubborn, mild].map((pid) => stat(pid).ppid)
  process.kill(keepers[0], 'SIGKILL')
  t.deepEqual(await host.next(), { outcome: 'survivors', by: 'helper', survivors: ['refuses'], leftoverCount: 1 })
  process.kill(keepers[1], 'SIGKILL')
  // Its first process is not known to be that by the helper.
  t.deepEqual(await host.next(), { outcome: 'ended', by: 'helper', survivors: [], leftoverCount: 3 })
  // What is stuck exits in the end: it is reaped, and the helper leaves.
  host.kill()
  await gone([helper])
  await noneMarked(mark)
})

test('two keepers that are lost at once: what lives on is named in both reports (C80)', async (t) => {
  const host = hostOfAnother(
    t,
    `const mild = await started('sleep 30 & echo up >&2; wait')
     const stubborn = await started('"$0" 3000; :')
     report([mild.pid, stubborn.pid])
     for (const call of [mild, stubborn]) {
       const { outcome, by, survivors } = await call.ended
       report({ outcome, by, survivors: survivors.map(({ name }) => name) })
     }`,
  )
  if (host === undefined) return
  const keepers = (await host.next()).map((pid) => stat(pid).ppid)
  const [helper] = helpersOf(host.pid)
  // So that it learns of both at once.
  process.kill(helper, 'SIGSTOP')
  try {
    for (const keeper of keepers) process.kill(keeper, 'SIGKILL')
    await gone(keepers)
  } finally {
    process.kill(helper, 'SIGCONT')
  }
  // It cannot tell whose it is: both reports name it.
  const told = { outcome: 'survivors', by: 'helper', survivors: ['refuses'] }
  t.deepEqual([await host.next(), await host.next()], [told, told])
  host.kill()
  await gone([helper])
  await noneMarked(mark)
})

test('a keeper that is lost while another one’s brood is ended: that one’s survivors are not its own (C80)', async (t) => {
  const host = hostOfAnother(
    t,
    `const stubborn = await started('sleep 30 & "$0" 3000; :')
     const mild = await started('sleep 30 & echo up >&2; wait')
     report([stubborn.pid, mild.pid])
     for (const call of [stubborn, mild]) {
       const { outcome, survivors } = await call.ended
       report({ outcome, survivors: survivors.map(({ name }) => name) })
     }`,
  )
  if (host === undefined) return
  const firsts = await host.next()
  const keepers = firsts.map((pid) => stat(pid).ppid)
  const sleep = childrenOf(firsts[0]).find((pid) => comm(pid) === 'sleep')
  const [helper] = helpersOf(host.pid)
  process.kill(keepers[0], 'SIGKILL')
  await until(() => stat(sleep) === undefined, 'the first deaths of its brood')
  process.kill(keepers[1], 'SIGKILL')
  t.deepEqual(await host.next(), { outcome: 'survivors', survivors: ['refuses'] })
  t.deepEqual(await host.next(), { outcome: 'ended', survivors: [] })
  host.kill()
  await gone([helper])
  await noneMarked(mark)
})

test('a large family below what refuses SIGKILL is ended: only that one survives (C80)', async (t) => {
  const host = hostOfAnother(
    t,
    `const child = await started('for i in $(seq 40); do setsid sleep 30 & done; exec "$0" 2000')
     const { outcome, survivors, leftoverCount } = await child.end({ grace: 0 })
     report({ outcome, survivors: survivors.map(({ name }) => name), leftoverCount })
     process.stdin.resume()`,
  )
  if (host === undefined) return
  t.deepEqual(await host.next(), { outcome: 'survivors', survivors: ['refuses'], leftoverCount: 40 })
})

test('a zombie below what refuses SIGKILL is no survivor, and is not waited for (C80)', async (t) => {
  const host = hostOfAnother(t, programOf('survivors/zombie-below'))
  if (host === undefined) return
  const { proofTime, ...report } = await host.next()
  t.deepEqual(report, { outcome: 'survivors', survivors: ['refuses'] })
  t.true(proofTime < BUDGET, `${proofTime}`)
})

// ---- many
test('2,000 calls that are ended at once: none is reported as surviving (C82)', async (t) => {
  const COUNT = 2000
  const limit = Number(spawnSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).stdout) || Number.POSITIVE_INFINITY
  if (!has(t, limit > 3 * COUNT ? '' : `the limit on open files is ${limit}`)) return
  const calls = Array.from({ length: COUNT }, () => spawn('sleep', ['50'], { stdio: 'ignore', env }))
  await Promise.all(calls.map((call) => once(call, 'spawn')))
  const outcomes = (await endAll({ grace: 0 })).map(({ outcome }) => outcome)
  t.deepEqual([outcomes.length, outcomes.filter((outcome) => outcome !== 'ended')], [COUNT, []])
})
