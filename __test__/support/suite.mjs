// What every file of tests needs once: a mark for all it starts, and the check that nothing of it is left.
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endAll } from '../../dist/index.js'
import { afterEachTest } from './after-each.mjs'
import { isAlive, leftByUs, marked, newMark, until } from './facts.mjs'
import { startHost } from './host.mjs'

/**
 * Whatever has a mark or a word that this process gave out must be gone at the end: `patience` ms are waited for it.
 * The mark that is returned is for tests that need none of their own.
 */
export function suite(test, { patience = 10_000 } = {}) {
  const mark = newMark()
  test.afterEach.always('what a test that failed has not ended', async () => {
    for (const tidyUp of afterEachTest) await tidyUp()
    // What escaped a call is found below.
    await endAll({ grace: 0 })
  })
  test.after.always('nothing that this file started is left', async (t) => {
    await until(() => leftByUs().length === 0, 'end of all that this file started', patience).catch(() => {})
    t.deepEqual(leftByUs(), [])
  })
  return {
    mark,
    env: { ...process.env, MARK: mark },
    /** A host that is ended with its test. `before` comes before its body. */
    host(t, body, { before = '', mark: own = mark, env, ...options } = {}) {
      const started = startHost(before + body, { ...options, env: { MARK: own, ...env } })
      t.teardown(() => started.kill())
      return started
    },
  }
}

/** For a test that needs what is not there for this reason: it is in the log then. '' where it is there. */
export function has(t, reason) {
  if (reason === '') return true
  t.log(`skipped: ${reason}`)
  t.pass()
  return false
}

/** A folder for one test, readable for every user. */
export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-'))
  // Something that is on its way out may still write to it.
  t.teardown(() => until(() => isRemoved(path), `an empty folder ${path}`))
  return path
}

function isRemoved(path) {
  try {
    rmSync(path, { recursive: true, force: true })
    return true
  } catch (error) {
    if (error.code !== 'ENOTEMPTY') throw error
    return false
  }
}

/** A folder for all tests of a file. */
export function folderOfFile(test) {
  const path = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-')))
  test.after.always('the folder of this file', () => rmSync(path, { recursive: true, force: true }))
  return path
}

/** For what must survive the end of everything else, and is ended by its number while that is known to be its own. */
export function killMarked(pid, mark) {
  if (!isAlive(pid) || !marked(mark).includes(pid)) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    // It has ended by itself since.
    if (error.code !== 'ESRCH') throw error
  }
}
