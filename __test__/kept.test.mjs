// A call that goes on after its result: yieldAfter and background 'keep', and what can be read of it.
import { once } from 'node:events'
import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { notices, run, running } from '../dist/index.js'
import { helpersOf, isAlive, keepersOf, noneMarked, stat, until } from './support/facts.mjs'
import { HOLDFAST, startHost } from './support/host.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env, mark } = suite(test)
const bash = (script, options) => run('bash', ['-c', script], { env, ...options })
const nothing = { stdout: '', stderr: '', dropped: { stdout: 0, stderr: 0 } }

/** All that comes until `last` has come, read by read. */
async function readUntil(kept, last) {
  let text = ''
  await until(
    () => {
      text += kept.read().stdout
      return text.includes(last)
    },
    `${JSON.stringify(last)} in what is kept`,
  )
  return text
}

test('yieldAfter: the result has what there is, and the command runs on and can be read', async (t) => {
  const result = await bash('echo one; read -r _ < <(sleep 0.6); echo two; echo err >&2; exit 4', { yieldAfter: 200 })
  t.like(result, {
    stdout: 'one\n',
    exitCode: null,
    signal: null,
    ok: false,
    timedOut: false,
    report: { outcome: 'kept', reason: 'yield', by: 'keeper', mechanism: 'subreaper' },
  })
  const { kept } = result
  t.true(isAlive(kept.pid))
  t.deepEqual(
    running().map(({ id }) => id),
    [kept.id],
  )
  t.deepEqual(kept.read(), nothing)
  kept.ref()
  t.deepEqual(await kept.exited, { exitCode: 4, signal: null })
  t.like(await kept.ended, { outcome: 'ended', reason: 'exit', leftoverCount: 0 })
  t.deepEqual(kept.read(), { stdout: 'two\n', stderr: 'err\n', dropped: { stdout: 0, stderr: 0 } })
  t.deepEqual(kept.read(), nothing, 'after the end')
  t.deepEqual(running(), [])
})

test('yieldAfter: a command that exits before is as without it', async (t) => {
  const result = await bash('echo done', { yieldAfter: 60_000 })
  t.like(result, { stdout: 'done\n', ok: true, kept: undefined, report: { reason: 'exit' } })
})

test('yieldAfter: what it leaves at its exit is ended as always', async (t) => {
  const { kept } = await bash('sleep 0.4; sleep 60 & exit 0', { yieldAfter: 100 })
  kept.ref()
  t.like(await kept.ended, { outcome: 'ended', reason: 'exit', leftoverCount: 1 })
})

test('yieldAfter: the timeout holds, end() ends it, and an abort does not concern it any more', async (t) => {
  const limited = await bash('sleep 60', { yieldAfter: 100, timeout: 400 })
  limited.kept.ref()
  t.deepEqual(await limited.kept.exited, { exitCode: null, signal: 'SIGTERM' })
  t.like(await limited.kept.ended, { outcome: 'ended', reason: 'timeout' })

  const abort = new AbortController()
  const { kept } = await bash('sleep 60', { yieldAfter: 100, signal: abort.signal })
  abort.abort()
  await setTimeout(100)
  t.true(isAlive(kept.pid))
  t.like(await kept.end(), { outcome: 'ended', reason: 'end' })
  t.like(await kept.exited, { signal: 'SIGTERM' })
})

test('yieldAfter wins over a consumer that does not answer, and check does not reject for it', async (t) => {
  const options = { yieldAfter: 200, check: true, onOutput: () => new Promise(() => {}) }
  const { stdout, kept } = await bash('echo one; sleep 0.1; echo two; sleep 60', options)
  t.is(stdout, 'one\ntwo\n')
  t.like(await kept.end({ grace: 0 }), { outcome: 'ended', reason: 'end' })
})

test('yieldAfter: nothing is lost or told twice between the result and the reads', async (t) => {
  for (let round = 0; round < 20; round++) {
    const { stdout, kept } = await bash('for i in {1..3000}; do echo $i; done', { yieldAfter: 1 + round })
    let text = stdout
    if (kept !== undefined) {
      kept.ref()
      while ((await Promise.race([kept.ended, setTimeout(1)])) === undefined) text += kept.read().stdout
      text += kept.read().stdout
    }
    t.is(text, Array.from({ length: 3000 }, (_, index) => `${index + 1}\n`).join(''))
  }
})

test('yieldAfter is refused where it is no time', async (t) => {
  for (const yieldAfter of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 40]) {
    await t.throwsAsync(run('true', { yieldAfter }), { code: 'ERR_OUT_OF_RANGE' }, `${yieldAfter}`)
  }
  await t.throwsAsync(run('true', { yieldAfter: '5' }), { code: 'ERR_INVALID_ARG_TYPE' })
  t.like(await run('true', { yieldAfter: 0, env }), { ok: true, kept: undefined })
})

test('background keep: what is printed after the exit can be read (C40)', async (t) => {
  const script = '(for i in 1 2 3; do sleep 0.1; echo later $i; done; sleep 60) & echo started; exit 7'
  const { stdout, exitCode, kept, report } = await bash(script, { background: 'keep' })
  t.deepEqual([stdout, exitCode, report.reason], ['started\n', 7, 'exit'])
  t.deepEqual(await kept.exited, { exitCode: 7, signal: null })
  t.is(await readUntil(kept, 'later 3\n'), 'later 1\nlater 2\nlater 3\n')
  t.like(await kept.end(), { outcome: 'ended', reason: 'end' })
})

test('what a kept call prints at its end can be read after it', async (t) => {
  const script = '(trap "echo bye; exit" TERM; echo up; while :; do sleep 0.05; done) & exit 0'
  const { kept, stdout } = await bash(script, { background: 'keep' })
  const up = stdout.includes('up') ? '' : await readUntil(kept, 'up\n')
  t.is(stdout + up, 'up\n')
  await kept.end()
  t.is(kept.read().stdout, 'bye\n')
})

test('a character that is cut between two reads comes whole with the second', async (t) => {
  // € is e2 82 ac.
  const script = 'printf "a\\xe2\\x82"; sleep 0.5; printf "\\xacb"; sleep 60'
  const { stdout, kept } = await bash(script, { yieldAfter: 250 })
  t.is(stdout, 'a')
  t.is(kept.read().stdout, '')
  t.is(await readUntil(kept, 'b'), '€b')
  await kept.end({ grace: 0 })

  const hex = await bash('printf ab; sleep 0.3; printf cd; sleep 60', { yieldAfter: 150, encoding: 'base64' })
  t.is(hex.stdout, '')
  let text = ''
  await until(() => {
    text += hex.kept.read().stdout
    return text !== ''
  }, 'three bytes')
  t.is(text, Buffer.from('abc').toString('base64'))
  await hex.kept.end({ grace: 0 })
  t.is(hex.kept.read().stdout, Buffer.from('d').toString('base64'), 'after the end there is no more to wait for')
})

test('bytes that are not UTF-8 come as bytes with encoding buffer', async (t) => {
  const { kept } = await bash('sleep 0.3; printf "\\xff\\xe2\\x00"', { yieldAfter: 100, encoding: 'buffer' })
  kept.ref()
  await kept.ended
  t.deepEqual(kept.read().stdout, Buffer.from([0xff, 0xe2, 0]))
})

test('more than maxOutput between two reads: head and tail, what was dropped, and flat memory', async (t) => {
  const script = 'head -c 100000000 /dev/zero | tr "\\0" x; echo END; sleep 60'
  const { stdout, kept } = await bash(`sleep 0.3; ${script}`, { yieldAfter: 100, maxOutput: 10_000 })
  t.is(stdout, '')
  const before = process.memoryUsage.rss()
  let most = before
  let read
  let length = 0
  await until(
    () => {
      most = Math.max(most, process.memoryUsage.rss())
      if (stat(kept.pid) === undefined) return true
      read = kept.read()
      length +=
        Buffer.byteLength(read.stdout) - (read.dropped.stdout > 0 ? notices.cut.length + 2 : 0) + read.dropped.stdout
      return read.stdout.endsWith('END\n')
    },
    'the end of the output',
    60_000,
  )
  t.is(length, 100_000_004)
  t.true(most - before < 64 * 2 ** 20, `${(most - before) / 2 ** 20} MiB more`)
  await kept.end({ grace: 0 })
})

test('it does not wait for a reader: a command that prints without pause goes on, and the host stays free', async (t) => {
  const { kept } = await bash('yes', { yieldAfter: 50, maxOutput: 1000 })
  const used = performance.eventLoopUtilization()
  await setTimeout(500)
  const { utilization } = performance.eventLoopUtilization(used)
  t.true(utilization < 0.5, `${utilization}`)
  t.true(kept.read().dropped.stdout > 1_000_000)
  t.like(await kept.end({ grace: 0 }), { outcome: 'ended', reason: 'end' })
})

test('while it is silent it costs the event loop nothing', async (t) => {
  const { kept } = await bash('sleep 60', { yieldAfter: 20 })
  const used = performance.eventLoopUtilization()
  const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
  await setTimeout(300)
  t.true(performance.eventLoopUtilization(used).active < 50)
  t.is(process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length, timers)
  await kept.end({ grace: 0 })
})

test('it keeps the host only after ref(), and ends with it', async (t) => {
  for (const [ref, code] of [
    ['', 0],
    ['kept.ref()', 3],
  ]) {
    const host = startHost(
      `const { kept } = await run('bash', ['-c', 'sleep 0.6; exit 3'], { yieldAfter: 50 })
       kept.exited.then(({ exitCode }) => process.exit(exitCode))
       ${ref}
       report(kept.pid)`,
      { env },
    )
    await host.next()
    t.deepEqual(await host.exited, { code, signal: null })
    await noneMarked(mark)
  }
})

test('the host is killed: what was kept is ended (C40)', async (t) => {
  const host = startHost(
    `const { kept } = await run('bash', ['-c', 'setsid sleep 60 & sleep 60'], { yieldAfter: 100, grace: 0 })
     report(kept.pid)
     setInterval(() => {}, 1000)`,
    { env },
  )
  t.true(isAlive(await host.next()))
  host.kill()
  await host.exited
  await noneMarked(mark)
  t.pass()
})

test('its keeper is killed: exited has no status, the report says so, and nothing is left', async (t) => {
  const host = startHost(
    `const { kept } = await run('bash', ['-c', 'echo one; setsid sleep 60 & sleep 60'], { yieldAfter: 100, grace: 0 })
     report(kept.pid)
     kept.ref()
     const exit = await kept.exited
     const { by, outcome, reason } = await kept.ended
     report([exit, by, outcome, reason, kept.read().stdout])`,
    { env },
  )
  t.teardown(() => host.kill())
  const pid = await host.next()
  const [helper] = helpersOf(host.pid)
  const keeper = keepersOf(helper).find((one) => stat(pid)?.ppid === one)
  process.kill(keeper, 'SIGKILL')
  t.deepEqual(await host.next(), [{ exitCode: null, signal: null }, 'helper', 'ended', 'keeper-gone', ''])
  await noneMarked(mark)
})

test('the worker that holds it is terminated: nothing is left (C65)', async (t) => {
  const worker = new Worker(
    `const { run } = require(${JSON.stringify(HOLDFAST)})
     const { parentPort, workerData } = require('node:worker_threads')
     run('bash', ['-c', 'sleep 60'], { env: workerData, yieldAfter: 50, grace: 0 }).then(({ kept }) => {
       parentPort.postMessage(kept.pid)
       setInterval(() => {}, 1000)
     })`,
    { eval: true, workerData: { ...env } },
  )
  const [pid] = await once(worker, 'message')
  t.true(isAlive(pid))
  await worker.terminate()
  await noneMarked(mark)
})

test('200 kept calls at once: each has its own output', async (t) => {
  const results = await Promise.all(
    Array.from({ length: 200 }, (_, index) => bash(`echo ${index}; exec sleep 60`, { yieldAfter: 3000 })),
  )
  for (const [index, { stdout, kept }] of results.entries()) t.is(stdout + kept.read().stdout, `${index}\n`)
  const reports = await Promise.all(results.map(({ kept }) => kept.end({ grace: 0 })))
  t.true(reports.every(({ outcome }) => outcome === 'ended'))
})
