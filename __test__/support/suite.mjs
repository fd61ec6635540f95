// What every file of tests needs once: a mark for all it starts, and the check that nothing with it is left.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endAll } from '../../dist/index.js'
import { isAlive, marked, newMark, until } from './facts.mjs'

export function suite(test) {
  const mark = newMark()
  // The calls of a test that failed are not the next one's business. What escaped a call is found below.
  test.afterEach.always('calls of a test that failed', () => endAll({ grace: 0 }))
  test.after.always('nothing that this file started is left', async (t) => {
    await until(() => marked(mark).length === 0, 'end of all with the mark of this file').catch(() => {})
    t.deepEqual(marked(mark), [])
  })
  return { mark, env: { ...process.env, MARK: mark } }
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
  t.teardown(() => rmSync(path, { recursive: true, force: true }))
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
