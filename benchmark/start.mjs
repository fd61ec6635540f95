// The time for which one start blocks the event loop: the synchronous part of it, from a quiet loop.
import { contenders, given, inTurns, quiet, report } from './common.mjs'

const ROUNDS = given.ballast ? 12 : 50
const ballast = Buffer.alloc(given.ballast ?? 0, 1)

/** What holdfast makes when it is asked for. */
const touch = (child) => [child.pid, child.stdout, child.stderr]

const started = (look) => async (name) => {
  const [start, end] = contenders[name]
  const begin = performance.now()
  const child = start()
  look?.(child)
  const took = performance.now() - begin
  await end(child)
  await quiet()
  return { took }
}
const plain = await inTurns(Object.keys(contenders), ROUNDS, started())
const touched = await inTurns(['holdfast', 'child_process'], ROUNDS, started(touch))
if (ballast.length > 0 && ballast.at(-1) !== 1) throw new Error('the ballast was not touched')

const host = ballast.length > 0 ? 'host at 1 GB' : 'host at base size'
const bars = [{ against: 'child_process', atMost: ballast.length > 0 ? 1 / 60 : 1 / 20 }]
await report([
  { measure: `loop blocked by one start, ${host}`, unit: 'ms', cells: plain.took, bars },
  { measure: 'the same, and pid, stdout and stderr looked at', unit: 'ms', cells: touched.took, bars },
])
