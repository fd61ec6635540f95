// What an import costs a program that makes no call, and what the first call costs instead: in a new process each time.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { printed, report } from './common.mjs'

const ROUNDS = 40
const path = (file) => fileURLToPath(new URL(file, import.meta.url))
/** Below the checkout, where the package finds itself by its name. */
const folder = mkdtempSync(path('../target/import-'))
const TOOK =
  "import { performance } from 'node:perf_hooks'\nconst begin = performance.now()\nawait import(process.argv[2])\nconsole.log(performance.now() - begin)\n"
const [empty, loader] = [join(folder, 'empty.mjs'), join(folder, 'loader.mjs')]
writeFileSync(empty, '')
writeFileSync(loader, TOOK)

const took = { holdfast: [], empty: [], first: [] }
for (let round = 0; round < ROUNDS; round++) {
  took.holdfast.push(await printed(process.execPath, loader, 'holdfast'))
  took.empty.push(await printed(process.execPath, loader, empty))
  took.first.push(await printed(process.execPath, path('first-call.cjs')))
}
rmSync(folder, { recursive: true })

const median = (numbers) => [...numbers].sort((one, other) => one - other)[numbers.length >> 1]
await report([
  {
    measure: "import 'holdfast'",
    unit: 'ms',
    cells: { holdfast: took.holdfast, other: took.empty },
    other: 'empty module',
    bars: [{ atMost: Number((median(took.empty) + 5).toFixed(2)) }],
  },
  { measure: 'the first call is started later by', unit: 'ms', cells: { holdfast: took.first } },
])
