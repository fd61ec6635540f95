// npm run bench [-- --only <group>]: one table from one run, and its raw numbers under benchmark/runs/.
//
// Each group is a process of its own, so that none inherits another's heap or keepers. Within a group the
// contenders take turns, so that a drift of the machine hits all alike. A ratio is one of medians.
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { arch, cpus, loadavg, release, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const HERE = fileURLToPath(new URL('.', import.meta.url))
/** `c`: nothing of it can be measured without the fixtures in C. */
const GROUPS = {
  start: { file: 'start.mjs' },
  'start-1gb': { file: 'start.mjs', ballast: 1e9 },
  sequence: { file: 'sequence.mjs' },
  leftover: { file: 'leftover.mjs' },
  parallel: { file: 'parallel.mjs' },
  tree: { file: 'tree.mjs', c: true },
  memory: { file: 'memory.mjs', c: true },
  idle: { file: 'idle.mjs', c: true },
  stdout: { file: 'stdout.mjs' },
  engine: { file: 'engine.mjs' },
  import: { file: 'import.mjs' },
}
const CONTENDERS = ['holdfast', 'child_process', 'execa', 'tinyexec', 'other']
const MOST_SAMPLES = 200

const { only } = parseArgs({ options: { only: { type: 'string' } } }).values
if (only !== undefined && !(only in GROUPS)) {
  console.error(`--only ${only}: not one of ${Object.keys(GROUPS).join(', ')}`)
  process.exit(64)
}

/** What else the machine was doing: with more than a few tenths the ratios against bare C are noise. */
const load = loadavg()[0]
const directory = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
try {
  const programs = compile()
  const rows = []
  for (const [group, { file, ballast, c }] of Object.entries(GROUPS)) {
    if (only !== undefined && only !== group) continue
    if (c && !programs) continue
    const begin = performance.now()
    for (const row of await rowsOf(group, file, { programs, ballast })) rows.push({ group, ...row })
    console.error(`${group}: ${((performance.now() - begin) / 1000).toFixed(0)} s`)
  }
  print(rows)
  if (only === undefined) save(rows)
} finally {
  rmSync(directory, { recursive: true })
}

/** bare.c and tree.c; undefined where there is no C compiler. */
function compile() {
  const built = {}
  for (const name of ['bare', 'tree']) {
    built[name] = join(directory, name)
    const source = join(HERE, `${name}.c`)
    try {
      // Static where there is a static libc: the smaller fixture.
      cc('-static', source, built[name])
    } catch {
      try {
        cc('-O2', source, built[name])
      } catch (error) {
        console.error(`No bare C, trees, memory and idle CPU: ${error.message.split('\n')[0]}`)
        return undefined
      }
    }
  }
  return built
}

function cc(flag, source, to) {
  execFileSync('cc', ['-O2', flag, source, '-o', to], { stdio: 'ignore' })
}

async function rowsOf(group, file, given) {
  const worker = fork(join(HERE, file), [JSON.stringify(given)])
  let rows
  worker.on('message', (message) => {
    rows = message
  })
  const [code, signal] = await once(worker, 'close')
  if (code === 0 && rows) return rows
  process.exitCode = 1
  return [{ measure: `${group}: failed (${signal ?? code})`, unit: '', cells: {} }]
}

function quantile(samples, part) {
  const sorted = samples.toSorted((a, b) => a - b)
  const place = (sorted.length - 1) * part
  const low = sorted[Math.floor(place)]
  return low + (sorted[Math.ceil(place)] - low) * (place % 1)
}

function short(number) {
  if (number === 0) return '0'
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(number))))
  return number.toFixed(Math.min(digits, 3))
}

function cell(samples, unit) {
  if (typeof samples === 'string') return samples
  if (!samples?.length) return ''
  const [low, middle, high] = [0.1, 0.5, 0.9].map((part) => short(quantile(samples, part)))
  return samples.length > 1 ? `${middle} ${unit} (${low}..${high})` : `${middle} ${unit}`
}

/** [what was found, what is asked for, whether that is met] */
function judge({ against, atMost, atLeast }, { cells, unit, other }) {
  const samples = cells.holdfast
  const base = against === undefined ? undefined : cells[against]
  const limit = atMost ?? atLeast
  const size = limit < 0.1 && limit > 0 ? `1/${Math.round(1 / limit)}` : limit
  const sign = atMost === undefined ? '>=' : '<='
  const asked =
    against === undefined ? `${sign} ${size} ${unit}` : `${sign} ${size} x ${against === 'other' ? other : against}`
  if (!Array.isArray(samples) || (against !== undefined && !base?.length)) return ['', asked, '?']
  const found = quantile(samples, 0.5) / (base ? quantile(base, 0.5) : 1)
  const shown = base && found > 0 && found < 0.1 ? `1/${short(1 / found)}` : short(found)
  return [shown, asked, (atMost === undefined ? found >= limit : found <= limit) ? 'yes' : 'NO']
}

function print(rows) {
  const lines = [['measure', ...CONTENDERS, 'found', 'bar', 'met']]
  for (const row of rows) {
    const [first, ...more] = row.bars?.length ? row.bars.map((bar) => judge(bar, row)) : [['', '', '']]
    const cells = CONTENDERS.map((name) => cell(row.cells[name], row.unit))
    if (cells[4]) cells[4] = `${row.other} ${cells[4]}`
    lines.push([row.measure, ...cells, ...first])
    for (const bar of more) lines.push(['', '', '', '', '', '', ...bar])
  }
  const widths = lines[0].map((_, column) => Math.max(...lines.map((line) => line[column].length)))
  const text = lines.map((line) =>
    line
      .map((field, column) => field.padEnd(widths[column]))
      .join('  ')
      .trimEnd(),
  )
  console.log(`\nmedian (p10..p90); load of the machine at the start: ${load.toFixed(2)}\n\n${text.join('\n')}`)
}

function machine() {
  const version = (name) => JSON.parse(readFileSync(join(HERE, '..', name, 'package.json'), 'utf8')).version
  const peers = ['execa', 'tinyexec', 'tree-kill']
  return {
    kernel: release(),
    arch: arch(),
    cpu: cpus()[0].model,
    cores: cpus().length,
    memory: `${Math.round(totalmem() / 2 ** 30)} GiB`,
    hugePages: /\[(\w+)\]/.exec(readFileSync('/sys/kernel/mm/transparent_hugepage/enabled', 'utf8'))?.[1],
    node: process.versions.node,
    holdfast: version('.'),
    ...Object.fromEntries(peers.map((name) => [name, version(join('node_modules', name))])),
  }
}

function save(rows) {
  const thin = (samples) => {
    if (!Array.isArray(samples)) return samples
    const sorted = samples.length > MOST_SAMPLES
    const kept = sorted
      ? Array.from({ length: MOST_SAMPLES }, (_, i) => quantile(samples, i / (MOST_SAMPLES - 1)))
      : samples
    return kept.map((sample) => Number(sample.toPrecision(4)))
  }
  const date = new Date().toISOString().slice(0, 10)
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: HERE, encoding: 'utf8' }).trim()
  const saved = rows.map((row) => ({
    ...row,
    bars: row.bars?.map((bar) => ({ ...bar, found: judge(bar, row)[0], met: judge(bar, row)[2] })),
    cells: Object.fromEntries(Object.entries(row.cells).map(([name, samples]) => [name, thin(samples)])),
  }))
  const text = JSON.stringify({ date, commit, load, machine: machine(), rows: saved }, undefined, 1)
  // One line for an array of numbers.
  const dense = text.replace(/\[[\d\s.,e+-]*\]/g, (list) => list.replace(/\s+/g, ''))
  mkdirSync(join(HERE, 'runs'), { recursive: true })
  const path = join(HERE, 'runs', `${date}-${commit}.json`)
  writeFileSync(path, `${dense}\n`)
  console.log(`\nraw numbers: ${path}`)
}
