// How often helper, keepers and the host's reactor thread wake up while 200 calls sleep.
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { endCalls, familyOf, report, sleepingCalls } from './common.mjs'

const SECONDS = 10

const switches = (task) => {
  const found = readFileSync(`/proc/${task}/status`, 'utf8').matchAll(/ctxt_switches:\s+(\d+)/g)
  return [...found].reduce((total, [, count]) => total + Number(count), 0)
}
const sum = (tasks) => tasks.reduce((total, task) => total + switches(task), 0)

const calls = await sleepingCalls(200)
await delay(1000)
const { helper, keepers } = familyOf(process.pid)
if (keepers.length < calls.length) throw new Error(`${keepers.length} keepers for ${calls.length} calls`)
const threads = readdirSync('/proc/self/task').map((task) => `self/task/${task}`)
const reactor = threads.filter((task) => readFileSync(`/proc/${task}/comm`, 'utf8') === 'holdfast\n')
if (reactor.length !== 1) throw new Error(`${reactor.length} reactor threads`)

const family = [helper, ...keepers]
const before = [sum(family), sum(reactor)]
await delay(SECONDS * 1000)
const after = [sum(family), sum(reactor)]
await endCalls(calls)

const bars = [{ atMost: 0 }]
const [inFamily, inReactor] = after.map((count, index) => [(count - before[index]) / SECONDS])
await report([
  {
    measure: `wake-ups of helper and ${keepers.length} keepers, idle`,
    unit: '/s',
    cells: { holdfast: inFamily },
    bars,
  },
  { measure: "wake-ups of the host's reactor thread, idle", unit: '/s', cells: { holdfast: inReactor } },
])
