// spawn() beside child_process.spawn(): the same scenario through both, and what is observed. docs/differences.md is made
// of it: HOLDFAST_UPDATE=1 writes the page anew.
import { spawn as plainSpawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { spawn } from '../dist/index.js'
import { within } from './support/command-line.mjs'
import { DIFFERENCES } from './support/differences.mjs'
import { HOLDFAST } from './support/host.mjs'
import { SCENARIOS } from './support/scenarios.mjs'
import { killMarked, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const PAGE = new URL('../docs/differences.md', import.meta.url)
const { mark } = suite(test)
// For children with the environment that is the default.
process.env.MARK = mark

const sides = [sideOf(plainSpawn, 'node:child_process'), sideOf(spawn, HOLDFAST)]
const rows = Object.entries(SCENARIOS).flatMap(([area, scenarios]) =>
  Object.entries(scenarios).map(([what, scenario]) => ({ area, what, scenario, difference: DIFFERENCES[what] })),
)

/** By area, or by title. */
const CASES = {
  Abort: 'C62',
  'The event loop': 'C64',
  'Starts that the system refuses': 'C60 C61',
  'What the command sees': 'C66',
  'What is left': 'C01 C02 C05 C20',
  '`close`, where a background process holds the pipe': 'C10',
  'stdout after `await once(child, "spawn")`': 'C84',
  'a `data` listener after `await once(child, "spawn")`': 'C84',
  'a `data` listener 20 microtasks after that': 'C84',
  'an `exit` listener after `await once(child, "spawn")`': 'C84',
  'a `close` listener after `await once(child, "exit")`, without pipes': 'C84',
  'the output of one child as the input of another': 'C85',
  '`pid` right after the call': 'C72',
  '`process.kill(-child.pid, 0)`': 'C25',
  'a further pipe, both ways': 'C73',
  '`stdout` in the third place': 'C73',
}

for (const row of rows) {
  test(titleOf(row), async (t) => {
    const [plain, contained] = await observed(row)
    t.not(plain, undefined)
    const [ofPlain, ofContained] = row.difference ?? [plain, plain]
    t.deepEqual(plain, ofPlain, 'child_process')
    t.deepEqual(contained, ofContained, 'holdfast')
  })
}

test('60 rows and more, each by one title, and no difference without its row', (t) => {
  const titles = rows.map(({ what }) => what)
  t.true(titles.length >= 60)
  t.is(new Set(titles).size, titles.length)
  const known = new Set([...titles, ...Object.keys(SCENARIOS)])
  for (const title of Object.keys({ ...DIFFERENCES, ...CASES })) t.true(known.has(title), title)
  for (const [plain, contained] of Object.values(DIFFERENCES)) t.notDeepEqual(plain, contained)
})

test('docs/differences.md has what was observed', async (t) => {
  const text = pageOf(await Promise.all(rows.map(async (row) => ({ ...row, values: await observed(row) }))))
  if (process.env.HOLDFAST_UPDATE) writeFileSync(PAGE, text)
  t.is(readFileSync(PAGE, 'utf8'), text, 'HOLDFAST_UPDATE=1 npx ava __test__/differential.test.mjs writes it anew')
})

function titleOf({ area, what }) {
  const id = CASES[what] ?? CASES[area]
  return `${area}: ${what}${id === undefined ? '' : ` (${id})`}`
}

/** Once for each row. */
function observed(row) {
  row.values ??= Promise.all(sides.map((side) => row.scenario(side)))
  return row.values
}

function sideOf(spawn, module) {
  const prelude = `
    const { spawn } = require(${JSON.stringify(module)})
    const report = (value, done) => process.stdout.write(JSON.stringify(value) + '\\n', done)
    setTimeout(() => process.exit(99), 20_000).unref()
  `
  const host = async (body) => {
    const child = plainSpawn(process.execPath, ['-e', prelude + body], { stdio: ['ignore', 'pipe', 'ignore'] })
    const chunks = []
    child.stdout.on('data', (chunk) => chunks.push(chunk))
    const closed = new Promise((resolve) => child.on('close', (code, signal) => resolve(signal ?? code)))
    const status = await within(closed, `end of ${body}`)
    const lines = Buffer.concat(chunks).toString().split('\n').slice(0, -1)
    return { status, reports: lines.map((line) => JSON.parse(line)) }
  }
  return { spawn, host, dispose: (pid) => killMarked(pid, mark) }
}

// ---- the page
function pageOf(observedRows) {
  const areas = Object.keys(SCENARIOS).map((area) =>
    sectionOf(
      area,
      observedRows.filter((row) => row.area === area),
    ),
  )
  const count = Object.keys(DIFFERENCES).length
  return `# spawn() and child_process.spawn()

Made by \`__test__/differential.test.mjs\`, which runs each of these ${rows.length} scenarios through both functions: ${rows.length - count} have the same result, ${count} are meant to differ. Do not edit; \`HOLDFAST_UPDATE=1 npx ava __test__/differential.test.mjs\` writes it anew.

${areas.join('\n')}`
}

function sectionOf(area, all) {
  const differing = all.filter((row) => row.difference)
  const same = all.filter((row) => !row.difference)
  const table = differing.map(({ what, difference: [plain, contained, reason] }) => [
    what,
    code(plain),
    code(contained),
    reason,
  ])
  const list = same.map(({ what, values: [value] }) => `- ${what}: ${code(value)}`)
  return [
    `## ${area}\n`,
    ...(table.length > 0 ? [...aligned([['what', '`child_process`', 'holdfast', 'why'], ...table]), ''] : []),
    ...(list.length > 0 ? ['The same in both:\n', ...list, ''] : []),
  ].join('\n')
}

/** As the formatter has it. */
function aligned(table) {
  const escaped = table.map((cells) => cells.map((cell) => cell.replaceAll('|', '\\|')))
  const widths = escaped[0].map((_, column) => Math.max(...escaped.map((cells) => cells[column].length)))
  const [head, ...body] = escaped.map((cells) => cells.map((cell, column) => cell.padEnd(widths[column])))
  return [head, widths.map((width) => '-'.repeat(width)), ...body].map((cells) => `| ${cells.join(' | ')} |`)
}

const code = (value) => `\`${JSON.stringify(value).replaceAll('`', "'")}\``
