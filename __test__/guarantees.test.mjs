// docs/guarantees.md names a test for everything that it says is ended, docs/cases.md names the tests of each case.
// Here is that those tests exist, that every case that is cited is in the table, and that titles and files of tests have
// the form that is agreed on.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ALONE, QUICK, SLOWEST } from './support/groups.mjs'
import test from './support/test.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const TITLE = /\btest(?:It)?(?:\.\w+)?\(\s*[`'"](.*)|^\s*fn (\w+)\(/gm
/** The tables of the protections: cause, ended, proven, reported, not seen, test. */
const COLUMNS = 6
const NOT_ENDED = /^(?:no\b|not\b|nothing\b|there is none|$)/

const rows = readFileSync(`${ROOT}/docs/guarantees.md`, 'utf8')
  .split('\n')
  .map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
  .filter(
    (cells) => cells.length === COLUMNS && !['cause', 'what it does'].includes(cells[0]) && !cells[0].startsWith('---'),
  )

function titles(file) {
  const path = [`${ROOT}/__test__/${file}.test.mjs`, `${ROOT}/crates/helper/tests/${file}.rs`].find(existsSync)
  if (path === undefined) return undefined
  return [...readFileSync(path, 'utf8').matchAll(TITLE)].map(([, title, name]) => title ?? name)
}

test('every protection has its table', (t) => {
  t.true(rows.length > 50, `${rows.length} rows`)
})

test('what is said to be ended names a test', (t) => {
  const unnamed = rows.filter(([, ended, , , , tests]) => !NOT_ENDED.test(ended) && !tests.includes('`'))
  t.deepEqual(
    unnamed.map(([cause]) => cause),
    [],
  )
})

test('the tests that are named exist', (t) => {
  const named = rows.flatMap((cells) => [...cells[COLUMNS - 1].matchAll(/`([^`]+)`/g)].map(([, name]) => name))
  t.true(named.length > 50, `${named.length} names`)
  const missing = named.filter((name) => {
    const [file, words] = name.split(/: (.*)/s)
    return !titles(file)?.some((title) => title.includes(words))
  })
  t.deepEqual(missing, [])
})

// ---- cases
/** Paths from the root, of the files below a folder whose names end so. */
const below = (folder, end) =>
  readdirSync(`${ROOT}/${folder}`, { recursive: true })
    .filter((name) => name.endsWith(end))
    .map((name) => join(folder, name))
/** Their titles cite cases: by C05 in JavaScript, by c05_ in Rust. */
const TESTS = [...below('__test__', '.test.mjs'), ...below('crates/helper/tests', '.rs')]
const PAGES = [...below('docs', '.md'), ...readdirSync(ROOT).filter((name) => name.endsWith('.md'))]

/** By its number: the tests that its row names, and whether it has words beside them. */
const cases = new Map(
  readFileSync(`${ROOT}/docs/cases.md`, 'utf8')
    .split('\n')
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .filter(([, number]) => /^C\d\d$/.test(number))
    .map(([, number, , tests]) => {
      const named = [...tests.matchAll(/`([^`]+)`/g)].map(([, name]) => name)
      return [number, { named: named.filter((name) => name.includes(': ')), says: tests.replace(/`[^`]*`|[\s,]/g, '') }]
    }),
)

/** The lines of a test file that are no comments: titles may be made of parts. */
const codeOf = (path) => readFileSync(path, 'utf8').replace(/^\s*(?:\/\/|\*|\/\*).*$/gm, '')
const nameOf = (path) => path.replace(/^__test__\/|^crates\/helper\/tests\/|\.test\.mjs$|\.rs$/g, '')

/** The cases that each file of tests cites. */
const cited = TESTS.map((path) => {
  const pattern = path.endsWith('.rs') ? /\bfn (?:\w*_)?c(\d\d)_/g : /\bC(\d\d)\b/g
  return [nameOf(path), new Set([...codeOf(`${ROOT}/${path}`).matchAll(pattern)].map(([, digits]) => `C${digits}`))]
})

test('every case names its tests, or says why there is none', (t) => {
  t.true(cases.size > 70, `${cases.size} cases`)
  const empty = [...cases].filter(([, { named, says }]) => named.length === 0 && says === '')
  t.deepEqual(empty, [])
})

test('the tests that the cases name exist', (t) => {
  const missing = [...cases.values()]
    .flatMap(({ named }) => named)
    .filter((name) => {
      const [file, words] = name.split(/: (.*)/s)
      return !TESTS.some((path) => nameOf(path) === file && codeOf(`${ROOT}/${path}`).includes(words))
    })
  t.deepEqual(missing, [])
})

test('every file whose titles cite a case is named in its row', (t) => {
  t.true(cited.reduce((sum, [, numbers]) => sum + numbers.size, 0) > 100)
  const missing = cited.flatMap(([file, numbers]) =>
    [...numbers]
      .filter((number) => !cases.get(number)?.named.some((name) => name.startsWith(`${file}: `)))
      .map((number) => `${number} ${file}`),
  )
  t.deepEqual(missing, [])
})

test('every case that a page cites is in the table', (t) => {
  t.true(PAGES.length > 30, `${PAGES.length} pages`)
  const unknown = PAGES.flatMap((page) =>
    [...readFileSync(`${ROOT}/${page}`, 'utf8').matchAll(/\bC\d\d\b/g)]
      .filter(([number]) => !cases.has(number))
      .map(([number]) => `${number} ${page}`),
  )
  t.deepEqual(unknown, [])
})

// ---- form
const FILES = below('__test__', '.test.mjs').map(nameOf)

test('a title begins with what is shown, and ends with its cases', (t) => {
  const wrong = FILES.flatMap((file) => titles(file).filter((title) => /^C\d\d\b/.test(title)))
  t.deepEqual(wrong, [])
})

test('the tests of a file run one after the other, in a group that has it', (t) => {
  const own = FILES.filter((file) =>
    /^import .* from 'ava'/m.test(readFileSync(`${ROOT}/__test__/${file}.test.mjs`, 'utf8')),
  )
  t.deepEqual(own, [])
  t.deepEqual(
    [...ALONE, ...QUICK, ...SLOWEST].filter((file) => !FILES.includes(file)),
    [],
  )
})
