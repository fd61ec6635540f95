// What helper and keepers cost in memory, beside the commands themselves.
import childProcess from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { childrenOf, closed, endCalls, familyOf, given, pss, ready, report, sleepingCalls } from './common.mjs'

const CALLS = 500
const ROUNDS = 5
/** kB: 2 for a call. */
const NOISE = 1000
const { bare, tree } = given.programs

/** Free pages that a CPU holds in its own lists are not in MemAvailable: up to 100 MB here, back only seconds later. */
const heldByCpus = () => {
  const counts = readFileSync('/proc/zoneinfo', 'utf8').matchAll(/^ +count: +(\d+)/gm)
  return [...counts].reduce((total, [, pages]) => total + Number(pages) * 4, 0)
}
const available = () => Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))[1]) + heldByCpus()
const resident = () => process.memoryUsage.rss() / 1024

/** kB, once it has come to rest: what exited is freed a while later, and the rest of the system is not idle. */
async function atRest(measure) {
  const last = []
  for (let turn = 0; turn < 40; turn++) {
    await delay(100)
    last.push(measure())
    const latest = last.slice(-6)
    if (latest.length === 6 && Math.max(...latest) - Math.min(...latest) < NOISE) break
  }
  return last.at(-1)
}

/** kB for a sleeping call: less memory on the system, without what this host has grown by. */
async function byHoldfast() {
  const measure = () => available() + resident()
  const before = await atRest(measure)
  const calls = await sleepingCalls(CALLS)
  const used = before - (await atRest(measure))
  await endCalls(calls)
  return used / CALLS
}

/** kB for the command alone. */
async function byBare() {
  const before = await atRest(available)
  const child = childProcess.spawn(bare, ['sleepers', String(CALLS), tree], { stdio: ['pipe', 'pipe', 'inherit'] })
  await ready(child)
  const used = before - (await atRest(available))
  child.stdin.end()
  await closed(child)
  return used / CALLS
}

/** kB of the helper processes of `holdfast run`; the reason where there is no such number. */
async function ofRun() {
  const cli = fileURLToPath(new URL('../dist/cli.js', import.meta.url))
  const child = childProcess.spawn(process.execPath, [cli, 'run', '--', tree, '1'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  try {
    await ready(child)
  } catch (error) {
    return `not available: ${error.message}`
  }
  // It has replaced node by itself; what it runs is not its own.
  const own = (pid) => [pid, ...childrenOf(pid).flatMap(own)].filter((one) => name(one) === 'holdfast-helper')
  const name = (pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
  const sum = own(child.pid).reduce((total, pid) => total + pss(pid), 0)
  child.kill('SIGKILL')
  await closed(child)
  return sum
}

/** A refusal is a cell, too. */
async function orReason(measure) {
  try {
    const found = await measure()
    return typeof found === 'string' ? found : [found].flat()
  } catch (error) {
    return `not available: ${error.message}`
  }
}

const one = await sleepingCalls(1)
const { helper, keepers } = familyOf(process.pid)
const helperPss = await orReason(() => pss(helper))
const familyPss = await orReason(() => pss(helper) + keepers.reduce((total, pid) => total + pss(pid), 0))
await endCalls(one)

const calls = []
const commands = []
for (let round = -1; round < ROUNDS; round++) {
  const [call, command] = [await byHoldfast(), await byBare()]
  if (round < 0) continue
  calls.push(call)
  commands.push(command)
}
const keeper = calls.map((call, round) => call - commands[round])

const unit = 'kB'
await report([
  { measure: 'helper (PSS)', unit, cells: { holdfast: helperPss }, bars: [{ atMost: 1500 }] },
  { measure: `helper and its ${keepers.length} keepers, one busy (PSS)`, unit, cells: { holdfast: familyPss } },
  { measure: 'one more keeper (MemAvailable over 500)', unit, cells: { holdfast: keeper }, bars: [{ atMost: 160 }] },
  { measure: 'one more call, command included', unit, other: 'bare C', cells: { holdfast: calls, other: commands } },
  {
    measure: '`holdfast run` while its command runs (PSS)',
    unit,
    cells: { holdfast: await orReason(ofRun) },
    bars: [{ atMost: 1500 }],
  },
])
