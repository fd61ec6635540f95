// docs/guarantees.md names a test for everything that it says is ended. Here is that those tests exist.
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import test from 'ava'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const TITLE = /\btest(?:It)?(?:\.\w+)?\(\s*[`'"](.*)|^\s*fn (\w+)\(/gm
/** Mechanisms' tables: cause, ended, proven, reported, not seen, test. */
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

test('every mechanism has its table', (t) => {
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
