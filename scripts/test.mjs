// Runs every check and test, shows each one's output, and closes with a summary and the real totals.
//   --long    the longer suites too (HOLDFAST_LONG=1)
//   --checks  what needs no native build: lint, format, lints of the crates, licences, manifests, imports, types
import { spawn } from 'node:child_process'
import { stripVTControlCharacters } from 'node:util'

const long = process.argv.includes('--long')
const checksOnly = process.argv.includes('--checks')
const node = process.execPath
const clippy = (...what) => ['cargo', 'clippy', ...what, '--all-targets', '--locked', '--', '-D', 'warnings']
const cargoTest = ['cargo', 'test', '--workspace', '--no-fail-fast', '--locked']
/** In a folder of its own, so that no other test finds a helper that stops. */
const stops = ['--package', 'holdfast-helper', '--features', 'stops', '--target-dir', 'target/stops']

const LEFT_BEHIND_AFTER = 10_000

const CHECKS = [
  ['lint and format', [node, 'node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '.']],
  ['types and public API', [node, 'node_modules/typescript/bin/tsc', '-p', 'tsconfig.json']],
  ['cargo fmt', ['cargo', 'fmt', '--all', '--check']],
  ['cargo clippy', clippy('--workspace')],
  ['cargo clippy, stops', clippy(...stops)],
  ['licences', [node, 'scripts/check-licences.mjs']],
  ['notices', [node, 'scripts/release/notices.mjs', '--check']],
  ['manifests', [node, 'scripts/check-manifests.mjs']],
  ['imports', [node, 'scripts/check-imports.mjs']],
]
const LONG = [['types matrix', [node, 'scripts/types-matrix.mjs']]]
const TESTS = [
  ['cargo test', cargoTest, countCargo],
  ['cargo test, stops', ['cargo', 'test', ...stops, '--locked', '--', 'stops::'], countCargo],
  ['shipped without stops', [node, 'scripts/check-shipped.mjs']],
  ['ava', [node, 'node_modules/ava/entrypoints/cli.mjs'], countAva],
]

const steps = checksOnly ? CHECKS : [...CHECKS, ...(long ? LONG : []), ...TESTS]
const colour = process.stdout.isTTY ? { FORCE_COLOR: '1', CARGO_TERM_COLOR: 'always' } : {}
const env = { ...process.env, ...colour, ...(long ? { HOLDFAST_LONG: '1' } : {}) }

const results = []
for (const [name, command, count] of steps) {
  console.log(`\n── ${name}`)
  const start = Date.now()
  const { ok, output } = await run(command)
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

console.log('\n── summary')
for (const { name, seconds, ok, counts, passed, failed } of results) {
  const detail = counts ? `  ${passed} passed, ${failed} failed` : ''
  console.log(`${ok ? 'ok    ' : 'FAILED'}  ${`${seconds.toFixed(1)} s`.padStart(8)}  ${name}${detail}`)
}
const sum = (key) => results.reduce((total, result) => total + result[key], 0)
if (!results.every((result) => result.ok)) process.exitCode = 1
console.log(`\n${sum('passed')} passed, ${sum('failed')} failed`)

function run([command, ...args]) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, stdio: ['inherit', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk) => {
        output += chunk
        process.stdout.write(chunk)
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
