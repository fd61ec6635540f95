// Several copies of this package in one process: a test runner that loads modules anew, two dependents of one program.
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { Worker } from 'node:worker_threads'
import { endAll, run, spawn } from '../dist/index.js'
import { programOf } from './support/fixtures.mjs'
import { HOLDFAST, startHost } from './support/host.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

suite(test)

test('two copies over one addon get their own words each', async (t) => {
  const require = createRequire(import.meta.url)
  const path = require.resolve('../dist/index.js')
  const dist = join(path, '..')
  const first = require(path)
  t.is((await first.run('echo', ['1'])).stdout, '1\n')
  for (const file of Object.keys(require.cache)) if (file.startsWith(dist)) delete require.cache[file]
  const second = require(path)
  t.not(second.run, first.run)
  t.is((await second.run('echo', ['2'])).stdout, '2\n')
  t.is((await first.run('echo', ['3'])).stdout, '3\n')
  t.is((await first.spawn('true').ended).outcome, 'ended')
  t.is((await second.spawn('true').ended).outcome, 'ended')
})

test("endAll() with scope 'process' ends another thread's calls, and tells of them", async (t) => {
  const path = JSON.stringify(createRequire(import.meta.url).resolve('../dist/index.js'))
  const worker = new Worker(
    `const { spawn } = require(${path})
     const child = spawn('sleep', ['50'])
     require('node:worker_threads').parentPort.postMessage(child.pid)
     child.ended.then(({ reason }) => require('node:worker_threads').parentPort.postMessage(reason))`,
    { eval: true },
  )
  const messages = []
  const told = new Promise((resolve) => {
    worker.on('message', (message) => {
      messages.push(message)
      if (messages.length === 2) resolve()
    })
  })
  while (messages.length === 0) await new Promise((resolve) => worker.once('message', resolve))
  const own = spawn('sleep', ['50'])
  const reports = await endAll({ scope: 'process', grace: 0 })
  t.deepEqual(
    reports.map(({ outcome, reason, by }) => [outcome, reason, by]),
    [
      ['ended', 'end', 'keeper'],
      ['ended', 'end', 'keeper'],
    ],
  )
  await told
  t.is(messages[1], 'end')
  t.is(own.signalCode, 'SIGKILL')
  await worker.terminate()
})

test("a worker that asked endAll({ scope: 'process' }) is terminated: another one is told of no end that did not happen (C79)", async (t) => {
  const host = startHost(programOf('copies/terminated-asker', { HOLDFAST }))
  t.teardown(() => host.kill())
  const counts = await host.next()
  t.deepEqual(
    counts,
    Array.from(counts, (_, index) => index + 1),
  )
  t.is(counts.length, 100)
})

test('workers that share and change the environment do not disturb a start', async (t) => {
  const host = startHost(programOf('copies/shared-environment'))
  t.is(await host.next(), 'done')
  t.deepEqual(await host.exited, { code: 0, signal: null })
})

test("a place beyond stderr with 'ignore' is closed, as under child_process", async (t) => {
  const child = spawn('sh', ['-c', 'ls -l /proc/self/fd/'], { stdio: ['pipe', 'pipe', 'pipe', 'ignore', 'pipe'] })
  let stdout = ''
  for await (const text of child.stdout.setEncoding('utf8')) stdout += text
  t.like(await child.ended, { outcome: 'ended' })
  const pipes = stdout.split('\n').filter((line) => line.includes('pipe:'))
  t.is(pipes.length, 3, stdout)
  t.false(/ 3 -> pipe/.test(stdout), stdout)
})

test('a signal that is none is refused before anything ran', async (t) => {
  const error = await t.throwsAsync(run('true', { signal: { aborted: false } }))
  t.is(error.code, 'ERR_INVALID_ARG_TYPE')
})

test('what onOutput returns besides a promise says nothing', async (t) => {
  const chunks = []
  const { stdout, ok } = await run('echo', ['x'], { onOutput: (chunk) => chunks.push(chunk) })
  t.deepEqual([stdout, ok, chunks.length], ['x\n', true, 1])
})

test('an input that cannot be written is an error of the call, and no other', async (t) => {
  const error = await t.throwsAsync(run('cat', { input: Readable.from([1, 2]) }))
  t.is(error.code, 'ERR_HOLDFAST_CONSUMER')
  const late = new Readable({ read() {} })
  t.true((await run('true', { input: late })).ok)
  late.destroy(new Error('after the call'))
  const refused = new Readable({ read() {} })
  const signal = AbortSignal.abort()
  await t.throwsAsync(run('cat', { input: refused, signal }), { code: 'ABORT_ERR' })
  refused.destroy(new Error('after the refusal'))
  await new Promise((resolve) => setImmediate(resolve))
})

test('an absolute cwd does not need the host’s own', async (t) => {
  if (!has(t, process.getuid() === 0 ? '' : 'not root')) return
  const closed = folder(t)
  const host = startHost(
    `process.chdir(${JSON.stringify(closed)}); process.setgroups([]); process.setgid(65534); process.setuid(65534)
     const { stdout } = await run('pwd', { cwd: '/' })
     const error = await run('pwd').catch((error) => error)
     report([stdout, error.code, error.step])`,
  )
  t.deepEqual(await host.next(), ['/\n', 'EACCES', 'cwd'])
})

test('a host with few free descriptors goes on working', async (t) => {
  const host = startHost(
    `const results = []
     for (let i = 0; i < 10; i++) results.push(await run('echo', ['x']).then(({ ok }) => ok, ({ code }) => code))
     report(results)`,
    { command: ['sh', '-c', 'ulimit -n 34; exec "$0" "$@"', process.execPath] },
  )
  const results = await host.next()
  t.deepEqual(results, Array(10).fill(true))
})
