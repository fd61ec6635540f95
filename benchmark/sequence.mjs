// /bin/true from its start to its end, one after the other, and what that costs the host's event loop in all.
import holdfast from '../dist/index.js'
import { contenders, report } from './common.mjs'

const ROUNDS = 200
const WARM_UP = 10
const all = { ...contenders, run: [() => holdfast.run('/bin/true'), (result) => result] }
const took = Object.fromEntries(Object.keys(all).map((name) => [name, []]))
const busy = Object.fromEntries(Object.keys(all).map((name) => [name, []]))

for (let round = 0; round < ROUNDS + WARM_UP; round++) {
  for (const [name, [start, end]] of Object.entries(all)) {
    const loop = performance.eventLoopUtilization()
    const begin = performance.now()
    await end(start())
    const end_ = performance.now()
    if (round < WARM_UP) continue
    took[name].push(end_ - begin)
    busy[name].push(performance.eventLoopUtilization(loop).active)
  }
}

const { run, ...spawned } = took
const { run: busyRun, ...busySpawned } = busy
await report([
  {
    measure: 'start to proven end of /bin/true',
    unit: 'ms',
    cells: spawned,
    bars: [{ against: 'child_process', atMost: 0.4 }],
  },
  { measure: 'the same by run(), output collected', unit: 'ms', cells: { holdfast: run } },
  { measure: 'loop busy meanwhile, start to end', unit: 'ms', cells: busySpawned },
  { measure: 'loop busy meanwhile, run()', unit: 'ms', cells: { holdfast: busyRun } },
])
