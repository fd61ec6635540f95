// What `holdfast/engine` costs an Engine that nobody asked: loaded first thing, in a new process each time.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { printed, report } from './common.mjs'

const ROUNDS = 40
const path = (file) => fileURLToPath(new URL(file, import.meta.url))
const LOAD = path('load.cjs')
const folder = mkdtempSync(join(tmpdir(), 'holdfast-load-'))
const empty = join(folder, 'empty.js')
writeFileSync(empty, '')

const took = { file: [], empty: [], name: [] }
for (let round = 0; round < ROUNDS; round++) {
  took.file.push(await printed(process.execPath, LOAD, path('../dist/engine.js')))
  took.empty.push(await printed(process.execPath, LOAD, empty))
  took.name.push(await printed(process.execPath, LOAD, 'holdfast/engine'))
}
rmSync(folder, { recursive: true })

await report([
  {
    measure: 'holdfast/engine without a request',
    unit: 'ms',
    cells: { holdfast: took.file, other: took.empty },
    other: 'empty file',
    bars: [{ atMost: 1 }],
  },
  { measure: "the same by its name, with Node's search for it", unit: 'ms', cells: { holdfast: took.name } },
])
