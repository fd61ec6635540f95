/**
 * About fifty calls that every runtime has to pass: what is promised, seen from the outside of one process of that
 * runtime. No test runner: each runtime has another one, or none. Run by main.cjs.
 *
 * A case gets `{ holdfast, session, again, folder }`: the package, `holdfast/session`, the command line that runs a script
 * in this same runtime, and a folder of its own. It throws, or returns a reason for which it was skipped.
 */
const assert = require('node:assert/strict')
const { once } = require('node:events')
const { spawn: plain } = require('node:child_process')
const { chmodSync, readFileSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')
const { Readable } = require('node:stream')

const until = async (condition, what) => {
  for (const deadline = Date.now() + 10_000; !condition(); ) {
    if (Date.now() > deadline) throw new Error(`waited too long for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
/** Not a zombie. */
const isAlive = (pid) => {
  try {
    return !/^State:\s[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}
/** A window of Electron with Node.js: its import() is the browser's, and it has no worker threads. Shown without holdfast. */
const inRenderer = process.type === 'renderer' ? 'not in a renderer of Electron' : undefined
const rejected = (promise) =>
  promise.then(
    () => assert.fail('it did not reject'),
    (error) => error,
  )
const text = async (stream) => {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
const sh = (script) => ['sh', ['-c', script]]
/** Waits for the first line of a stream, which says a pid. */
const firstNumber = async (stream) => Number(String((await once(stream, 'data'))[0]).split('\n')[0])

module.exports = {
  // ---- run(): output and input
  stdout: async ({ holdfast: { run } }) => assert.equal((await run('echo', ['works'])).stdout, 'works\n'),
  'stderr apart': async ({ holdfast: { run } }) => {
    const { stdout, stderr } = await run(...sh('echo out; echo err >&2'))
    assert.deepEqual([stdout, stderr], ['out\n', 'err\n'])
  },
  'exit code': async ({ holdfast: { run } }) => {
    const { exitCode, signal, ok } = await run(...sh('exit 7'))
    assert.deepEqual([exitCode, signal, ok], [7, null, false])
  },
  'end by a signal': async ({ holdfast: { run } }) => {
    const { exitCode, signal } = await run(...sh('kill -USR1 $$'))
    assert.deepEqual([exitCode, signal], [null, 'SIGUSR1'])
  },
  'input, a string': async ({ holdfast: { run } }) => {
    assert.equal((await run('cat', { input: 'ünïcødé' })).stdout, 'ünïcødé')
  },
  'input, a megabyte': async ({ holdfast: { run } }) => {
    const input = Buffer.alloc(1 << 20, 'abcdefg\n')
    const { stdout } = await run('cat', { input, encoding: 'buffer' })
    assert.ok(input.equals(stdout))
  },
  'input, a stream': async ({ holdfast: { run } }) => {
    assert.equal((await run('cat', { input: Readable.from(['one', 'two']) })).stdout, 'onetwo')
  },
  'input that nobody reads': async ({ holdfast: { run } }) => {
    assert.equal((await run('true', { input: Buffer.alloc(1 << 20) })).exitCode, 0)
  },
  'bytes as they are': async ({ holdfast: { run } }) => {
    const { stdout } = await run(...sh("printf '\\377\\000\\200'"), { encoding: 'buffer' })
    assert.deepEqual([...stdout], [255, 0, 128])
  },
  'five megabytes of output': async ({ holdfast: { run } }) => {
    assert.equal((await run('head', ['-c', '5000000', '/dev/zero'])).stdout.length, 5_000_000)
  },
  'maxOutput keeps head and tail': async ({ holdfast: { run } }) => {
    const { stdout, dropped } = await run(...sh('seq 10000'), { maxOutput: 100 })
    assert.match(stdout, /^1\n2\n[\s\S]*10000\n$/)
    assert.ok(dropped.stdout > 40_000)
  },
  onOutput: async ({ holdfast: { run } }) => {
    const seen = []
    await run(...sh('echo out; echo err >&2'), {
      onOutput: ({ stream, data }) => void seen.push(`${stream} ${Buffer.from(data)}`),
    })
    assert.deepEqual(seen.sort(), ['stderr err\n', 'stdout out\n'])
  },
  'stdout and stderr in one': async ({ holdfast: { run } }) => {
    const { stdout } = await run(...sh('echo 1; echo 2 >&2; echo 3'), { stdio: ['ignore', 'pipe', 'stdout'] })
    assert.equal(stdout, '1\n2\n3\n')
  },

  // ---- run(): options
  env: async ({ holdfast: { run } }) => {
    const { stdout } = await run('sh', ['-c', 'echo "$A $B"'], { env: { PATH: '/usr/bin:/bin', A: 'ä', B: undefined } })
    assert.equal(stdout, 'ä \n')
  },
  'process.env as it is at the call': async ({ holdfast: { run } }) => {
    process.env.CONFORMANCE = 'now'
    try {
      assert.equal((await run(...sh('echo "$CONFORMANCE"'))).stdout, 'now\n')
    } finally {
      delete process.env.CONFORMANCE
    }
  },
  cwd: async ({ holdfast: { run }, folder }) => {
    assert.equal((await run('pwd', ['-P'], { cwd: folder })).stdout, `${folder}\n`)
  },
  'arguments as they are': async ({ holdfast: { run } }) => {
    const args = ['a b', '"', "'", '$HOME', '*', '', 'ü\n']
    assert.equal((await run('printf', ['<%s>', ...args])).stdout, args.map((one) => `<${one}>`).join(''))
  },
  'argv0 and shell': async ({ holdfast: { run } }) => {
    assert.equal((await run('sh', ['-c', 'echo "$0"'], { argv0: 'other/sh' })).stdout, 'other/sh\n')
    assert.equal((await run('echo $((1 + 1))', { shell: true })).stdout, '2\n')
  },
  'check rejects with the result': async ({ holdfast: { run } }) => {
    const error = await rejected(run(...sh('echo why >&2; exit 3'), { check: true }))
    assert.equal(error.code, 'ERR_HOLDFAST_CHECK')
    assert.match(error.message, /exited with code 3.*\n?why/s)
    assert.equal(error.result.exitCode, 3)
  },

  // ---- refusals
  'a program that is missing': async ({ holdfast: { run, HoldfastError } }) => {
    const error = await rejected(run('no-such-program-anywhere'))
    assert.ok(HoldfastError.is(error) && error instanceof Error)
    assert.deepEqual([error.code, error.step, error.ran, error.errno], ['ENOENT', 'program', false, -2])
  },
  'a folder that is missing': async ({ holdfast: { run } }) => {
    const { code, step } = await rejected(run('true', { cwd: '/no/such/folder' }))
    assert.deepEqual([code, step], ['ENOENT', 'cwd'])
  },
  'a program without permission': async ({ holdfast: { run }, folder }) => {
    const path = join(folder, 'plain')
    writeFileSync(path, '#!/bin/sh\n')
    chmodSync(path, 0o644)
    assert.equal((await rejected(run(path))).code, 'EACCES')
  },
  'an option that there is not': async ({ holdfast: { run } }) => {
    const error = await rejected(run('true', { timeoutMs: 1 }))
    assert.equal(error.code, 'ERR_HOLDFAST_UNKNOWN_OPTION')
    assert.ok(error instanceof TypeError)
  },

  // ---- ends
  timeout: async ({ holdfast: { run } }) => {
    const { timedOut, signal, report } = await run('sleep', ['60'], { timeout: 100 })
    assert.deepEqual([timedOut, signal, report.reason], [true, 'SIGTERM', 'timeout'])
  },
  'timeout with a blocked loop': async ({ holdfast: { run } }) => {
    const call = run('sleep', ['60'], { timeout: 100 })
    for (const end = Date.now() + 600; Date.now() < end; );
    const { duration, timedOut } = await call
    assert.ok(timedOut && duration < 5000)
  },
  'SIGKILL after the grace': async ({ holdfast: { run } }) => {
    const { signal } = await run(...sh('trap "" TERM; while :; do sleep 0.05; done'), { timeout: 200, grace: 100 })
    assert.equal(signal, 'SIGKILL')
  },
  abort: async ({ holdfast: { run } }) => {
    const controller = new AbortController()
    const call = run('sleep', ['60'], { signal: controller.signal })
    setTimeout(() => controller.abort(), 50)
    const { aborted, report } = await call
    assert.deepEqual([aborted, report.outcome, report.reason], [true, 'ended', 'abort'])
  },
  'aborted before the start': async ({ holdfast: { run } }) => {
    const { name, ran } = await rejected(run('true', { signal: AbortSignal.abort() }))
    assert.deepEqual([name, ran], ['AbortError', false])
  },
  'what was left is ended, and named': async ({ holdfast: { run } }) => {
    const { stdout, report } = await run(...sh('sleep 60 & echo $!'))
    assert.deepEqual([report.outcome, report.mechanism], ['ended', 'subreaper'])
    assert.deepEqual(report.leftovers, [{ pid: Number(stdout), name: 'sleep' }])
    assert.ok(!isAlive(Number(stdout)))
  },
  'an escape by setsid and a double fork': async ({ holdfast: { run } }) => {
    const { stdout, report } = await run(...sh('(setsid sh -c \'sh -c "echo \\$\\$; exec sleep 60" &\') & sleep 0.3'))
    assert.equal(report.outcome, 'ended')
    assert.ok(Number(stdout) > 1 && !isAlive(Number(stdout)), stdout)
  },
  'background: keep': async ({ holdfast: { run } }) => {
    const { stdout, report, kept } = await run(...sh('sleep 60 >&- 2>&- & echo $!'), { background: 'keep' })
    assert.equal(report.outcome, 'kept')
    assert.ok(isAlive(Number(stdout)))
    assert.equal((await kept.end()).outcome, 'ended')
    assert.ok(!isAlive(Number(stdout)))
  },
  'a hundred at once': async ({ holdfast: { run, running } }) => {
    const all = await Promise.all(Array.from({ length: 100 }, (_, index) => run('echo', [`${index}`])))
    assert.deepEqual(
      all.map(({ stdout }) => Number(stdout)),
      Array.from({ length: 100 }, (_, index) => index),
    )
    assert.deepEqual(running(), [])
  },
  usage: async ({ holdfast: { run } }) => {
    const { usage, duration } = await run(...sh(':'))
    assert.ok(usage.maxRss > 100_000 && usage.userTime >= 0 && duration > 0)
  },

  // ---- spawn()
  'order of events': async ({ holdfast: { spawn } }) => {
    const events = []
    const child = spawn(...sh('echo out'))
    child.stdout.on('data', () => events.push('data'))
    for (const name of ['spawn', 'exit', 'close', 'ended']) child.on(name, () => events.push(name))
    await child.ended
    // The promise may be told before the listener of that name.
    await new Promise((resolve) => setTimeout(resolve, 20))
    assert.deepEqual(events, ['spawn', 'data', 'exit', 'close', 'ended'])
  },
  'write and read': async ({ holdfast: { spawn } }) => {
    const child = spawn('cat')
    child.stdin.write('one ')
    child.stdin.end('two')
    assert.equal(await text(child.stdout), 'one two')
    assert.equal((await child.ended).outcome, 'ended')
  },
  'kill, and killed': async ({ holdfast: { spawn } }) => {
    const child = spawn('sleep', ['60'])
    assert.ok(isAlive(child.pid) && child.kill('SIGINT'))
    assert.deepEqual(await once(child, 'exit'), [null, 'SIGINT'])
    assert.ok(child.killed && child.signalCode === 'SIGINT')
    await child.ended
  },
  'end() of a tree': async ({ holdfast: { spawn } }) => {
    const child = spawn(...sh('sleep 60 & sleep 60 & echo $!; wait'))
    const pid = await firstNumber(child.stdout)
    const report = await child.end()
    assert.deepEqual([report.outcome, report.reason], ['ended', 'end'])
    assert.ok(!isAlive(pid) && report.leftoverCount === 2)
  },
  'detached and killGroup': async ({ holdfast: { spawn } }) => {
    const child = spawn(...sh('sleep 60 & echo $!; wait'), { detached: true })
    const pid = await firstNumber(child.stdout)
    assert.ok(child.killGroup('SIGTERM'))
    assert.equal((await child.ended).outcome, 'ended')
    assert.ok(!isAlive(pid))
  },
  'a fourth pipe, both ways': async ({ holdfast: { spawn } }) => {
    const child = spawn(...sh('cat <&3 >&3'), { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] })
    child.stdio[3].end('duplex')
    assert.equal(await text(child.stdio[3]), 'duplex')
    await child.ended
  },
  'a | b': async ({ holdfast: { spawn, run } }) => {
    const a = spawn(...sh('seq 1000'))
    const { stdout } = await run('wc', ['-l'], { stdio: [a.stdout, 'pipe', 'inherit'] })
    assert.equal(stdout.trim(), '1000')
    await a.ended
  },
  'a start that fails': async ({ holdfast: { spawn } }) => {
    const child = spawn('no-such-program-anywhere')
    const events = []
    for (const name of ['spawn', 'error', 'exit', 'close', 'ended']) child.on(name, () => events.push(name))
    assert.equal((await child.ended).reason, 'not-started')
    await new Promise((resolve) => setTimeout(resolve, 20))
    assert.deepEqual(events, ['error', 'close', 'ended'])
    assert.equal(child.pid, undefined)
  },
  'a reader that is slow': async ({ holdfast: { spawn } }) => {
    const child = spawn('head', ['-c', '300000', '/dev/zero'])
    let length = 0
    for await (const chunk of child.stdout) {
      length += chunk.length
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    assert.equal(length, 300_000)
    await child.ended
  },

  // ---- guard()
  'a guarded group': async ({ holdfast: { guard } }) => {
    const child = plain(...sh('sleep 60 & echo $!; wait'), { detached: true, stdio: ['ignore', 'pipe', 'inherit'] })
    const guarding = guard(child)
    const pid = await firstNumber(child.stdout)
    const group = await guarding
    const report = await group.end()
    assert.deepEqual([report.outcome, report.by], ['ended', 'guard'])
    assert.ok(!isAlive(pid))
  },
  'a child that leads no group': async ({ holdfast: { guard } }) => {
    const child = plain('sleep', ['60'], { stdio: 'ignore' })
    const error = await rejected(guard(child))
    assert.equal(error.code, 'ERR_HOLDFAST_GUARD')
    assert.ok(isAlive(child.pid))
    child.kill('SIGKILL')
    await once(child, 'exit')
  },

  // ---- all of them
  'running() and endAll()': async ({ holdfast: { run, running, endAll } }) => {
    const calls = [run('sleep', ['60']), run('sleep', ['60'])]
    assert.deepEqual(
      running().map(({ file }) => file),
      ['sleep', 'sleep'],
    )
    const reports = await endAll()
    assert.deepEqual(
      reports.map(({ outcome }) => outcome),
      ['ended', 'ended'],
    )
    await Promise.all(calls)
    assert.deepEqual(running(), [])
  },
  'capabilities() and probe()': async ({ holdfast: { capabilities, probe } }) => {
    assert.equal(capabilities().helper.problem, undefined)
    const { mechanism, hostDeath, escapees, proof } = await probe()
    assert.deepEqual([mechanism, hostDeath, escapees, proof], ['subreaper', 'everything', 'ended', 'kernel'])
  },
  'resetHelper()': async ({ holdfast: { run, resetHelper } }) => {
    resetHelper()
    assert.equal((await run('echo', ['again'])).stdout, 'again\n')
  },
  import: async () => {
    if (inRenderer) return inRenderer
    const { run } = await import('holdfast')
    assert.equal((await run('echo', ['esm'])).stdout, 'esm\n')
    assert.equal(run, require('holdfast').run)
  },
  AsyncLocalStorage: async ({ holdfast: { spawn } }) => {
    const { AsyncLocalStorage } = require('node:async_hooks')
    const storage = new AsyncLocalStorage()
    const seen = await new Promise((resolve) =>
      storage.run('mine', () => spawn('true').on('exit', () => resolve(storage.getStore()))),
    )
    assert.equal(seen, 'mine')
  },

  // ---- threads and processes
  'a worker thread': async ({ worker }) => {
    if (inRenderer) return inRenderer
    const message = await worker(`
      const { parentPort } = require('node:worker_threads')
      require('holdfast').run('echo', ['worker']).then(({ stdout }) => parentPort.postMessage(stdout), (error) => parentPort.postMessage(error.message))
    `).message
    assert.equal(message, 'worker\n')
  },
  'a worker that is terminated in a call': async ({ worker, holdfast: { run } }) => {
    if (inRenderer) return inRenderer
    const started = worker(`
      const { parentPort } = require('node:worker_threads')
      const child = require('holdfast').spawn('sleep', ['60'])
      child.on('spawn', () => parentPort.postMessage(child.pid))
    `)
    const pid = await started.message
    assert.ok(isAlive(pid))
    await started.terminate()
    await until(() => !isAlive(pid), 'the end of its call')
    assert.equal((await run('echo', ['others'])).stdout, 'others\n')
  },
  'a process that ends when its call has': async ({ again, folder }) => {
    const script = join(folder, 'host.cjs')
    writeFileSync(script, "require('holdfast').run('true').then(() => process.stdout.write('done'))")
    const host = plain(again[0], [...again.slice(1), script], { stdio: ['ignore', 'pipe', 'inherit'] })
    const [output] = await Promise.all([text(host.stdout), once(host, 'exit')])
    assert.deepEqual([output, host.exitCode], ['done', 0])
  },
  'SIGKILL of the host': async ({ again, folder }) => {
    const script = join(folder, 'host.cjs')
    const tree = '(setsid sleep 60 &) ; sleep 60 & echo $!; wait'
    writeFileSync(
      script,
      `
      const child = require('holdfast').spawn('sh', ['-c', ${JSON.stringify(tree)}], { grace: 200 })
      child.stdout.on('data', (data) => process.stdout.write(child.pid + ' ' + data))
    `,
    )
    const host = plain(again[0], [...again.slice(1), script], { stdio: ['ignore', 'pipe', 'inherit'] })
    const pids = String((await once(host.stdout, 'data'))[0])
      .trim()
      .split(' ')
      .map(Number)
    assert.ok(pids.length === 2 && pids.every(isAlive), String(pids))
    host.kill('SIGKILL')
    await once(host, 'exit')
    await until(() => !pids.some(isAlive), 'the end of its calls')
  },

  // ---- sessions
  'a session by a starter': async ({ session: { startSession } }) => {
    const one = await startSession('sh', ['-c', 'read line; echo "got $line"; exit 5'])
    assert.ok(one.contained)
    one.stdin.end('it\n')
    assert.equal(await text(one.stdout), 'got it\n')
    assert.deepEqual(await one.exited, { exitCode: 5, signal: null })
    assert.equal((await one.ended).outcome, 'ended')
  },
  'an Engine that answers the request': async ({ session: { startSession }, again, folder }) => {
    const engine = join(folder, 'engine.cjs')
    writeFileSync(engine, "require('holdfast/engine')\nprocess.stdout.write(JSON.stringify(process.argv.slice(2)))\n")
    const args = [...again.slice(1), engine, 'a b', '--flag']
    const one = await startSession(again[0], args, { via: 'request' })
    assert.ok(one.contained)
    assert.equal(await text(one.stdout), '["a b","--flag"]')
    assert.deepEqual(await one.exited, { exitCode: 0, signal: null })
    await one.ended
  },
}
