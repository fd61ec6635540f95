// C34: the end of one call is no business of another one.
import { once } from 'node:events'
import { spawn } from '../dist/index.js'
import { descriptors, gone, isAlive, marked, newMark, newWord, stat, until, withWord } from './support/facts.mjs'
import { fixture } from './support/fixtures.mjs'
import { linesOf } from './support/lines.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const environment = (mark) => ({ ...process.env, MARK: mark })

suite(test, { patience: 0 })

/** A call that prints what signal reaches any of its three processes, one of which has left the session. */
async function startNeighbour(t) {
  const mark = newMark()
  const script = '"$0" "$1" & setsid "$0" "$1" & exec "$0" "$1"'
  const child = spawn('sh', ['-c', script, process.execPath, fixture('stubborn.mjs')], { env: environment(mark) })
  const lines = linesOf(child.stdout)
  const seen = []
  // The two in the background have /dev/null as stdin, and come to its end.
  while (seen.length < 5) seen.push(await lines.next())
  t.deepEqual(seen.sort(), ['EOF', 'EOF', 'ready', 'ready', 'ready'])
  await until(() => marked(mark).length === 3, 'three processes')
  const pids = marked(mark)
  const keeper = stat(child.pid).ppid
  const facts = () => ({
    keeper: [...descriptors(keeper)],
    processes: pids.map((pid) => {
      const { state, ...place } = stat(pid)
      return { alive: isAlive(pid), stopped: state === 'T', ...place, descriptors: [...descriptors(pid)] }
    }),
  })
  return { child, lines, mark, pids, facts }
}

const ENDS = {
  'end()': { end: (child) => child.end({ grace: 100 }) },
  'an exit that leaves processes': { end: (child) => process.kill(child.pid, 'SIGKILL') },
  'a timeout': { options: () => ({ timeout: 300, grace: 100 }) },
  'an abort': { options: () => ({ signal: AbortSignal.timeout(300), grace: 100 }) },
  'kill() and killGroup()': {
    end(child) {
      child.killGroup('SIGSTOP')
      child.killGroup('SIGINT')
      child.kill('SIGKILL')
    },
  },
  'the loss of its keeper': { end: (child) => process.kill(stat(child.pid).ppid, 'SIGKILL'), by: 'helper' },
}

for (const [title, { options = () => ({}), end = () => {}, by = 'keeper' }] of Object.entries(ENDS)) {
  test(`a call is untouched by its neighbour’s end: ${title} (C34)`, async (t) => {
    const neighbour = await startNeighbour(t)
    const word = newWord()
    const script = 'trap "" TERM; setsid sleep "$0" & sleep "$0" & echo up; sleep "$0"; :'
    const child = spawn('sh', ['-c', script, word], options())
    await once(child.stdout, 'data')
    const before = neighbour.facts()
    await until(() => withWord(word).length === 4, 'the one that will be ended')
    await end(child)
    t.like(await child.ended, { outcome: 'ended', by })
    t.deepEqual(withWord(word), [])
    t.deepEqual(neighbour.facts(), before)

    // Nothing reached it but what it is asked now; it still reads and writes.
    t.is(neighbour.child.exitCode, null)
    t.is(neighbour.child.signalCode, null)
    neighbour.child.stdin.end()
    t.is(await neighbour.lines.next(), 'EOF')
    const last = await neighbour.child.end({ grace: 0 })
    t.like(last, { outcome: 'ended', reason: 'end', by: 'keeper', leftoverCount: 2 })
    t.is(await neighbour.lines.next(), undefined)
    await gone(neighbour.pids)
  })
}

test('the neighbour’s keeper is reused, and the other call still is not touched (C34)', async (t) => {
  const neighbour = await startNeighbour(t)
  const before = neighbour.facts()
  for (let round = 0; round < 20; round++) {
    const child = spawn('sh', ['-c', 'setsid sleep 60 & sleep 60 & exit 1'])
    t.like(await child.ended, { outcome: 'ended', by: 'keeper' })
  }
  t.deepEqual(neighbour.facts(), before)
  neighbour.child.stdin.end()
  t.is(await neighbour.lines.next(), 'EOF')
  await neighbour.child.end({ grace: 0 })
  t.deepEqual(marked(neighbour.mark), [])
})
