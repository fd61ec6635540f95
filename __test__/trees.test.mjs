// Random trees of processes: whatever a call has started, and whatever ends it, nothing is left, and the report says so.
// HOLDFAST_TREE=<seed> repeats the one round of a failure, HOLDFAST_ROUNDS times.
import { spawnSync } from 'node:child_process'
import { resetHelper, run, running, spawn } from '../dist/index.js'
import { within } from './support/command-line.mjs'
import { gone, helpersOf, isAlive, keepersOf, stat } from './support/facts.mjs'
import { compiled } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'
import { members, plan } from './support/trees.mjs'

const ONE = process.env.HOLDFAST_TREE
const FIRST = Number(ONE ?? process.env.HOLDFAST_SEED ?? Date.now() % 0x7fffffff)
const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? (ONE ? 1 : process.env.HOLDFAST_LONG ? 5000 : 300))
/** Trees that lose their host together. */
const TOGETHER = 8
/** What a report is waited for. Every end has a budget of 5 s. */
const PATIENCE = 15_000
/** Longer than nearly every tree takes to stand. */
const TIMEOUT = 80

const { env } = suite(test)
let serial = 0
/** At most 12 characters: a process's name has 15. */
const newName = () => `${process.pid.toString(36)}-${(++serial).toString(36)}`

test(`${ROUNDS} random trees: nothing is left, and every report agrees with the process table (C77 C20 C22 C26 C80)`, async (t) => {
  t.timeout(30 * 60_000)
  const tree = compiled(t, 'tree')
  if (tree === undefined) return
  t.log(`seeds from HOLDFAST_SEED=${FIRST}`)
  const namespaces = namespacesOf(t, tree)
  const tallies = {}
  const failures = []
  let waiting = []
  const judge = ({ seed, kind, cause, program }, problems) => {
    for (const key of [kind, cause]) {
      tallies[key] ??= { rounds: 0, failed: 0 }
      tallies[key].rounds++
      if (problems.length > 0) tallies[key].failed++
    }
    if (problems.length > 0) failures.push(`HOLDFAST_TREE=${seed}: ${cause}, ${program}: ${problems.join('; ')}`)
  }
  for (let round = 0; round < ROUNDS; round++) {
    const planned = { ...plan(ONE ? FIRST : FIRST + round, namespaces), name: newName() }
    if (planned.cause !== 'host killed') judge(planned, await roundOf(planned, tree))
    else waiting.push(planned)
    if (waiting.length === 0 || (waiting.length < TOGETHER && round < ROUNDS - 1)) continue
    const family = await hostOf(waiting, tree)
    for (const one of waiting) judge(one, left(one, family))
    waiting = []
  }
  t.log(tableOf(tallies))
  t.deepEqual(failures, [])
  t.deepEqual(running(), [])
})

const REASONS = {
  exit: 'exit',
  timeout: 'timeout',
  abort: 'abort',
  'first process killed': 'exit',
  'keeper killed': 'keeper-gone',
}

/** What is wrong with the round, in words. */
async function roundOf(planned, tree) {
  const { program, name, cause, grace } = planned
  const abort = new AbortController()
  const timeout = cause === 'timeout' ? TIMEOUT : undefined
  const stdio = ['ignore', 'pipe', 'inherit']
  const child = spawn(tree, [name, program], { env, grace, stdio, timeout, signal: abort.signal })
  const up = new Promise((resolve) =>
    child.stdout.once('data', () => resolve(true)).once('close', () => resolve(false)),
  )
  let problems
  try {
    const stands = await within(up, 'a tree that stands')
    // A timeout may come first.
    if (!stands && cause !== 'timeout') throw new Error('the tree did not stand')
    await bringAbout(cause, child, abort)
    const report = await within(child.ended, 'the report', PATIENCE)
    const table = members(name)
    problems = [...judged(report, planned, table), ...(stands ? counted(report, planned) : [])]
  } catch (error) {
    problems = [error.message]
  }
  if (problems.length > 0) await cleanUp(child, name)
  // The next round has a helper, and a keeper of that one.
  if (cause === 'helper killed, end') await run('true')
  return problems
}

async function bringAbout(cause, child, abort) {
  if (cause === 'abort') abort.abort()
  else if (cause === 'first process killed') process.kill(child.pid, 'SIGKILL')
  else if (cause === 'keeper killed') {
    const keeper = stat(child.pid).ppid
    if (!helpersOf(process.pid).some((helper) => keepersOf(helper).includes(keeper))) throw new Error('no keeper')
    process.kill(keeper, 'SIGKILL')
  } else if (cause === 'helper killed, end') {
    const [helper] = helpersOf(process.pid).filter(isAlive)
    process.kill(helper, 'SIGKILL')
    await gone([helper])
  }
  if (cause.includes('end')) child.end()
}

/** The report against the process table at that moment. */
function* judged(report, { name, cause }, table) {
  const told = { outcome: report.outcome, reason: report.reason, by: report.by }
  const by = cause === 'keeper killed' ? 'helper' : 'keeper'
  const due = { outcome: 'ended', reason: REASONS[cause] ?? 'end', by }
  for (const key of Object.keys(due)) if (told[key] !== due[key]) yield `${key} ${told[key]} instead of ${due[key]}`
  const alive = table.filter((one) => one.isAlive)
  for (const one of alive) {
    const isNamed = report.survivors.some(({ pid }) => pid === one.pid)
    if (report.outcome === 'ended' || !isNamed) yield `${one.name} lives (${one.state}), and is not among the survivors`
  }
  if (report.outcome === 'ended' && report.survivors.length > 0) yield 'ended, and has survivors'
  for (const { pid, name: survivor } of report.survivors) {
    if (!alive.some((one) => one.pid === pid)) yield `${survivor} is named as a survivor, and is ${stateOf(pid, table)}`
  }
  for (const { name: leftover } of report.leftovers) {
    if (!leftover.startsWith(`${name}.`)) yield `${leftover} is among the leftovers, and is none of the tree`
  }
  if (report.outcome === 'ended' && table.length > alive.length) yield `${table.length - alive.length} are not reaped`
}

/** The helper does not know which one was the first, and counts it too. */
function* counted({ leftoverCount }, { cause, leftovers: [others, most] }) {
  const isHelper = cause === 'keeper killed'
  if (leftoverCount < others || leftoverCount > most + (isHelper ? 1 : 0))
    yield `${leftoverCount} leftovers instead of ${others} to ${most}`
}

const stateOf = (pid, table) => (table.some((one) => one.pid === pid) ? 'dead' : 'not in the process table')

/** One host for all of these, which is killed when they stand. Which of its helper and keepers are left by then. */
async function hostOf(planned, tree) {
  const calls = planned.map(({ name, program, grace }) => [name, program, grace])
  const host = startHost(
    `
    const standing = ${JSON.stringify(calls)}.map(([name, program, grace]) => {
      const child = spawn(${JSON.stringify(tree)}, [name, program], { grace, stdio: ['ignore', 'pipe', 'inherit'] })
      return new Promise((resolve) => child.stdout.once('data', () => resolve(name)).once('close', () => resolve(null)))
    })
    report(await Promise.all(standing))
  `,
    { env },
  )
  try {
    const standing = await within(host.next(), 'trees that stand')
    const helpers = helpersOf(host.pid)
    const keepers = helpers.flatMap(keepersOf)
    for (const one of planned) {
      one.stands = standing.includes(one.name)
      one.keeper = members(one.name).find(({ ppid }) => keepers.includes(ppid))?.ppid
    }
    host.kill()
    await host.exited
    const family = [...helpers, ...keepers]
    await gone(family, PATIENCE).catch(() => {})
    return family.filter(isAlive)
  } finally {
    host.kill()
  }
}

/** What is wrong after the host's death. */
function left({ name, stands, keeper }, family) {
  const table = members(name)
  for (const { pid, isAlive: lives } of table) if (lives) kill(pid, name)
  const problems = table.map((one) => `${one.name} is left (${one.state})`)
  if (!stands || keeper === undefined) problems.push('it did not stand, with a keeper')
  if (family.includes(keeper)) problems.push('its keeper is left')
  // Of one that waits for its keepers it says nothing new.
  else if (family.length === 1) problems.push('the helper is left')
  return problems
}

/** A failed round leaves nothing to the next one: no process, and no helper that still has to do with it. */
async function cleanUp(child, name) {
  if (running().length > 0) await within(child.end({ grace: 0 }), 'an end without grace').catch(() => {})
  for (const { pid, isAlive: lives } of members(name)) if (lives) kill(pid, name)
  resetHelper()
}

function kill(pid, name) {
  try {
    if (members(name).some((one) => one.pid === pid && one.isAlive)) process.kill(pid, 'SIGKILL')
  } catch (error) {
    if (error.code !== 'ESRCH') throw error
  }
}

/** Those that the fixture can have here. */
function namespacesOf(t, tree) {
  const trials = { pid: process.getuid() === 0 ? '(ep)' : '(eup)', user: '(eu)' }
  return Object.keys(trials).filter((kind) => {
    const { status, stderr } = spawnSync(tree, [newName(), trials[kind]], { encoding: 'utf8', env })
    if (status !== 7) t.log(`no trees with ${kind} namespaces: ${stderr.trim()}`)
    return status === 7
  })
}

const tableOf = (tallies) =>
  Object.entries(tallies)
    .map(([name, { rounds, failed }]) => `${name.padEnd(24)} ${String(rounds).padStart(5)} rounds, ${failed} failed`)
    .join('\n')
