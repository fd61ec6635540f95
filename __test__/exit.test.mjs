// What a host leaves at its own exit, below a process 1 that reaps nobody but the hosts that it starts.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { fixture, PYTHON } from './support/fixtures.mjs'
import { has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

suite(test, { patience: 0 })

const HOLDFAST = fileURLToPath(new URL('../dist/index.js', import.meta.url))
const IN_NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child', '--mount', '--mount-proc']
const HOSTS = 5

/** Process 1: runs the hosts one after another; then waits until nothing of them is alive, and says what is there. */
const INIT = fixture('exit/init.py')

const NO_NAMESPACE = (() => {
  const { status, error, stderr } = spawnSync(IN_NAMESPACE[0], [...IN_NAMESPACE.slice(1), PYTHON, '--version'], {
    encoding: 'utf8',
  })
  return status === 0 ? '' : `no pid namespace with Python in it can be made: ${error?.message ?? stderr.trim()}`
})()

/** By name: what the host does, and the status that it exits with. */
const HOSTS_THAT = {
  'made a call': ["await run('true')", 0],
  'made many calls side by side': ["await Promise.all(Array.from({ length: 30 }, () => run('true')))", 0],
  'ended all of its calls': ["spawn('sleep', ['50']); spawn('sleep', ['50']); await endAll({ grace: 0 })", 0],
  'made a call, and leaves by process.exit()': ["await run('true'); process.exit(3)", 3],
  'made a call, and leaves by an exception': ["await run('true'); setImmediate(() => { throw undefined })", 1],
  'made a call, then gave up the helper': ["await run('true'); resetHelper(); await run('true'); resetHelper()", 0],
  'made calls in a worker alone': [
    `const { Worker } = require('node:worker_threads')
    const text = 'require(' + JSON.stringify(${JSON.stringify(HOLDFAST)}) + ').run("true")'
    await new Promise((resolve) => new Worker(text, { eval: true }).on('exit', resolve))`,
    0,
  ],
  'guarded a child': [
    `const child = require('node:child_process').spawn('sleep', ['50'], { detached: true, stdio: 'ignore' })
    const guarded = await guard(child)
    await guarded.end({ grace: 0 })`,
    0,
  ],
  'has a helper that is stopped': [
    `await run('true')
    const helper = fs.readFileSync('/proc/self/task/' + process.pid + '/children', 'utf8').trim()
    process.kill(Number(helper), 'SIGSTOP')`,
    0,
  ],
}
for (const [what, [body, status]] of Object.entries(HOSTS_THAT)) {
  test(`a host that ${what} leaves no zombie`, (t) => {
    if (!has(t, NO_NAMESPACE)) return
    const text = `
      const fs = require('node:fs')
      const { run, spawn, endAll, guard, resetHelper } = require(${JSON.stringify(HOLDFAST)})
      ;(async () => {${body}\n})()
    `
    const [file, ...args] = [...IN_NAMESPACE, PYTHON, INIT, `${HOSTS}`, process.execPath, '-e', text]
    const { stdout, stderr } = spawnSync(file, args, { encoding: 'utf8', timeout: 100_000, killSignal: 'SIGKILL' })
    t.deepEqual(JSON.parse(stdout || '{}'), { codes: Array(HOSTS).fill(status), left: [] }, stderr)
  })
}
