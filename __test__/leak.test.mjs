// Many calls of every kind leave descriptors, threads, zombies, keepers and memory of host and helper as they were.
import { readFileSync } from 'node:fs'
import {
  childrenBesidePin,
  childrenOf,
  descriptors,
  helpersOf,
  isAlive,
  keepersOf,
  marked,
  newMark,
  stat,
  until,
} from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const LONG = !!process.env.HOLDFAST_LONG
const WARM_UP = LONG ? 1_000 : 300
const CALLS = LONG ? 5_000 : 500
/** Memory may wander by so much: feedback of the compiler, fragments of the allocators. A lost call is far more. */
const HOST_HEAP = 256 * 1024 + 100 * CALLS
const HOST_MEMORY = 3 * 1024 * 1024
const HELPER_MEMORY = 64 * 1024
const LOOKS = 20
/** Of one idle keeper the host holds a socket and a commitment. */
const HELD_PER_KEEPER = 2

suite(test, { patience: 0 })

/** Each ends with everything gone, whatever it did before. */
const BODY = programOf('leak/calls-of-every-kind')

test(`${CALLS} calls of every kind leave nothing behind in host, helper and keepers`, async (t) => {
  t.timeout(20 * 60_000)
  const mark = newMark()
  // Without the limit the young generation grows to 16 times its first size, whatever is done.
  const command = [process.execPath, '--expose-gc', '--max-semi-space-size=1']
  const host = startHost(BODY, { command, env: { CALL_NAME: mark } })
  t.teardown(() => host.kill())
  const calls = async (count) => {
    host.child.stdin.write(`${count}\n`)
    const { heap, running } = await host.next()
    t.is(running, 0)
    return { heap, ...(await settled(host.pid)) }
  }
  const before = await calls(WARM_UP)
  let after
  // In steps, each with a collection at its end, so that garbage does not spread the heap.
  for (let step = 0; step < CALLS; step += 500) after = await calls(500)
  t.log(`after ${WARM_UP} calls: ${JSON.stringify(before)}`)
  t.log(`after ${CALLS} more: ${JSON.stringify(after)}`)

  t.deepEqual(after.host.descriptors, before.host.descriptors)
  t.is(after.host.threads, before.host.threads)
  t.is(after.host.children, 1, 'the helper')
  t.true(after.heap - before.heap < HOST_HEAP, "the host's JavaScript heap")
  t.true(after.host.memory - before.host.memory < HOST_MEMORY, 'resident memory of the host')
  t.is(after.helper.pid, before.helper.pid)
  t.is(after.helper.descriptors, before.helper.descriptors)
  t.is(after.helper.threads, 1)
  t.true(after.helper.memory - before.helper.memory <= HELPER_MEMORY, 'resident memory of the helper')
  t.is(after.zombies, 0)
  t.true(after.keepers.count <= Math.max(before.keepers.count, 4), 'keepers')
  t.is(after.keepers.descriptors, before.keepers.descriptors)
  t.is(after.keepers.children, 0)
  t.true(after.keepers.memory - before.keepers.memory <= HELPER_MEMORY, 'resident memory of the largest keeper')
  t.deepEqual(marked(mark), [])

  // All of it goes with the host.
  host.child.stdin.end()
  t.deepEqual(await host.exited, { code: 0, signal: null })
  await until(() => !isAlive(after.helper.pid), 'the end of the helper')
})

/** The numbers, once a keeper that the host has let go of has left: they stay the same for a while. */
async function settled(host) {
  let before
  let looks = 0
  return until(() => {
    let found
    try {
      found = numbers(host)
    } catch {
      // One of them left in the middle.
      return false
    }
    const { descriptors, children } = found.host
    const now = JSON.stringify([descriptors, children, found.helper.descriptors, found.keepers.count, found.zombies])
    looks = now === before ? looks + 1 : 0
    before = now
    return looks >= LOOKS && found
  }, 'that all is settled')
}

function zombies(host, helper) {
  const all = [...childrenOf(host), ...childrenOf(helper), ...keepersOf(helper).flatMap(childrenBesidePin)]
  return all.filter((pid) => stat(pid)?.state === 'Z').length
}

function numbers(host) {
  const [helper] = helpersOf(host)
  const keepers = keepersOf(helper)
  const count = (pid) => descriptors(pid).size
  return {
    host: {
      descriptors: count(host) - HELD_PER_KEEPER * keepers.length,
      threads: stat(host).threads,
      children: childrenOf(host).length,
      memory: memory(host),
    },
    helper: { pid: helper, descriptors: count(helper), threads: stat(helper).threads, memory: memory(helper) },
    zombies: zombies(host, helper),
    keepers: {
      count: keepers.length,
      descriptors: Math.max(...keepers.map(count)),
      children: keepers.flatMap(childrenBesidePin).length,
      memory: Math.max(...keepers.map(memory)),
    },
  }
}

/** Resident, what is backed by files not counted: that is shared, and comes and goes. */
function memory(pid) {
  const [, kilobytes] = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  return Number(kilobytes) * 1024
}
