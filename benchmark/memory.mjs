// What helper and keepers cost in memory, beside the commands themselves.
import childProcess from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { childrenOf, closed, endCalls, familyOf, given, pss, quiet, ready, report, sleepingCalls } from './common.mjs'

const CALLS = 500
const ROUNDS = 5
const { bare, tree } = given.programs

const available = () => Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))[1])
const resident = () => process.memoryUsage.rss() / 1024
const settle = async () => {
  // What exited is freed after a grace period of the kernel's (RCU).
  for (let turn = 0; turn < 300; turn++) await quiet()
}

/** kB for a sleeping call: less memory on the system, without what this host has grown by. */
async function byHoldfast() {
  await settle()
  const before = available() + resident()
  const calls = await sleepingCalls(CALLS)
  await settle()
  const used = before - (available() + resident())
  await endCalls(calls)
  return used / CALLS
}

/** kB for the command alone. */
async function byBare() {
  await settle()
  const before = available()
  const child = childProcess.spawn(bare, ['sleepers', String(CALLS), tree], { stdio: ['pipe', 'pipe', 'inherit'] })
  await ready(child)
  await settle()
  const used = before - available()
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
await settle()
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
