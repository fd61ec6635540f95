// /bin/true, 16 side by side.
import { contenders, given, printed, report } from './common.mjs'

const WIDTH = 16
const ROUNDS = 5
const FAST = 1500
const SLOW = 250

async function perSecond(count, start, end, options) {
  let left = count
  const lane = async () => {
    while (left-- > 0) await end(start(options))
  }
  const begin = performance.now()
  await Promise.all(Array.from({ length: WIDTH }, lane))
  return (count / (performance.now() - begin)) * 1000
}
const of = (name, count, options) => () => perSecond(count, ...contenders[name], options)

const ignore = { stdio: 'ignore' }
const piped = { holdfast: [], child_process: [], execa: [], tinyexec: [], other: [] }
const ignored = { holdfast: [], child_process: [], other: [] }
const turns = [
  [piped.holdfast, of('holdfast', FAST)],
  [piped.child_process, of('child_process', SLOW)],
  [ignored.holdfast, of('holdfast', FAST, ignore)],
  [ignored.child_process, of('child_process', SLOW, ignore)],
  [piped.execa, of('execa', SLOW)],
  [piped.tinyexec, of('tinyexec', SLOW)],
]
if (given.programs) {
  turns.push([piped.other, async () => (FAST / (await printed(given.programs.bare, 'loop', FAST, WIDTH))) * 1000])
}

for (let round = -1; round < ROUNDS; round++) {
  for (const [samples, measure] of turns) {
    const rate = await measure()
    if (round >= 0) samples.push(rate)
  }
}
ignored.other = piped.other

const bars = [
  { against: 'child_process', atLeast: 2.5 },
  { against: 'other', atLeast: 0.75 },
]
const unit = '/s'
const other = 'bare C'
await report([
  { measure: "/bin/true at 16 side by side, stdio 'pipe'", unit, other, cells: piped, bars },
  { measure: "the same, stdio 'ignore'", unit, other, cells: ignored, bars },
])
