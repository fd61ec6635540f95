// 1 GiB of a command's output, taken in by 'data'.
import childProcess from 'node:child_process'
import holdfast from '../dist/index.js'
import { closed, report } from './common.mjs'

const GIB = 2 ** 30
const ROUNDS = 7
const options = { stdio: ['ignore', 'pipe', 'inherit'] }

async function mebibytesPerSecond(spawn) {
  const begin = performance.now()
  const child = spawn('head', ['-c', String(GIB), '/dev/zero'], options)
  let length = 0
  child.stdout.on('data', (chunk) => {
    length += chunk.length
  })
  await closed(child)
  if (length !== GIB) throw new Error(`${length} of ${GIB} bytes`)
  return 1024 / ((performance.now() - begin) / 1000)
}

const cells = { holdfast: [], child_process: [] }
for (let round = -1; round < ROUNDS; round++) {
  for (const [name, { spawn }] of Object.entries({ holdfast, child_process: childProcess })) {
    const rate = await mebibytesPerSecond(spawn)
    if (round >= 0) cells[name].push(rate)
  }
}
await report([{ measure: 'stdout, 1 GiB', unit: 'MiB/s', cells, bars: [{ against: 'child_process', atLeast: 1 }] }])
