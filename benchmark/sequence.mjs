// /bin/true from its start to its end, one after the other, and what that costs the host's event loop in all.
import holdfast from '../dist/index.js'
import { contenders, given, inTurns, printed, report } from './common.mjs'

const all = { ...contenders, run: [() => holdfast.run('/bin/true'), (result) => result] }

// The floor: vfork, exec and wait in C.
const OF_BARE = 10
const bare = async () => (await printed(given.programs.bare, 'loop', OF_BARE, 1)) / OF_BARE
const names = [...Object.keys(all), ...(given.programs ? ['other'] : [])]

const { took, busy } = await inTurns(names, 50, async (name) => {
  if (name === 'other') return { took: await bare() }
  const [start, end] = all[name]
  const loop = performance.eventLoopUtilization()
  const begin = performance.now()
  await end(start())
  const took = performance.now() - begin
  return { took, busy: performance.eventLoopUtilization(loop).active }
})

const byRun = ({ run, execa, tinyexec }) => ({ holdfast: run, execa, tinyexec })
const bySpawn = ({ holdfast, child_process }) => ({ holdfast, child_process })
const unit = 'ms'
await report([
  {
    measure: 'start to proven end of /bin/true, spawn()',
    unit,
    other: 'bare C',
    cells: { ...bySpawn(took), other: took.other },
    bars: [{ against: 'child_process', atMost: 0.4 }],
  },
  { measure: 'the same, run(): output collected', unit, cells: byRun(took) },
  { measure: 'loop busy from start to end, spawn()', unit, cells: bySpawn(busy) },
  { measure: 'loop busy from start to end, run()', unit, cells: byRun(busy) },
])
