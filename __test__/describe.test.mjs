// describe(): the lines that a tool hands to its model.
import { describe, notices, run } from '../dist/index.js'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const bash = async (script, options) => {
  const result = await run('bash', ['-c', script], { env, ...options })
  const text = describe(result).replace(/\(pid \d+\)/g, '(pid N)')
  await result.kept?.end({ grace: 0 })
  return text.split('\n')
}

test('how the command ended', async (t) => {
  t.deepEqual(await bash('exit 0'), ['The command exited with code 0.'])
  t.deepEqual(await bash('exit 3'), ['The command exited with code 3.'])
  t.deepEqual(await bash('kill -SEGV $$'), ['The command was ended by SIGSEGV.'])
})

test('which limit struck', async (t) => {
  const ended = 'The command was ended by SIGTERM.'
  t.deepEqual(await bash('exec sleep 60', { timeout: 100 }), [ended, 'It had reached its time limit.'])
  t.deepEqual(await bash('exec sleep 60', { idleTimeout: 100 }), [
    ended,
    'It had written nothing for longer than its limit.',
  ])
  t.deepEqual(await bash('exec sleep 60', { signal: AbortSignal.timeout(100) }), [ended, 'It was aborted.'])
})

test('what was left and ended, with a bound on the names', async (t) => {
  t.deepEqual(await bash('sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; exit 2'), [
    'The command exited with code 2.',
    'Ended with it: sleep (pid N).',
  ])
  const [, line] = await bash('for i in {1..9}; do sleep 60 & done; until grep -q sleep /proc/$!/comm; do :; done')
  t.regex(line, /^Ended with it: (\w+ \(pid N\), ){5}4 more\.$/)
})

test('what runs on', async (t) => {
  t.deepEqual(await bash('exec sleep 60', { yieldAfter: 50 }), [
    'The command is still running.',
    'It runs on in the background.',
  ])
  t.deepEqual(await bash('sleep 60 & exit 4', { background: 'keep' }), [
    'The command exited with code 4.',
    'What it left runs on in the background.',
  ])
})

test('what was cut, and the notices', async (t) => {
  t.deepEqual(await bash('head -c 1000 /dev/zero', { maxOutput: 100, encoding: 'buffer' }), [
    'The command exited with code 0.',
    '900 bytes of stdout were left out.',
  ])
  const lines = await bash('yes & exit 0', { maxOutput: 100, backgroundSettle: 300 })
  t.is(lines[0], 'The command exited with code 0.')
  t.is(lines[1], 'Ended with it: yes (pid N).')
  t.regex(lines[2], /^\d+ bytes of stdout were left out\.$/)
  t.is(lines[3], notices.background)
})

test('survivors, an unknown end, and an end on request are told', (t) => {
  const report = { reason: 'end', leftovers: [], leftoverCount: 0, survivors: [{ pid: 7, name: 'stuck' }] }
  const result = { exitCode: null, signal: null, report, dropped: { stdout: 0, stderr: 0 }, notices: [notices.end] }
  t.is(
    describe(result),
    `How the command ended is unknown.\nIt was ended on request.\nCould not be ended: stuck (pid 7).\n${notices.end}`,
  )
})
