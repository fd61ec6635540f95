// The end of a tree of processes.
import childProcess from 'node:child_process'
import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import treeKill from 'tree-kill'
import holdfast from '../dist/index.js'
import { given, printed, ready, report } from './common.mjs'

const { bare, tree } = given.programs

/** [from the call to the report, from SIGKILL to the proof as the keeper saw it] */
async function byHoldfast(count) {
  const child = holdfast.spawn(tree, [String(count)])
  await ready(child)
  const begin = performance.now()
  const { outcome, proofTime } = await child.end({ grace: 0 })
  const wall = performance.now() - begin
  if (outcome !== 'ended') throw new Error(`a tree of ${count}: ${outcome}`)
  return [wall, proofTime]
}

/** From the call until the last member has let go of stdout. */
async function byTreeKill(count) {
  // A group of its own, as for holdfast.
  const child = childProcess.spawn(tree, [String(count)], { detached: true, stdio: ['ignore', 'pipe', 'inherit'] })
  await ready(child)
  const gone = Promise.all([finished(child.stdout.resume()), once(child, 'close')])
  const begin = performance.now()
  treeKill(child.pid, 'SIGKILL')
  await gone
  return performance.now() - begin
}

const rows = []
for (const [count, rounds, treeKillRounds] of [
  [10, 40, 5],
  [200, 20, 3],
  [2000, 7, 0],
]) {
  const wall = { holdfast: [], other: [] }
  const proof = { holdfast: [], other: [] }
  for (let round = -1; round < rounds; round++) {
    const [walled, proven] = await byHoldfast(count)
    const floor = await printed(bare, 'tree', count)
    if (round < 0) continue
    wall.holdfast.push(walled)
    proof.holdfast.push(proven)
    proof.other.push(floor)
    if (round < treeKillRounds) wall.other.push(await byTreeKill(count))
  }
  rows.push({
    measure: `end of a tree of ${count}, SIGKILL to proof`,
    unit: 'ms',
    other: 'bare C',
    cells: proof,
    bars: [{ against: 'other', atMost: 1.5 }],
  })
  rows.push({
    measure: 'the same, end() to its report',
    unit: 'ms',
    ...(treeKillRounds > 0 && { other: 'tree-kill' }),
    cells: wall,
    bars: count === 200 ? [{ against: 'other', atMost: 1 / 20 }] : [],
  })
}
await report(rows)
