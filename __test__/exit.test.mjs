// What a host leaves at its own exit, below a process 1 that reaps nobody but the hosts that it starts.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import test from 'ava'
import { leftByUs } from './support/facts.mjs'
import { has } from './support/suite.mjs'

test.after.always('nothing is left', (t) => t.deepEqual(leftByUs(), []))

const HOLDFAST = fileURLToPath(new URL('../dist/index.js', import.meta.url))
const IN_NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child', '--mount', '--mount-proc']
const HOSTS = 5

/** Process 1: runs the hosts one after another; then waits until nothing of them is alive, and says what is there. */
const INIT = `
import json, os, subprocess, sys, time
codes = [subprocess.run(sys.argv[2:]).returncode for _ in range(int(sys.argv[1]))]
def processes():
    found = {}
    for name in os.listdir('/proc'):
        if name.isdigit() and name != '1':
            try:
                text = open('/proc/%s/stat' % name).read()
            except OSError:
                continue
            found[int(name)] = (text[text.index('(') + 1:text.rindex(')')], text[text.rindex(')') + 2])
    return found
deadline = time.time() + 20
while time.time() < deadline and any(state != 'Z' for _, state in processes().values()):
    time.sleep(0.002)
print(json.dumps({'codes': codes, 'left': [name for name, _ in processes().values()]}))
`

const NO_NAMESPACE = (() => {
  const { status, error, stderr } = spawnSync(IN_NAMESPACE[0], [...IN_NAMESPACE.slice(1), 'python3', '--version'], {
    encoding: 'utf8',
  })
  return status === 0 ? '' : `no pid namespace with python3 in it can be made: ${error?.message ?? stderr.trim()}`
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
    const [file, ...args] = [...IN_NAMESPACE, 'python3', '-c', INIT, `${HOSTS}`, process.execPath, '-e', text]
    const { stdout, stderr } = spawnSync(file, args, { encoding: 'utf8', timeout: 100_000, killSignal: 'SIGKILL' })
    t.deepEqual(JSON.parse(stdout || '{}'), { codes: Array(HOSTS).fill(status), left: [] }, stderr)
  })
}
