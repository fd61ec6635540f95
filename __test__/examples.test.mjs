// Every example, and the demonstration of `npm start`, prints what it says and leaves nothing.
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { holdfast } from './support/command-line.mjs'
import { comm, marked } from './support/facts.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const path = (file) => fileURLToPath(new URL(`../${file}`, import.meta.url))
const execute = (file) => holdfast([], { command: [process.execPath, path(file)], stdio: ['ignore', 'pipe', 'pipe'] })

suite(test)

const PRINTED = {
  'session.mjs':
    'the Engine says: are you there?\ncontained: true; ended by SIGTERM; the end: ended, proven by subreaper\n',
  'shell-tool.mjs': 'the server is up\n\nexit code: 0\nended with it: sleep\n',
  'stream.mjs': 'got line 1\ngot line 2\ngot line 3\nexit code 3; ended with it: sleep\n',
  'timeout.mjs': 'output:    started\ntimed out: true\nthe end:   ended, proven by subreaper\n',
}

test('every example is executed here', (t) => {
  const programs = readdirSync(path('examples')).filter((name) => name.endsWith('.mjs'))
  t.deepEqual(programs.sort(), Object.keys(PRINTED))
})

for (const [name, printed] of Object.entries(PRINTED)) {
  test(`examples/${name} prints what it says, ends by itself and leaves nothing`, async (t) => {
    const started = execute(`examples/${name}`)
    const status = await started.closed
    t.deepEqual([status, started.out(), started.err()], [{ code: 0, signal: null }, printed, ''])
    // The helper is the last to leave, just after its host.
    t.deepEqual(
      marked(started.mark)
        .map(comm)
        .filter((one) => one !== 'holdfast-helper'),
      [],
    )
  })
}

test('the demonstration of `npm start`: every claim holds', async (t) => {
  const started = execute('scripts/demo.mjs')
  t.deepEqual(await started.closed, { code: 0, signal: null }, started.out() + started.err())
  const lines = started.out().split('\n')
  t.is(lines.filter((line) => line.startsWith('ok ')).length, 15)
  t.deepEqual(
    lines.filter((line) => line.startsWith('NOT SO')),
    [],
  )
})
