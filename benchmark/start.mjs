// The time for which one start blocks the event loop: the synchronous part of it, from a quiet loop.
import { contenders, given, quiet, report } from './common.mjs'

const ROUNDS = given.ballast ? 50 : 150
const WARM_UP = 5
const ballast = Buffer.alloc(given.ballast ?? 0, 1)

/** What is made late is made here. */
const touch = (child) => [child.pid, child.stdout, child.stderr]

const plain = { holdfast: [], child_process: [], execa: [], tinyexec: [] }
const touched = { holdfast: [], child_process: [] }
for (let round = 0; round < ROUNDS + WARM_UP; round++) {
  for (const [samples, look] of [
    [plain, undefined],
    [touched, touch],
  ]) {
    for (const name of Object.keys(samples)) {
      const [start, end] = contenders[name]
      const begin = performance.now()
      const child = start()
      look?.(child)
      const took = performance.now() - begin
      if (round >= WARM_UP) samples[name].push(took)
      await end(child)
      await quiet()
    }
  }
}
if (ballast.at(-1) === 0) throw new Error('the ballast was not touched')

const host = ballast.length > 0 ? 'host at 1 GB' : 'host at base size'
const bars = [{ against: 'child_process', atMost: ballast.length > 0 ? 1 / 60 : 1 / 20 }]
await report([
  { measure: `loop blocked by one start, ${host}`, unit: 'ms', cells: plain, bars },
  { measure: 'the same, and pid, stdout and stderr looked at', unit: 'ms', cells: touched, bars },
])
