// Runs every check and test, shows each one's output, and closes with a summary and the real totals.
//   --long    the longer suites too (HOLDFAST_LONG=1)
//   --checks  what needs no native build: lint, format, lints of the crates, licences, manifests, imports, types
//   --quick   for the loop of daily work: lint, types, the crates' own tests, and a part of the tests of the package
import { spawn } from 'node:child_process'
import { stripVTControlCharacters } from 'node:util'

const long = process.argv.includes('--long')
const checksOnly = process.argv.includes('--checks')
const quick = process.argv.includes('--quick')
const node = process.execPath
const clippy = (...what) => ['cargo', 'clippy', ...what, '--all-targets', '--locked', '--', '-D', 'warnings']
const cargoTest = ['cargo', 'test', '--workspace', '--no-fail-fast', '--locked']
/** In a folder of its own, so that no other test finds a helper that stops. */
const stops = ['--package', 'holdfast-helper', '--features', 'stops', '--target-dir', 'target/stops']

const LEFT_BEHIND_AFTER = 10_000

const LINT = ['lint and format', [node, 'node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '.']]
const TYPES = ['types and public API', [node, 'node_modules/typescript/bin/tsc', '-p', 'tsconfig.json']]
const FMT = ['cargo fmt', ['cargo', 'fmt', '--all', '--check']]
const CLIPPY = ['cargo clippy', clippy('--workspace')]
/** Rows run side by side, the steps of a row one after the other. A folder of built crates is used by one row alone. */
const CHECKS = [
  [FMT, CLIPPY],
  [['cargo clippy, stops', clippy(...stops)]],
  [
    LINT,
    TYPES,
    ['licences', [node, 'scripts/check-licences.mjs']],
    ['notices', [node, 'scripts/release/notices.mjs', '--check']],
    ['manifests', [node, 'scripts/check-manifests.mjs']],
    ['imports', [node, 'scripts/check-imports.mjs']],
  ],
]
const LONG = ['types matrix', [node, 'scripts/types-matrix.mjs']]
/** @param group of ava.config.mjs */
const ava = (name, group) => [name, [node, 'node_modules/ava/entrypoints/cli.mjs'], countAva, { HOLDFAST_GROUP: group }]
const TESTS = [
  ['cargo test', cargoTest, countCargo],
  ['cargo test, stops', ['cargo', 'test', ...stops, '--locked', '--', 'stops::'], countCargo],
  ['shipped without stops', [node, 'scripts/check-shipped.mjs']],
  ava('ava, alone', 'alone'),
  ava('ava, side by side', 'beside'),
]
const OWN_TESTS = [
  'cargo test, core',
  ['cargo', 'test', '-p', 'holdfast-core', '-p', 'holdfast-wire', '--locked'],
  countCargo,
]
const QUICK = [
  [
    [FMT, OWN_TESTS],
    [LINT, TYPES],
  ],
  [[ava('ava, a part', 'quick')]],
]

/** Stages, one after the other. */
const stages = quick
  ? QUICK
  : checksOnly
    ? [CHECKS]
    : [CHECKS, ...[...(long ? [LONG] : []), ...TESTS].map((step) => [[step]])]
const colour = process.stdout.isTTY ? { FORCE_COLOR: '1', CARGO_TERM_COLOR: 'always' } : {}
const env = { ...process.env, ...colour, ...(long ? { HOLDFAST_LONG: '1' } : {}) }

const results = []
for (const rows of stages) await Promise.all(rows.map((steps) => inTurn(steps, rows.length > 1)))

/** @param held whether the output is shown at the end of a step, because others run beside it */
async function inTurn(steps, held) {
  for (const [name, command, count, variables] of steps) {
    if (!held) console.log(`\n── ${name}`)
    const start = Date.now()
    const { ok, output } = await run(command, variables, held ? () => {} : (chunk) => process.stdout.write(chunk))
    if (held) console.log(`\n── ${name}\n${output}`)
    const totals = count ? count(output) : { passed: 0, failed: 0 }
    // A step that fails without a failed test to show for it (a lint, a crash, a compile error) counts as one.
    if (!ok && totals.failed === 0) totals.failed = 1
    results.push({
      name,
      seconds: (Date.now() - start) / 1000,
      ok: ok && totals.failed === 0,
      counts: !!count,
      ...totals,
    })
  }
}

console.log('\n── summary')
for (const { name, seconds, ok, counts, passed, failed } of results) {
  const detail = counts ? `  ${passed} passed, ${failed} failed` : ''
  console.log(`${ok ? 'ok    ' : 'FAILED'}  ${`${seconds.toFixed(1)} s`.padStart(8)}  ${name}${detail}`)
}
const sum = (key) => results.reduce((total, result) => total + result[key], 0)
if (!results.every((result) => result.ok)) process.exitCode = 1
console.log(`\n${sum('passed')} passed, ${sum('failed')} failed`)

function run([command, ...args], variables, show) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env: { ...env, ...variables }, stdio: ['inherit', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk) => {
        output += chunk
        show(chunk)
      })
    }
    child.on('error', (error) => {
      console.log(`${command}: ${error.message}`)
      resolve({ ok: false, output })
    })
    child.on('close', (code) => resolve({ ok: code === 0, output }))
    // A process that outlives the tests and holds their output is what this project exists to prevent.
    child.on('exit', () => {
      setTimeout(() => {
        if (child.stdout.destroyed && child.stderr.destroyed) return
        console.log(
          `a process left behind by the step still holds its output ${LEFT_BEHIND_AFTER / 1000} s after the end`,
        )
        child.stdout.destroy()
        child.stderr.destroy()
        resolve({ ok: false, output })
      }, LEFT_BEHIND_AFTER).unref()
    })
  })
}

function countCargo(output) {
  let [passed, failed] = [0, 0]
  for (const match of stripVTControlCharacters(output).matchAll(/^test result: \w+\. (\d+) passed; (\d+) failed;/gm)) {
    passed += Number(match[1])
    failed += Number(match[2])
  }
  return { passed, failed }
}

function countAva(output) {
  const text = stripVTControlCharacters(output)
  const total = (pattern) => [...text.matchAll(pattern)].reduce((sum, match) => sum + Number(match[1]), 0)
  return {
    // AVA's own "N tests passed" is missing when one failed, so its ticks are counted.
    passed: text.match(/^ {2}[✔√] /gm)?.length ?? 0,
    failed: total(/^ {2}(\d+) (?:tests?|hooks?) failed$/gm) + total(/^ {2}(\d+) (?:uncaught|unhandled) \w+$/gm),
  }
}
