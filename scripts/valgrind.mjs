// npm run valgrind: a hundred workers that load the addon, make a call and are terminated, one after the other, under
// valgrind's memcheck. Fails on a finding with a frame of ours, and on bytes that are definitely lost. Takes minutes.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const HOLDFAST = fileURLToPath(new URL('../dist/index.js', import.meta.url))
const WORKERS = Number(process.env.HOLDFAST_WORKERS ?? 100)
/** rustix gives no mask, and then the kernel does not look at its size (epoll_pwait(2)). */
const HARMLESS = /epoll_pwait\(sigsetsize\)/
/**
 * napi-rs (3.16.1, call_js_cb) does not free what a wake-up carries when it is still queued at the end of its environment:
 * 24 bytes, at most one for each worker.
 */
const isUnfreedWake = (block) => {
  const [, bytes, count] = /([\d,]+) bytes in ([\d,]+) blocks? (?:are|is) definitely lost/.exec(block) ?? []
  const [size, blocks] = [bytes, count].map((number) => Number(number?.replaceAll(',', '')))
  return size === 24 * blocks && blocks <= WORKERS
}
/** Node.js makes code as it runs, and its own stacks look like jumps. */
const OPTIONS = [
  '--tool=memcheck',
  '--smc-check=all',
  '--leak-check=full',
  '--show-leak-kinds=definite',
  '--trace-children=no',
]

const PROGRAM = `
  const { Worker } = require('node:worker_threads')
  const text = \`
    const { parentPort } = require('node:worker_threads')
    const { run, spawn } = require(\${JSON.stringify(process.env.HOLDFAST)})
    run('echo', ['one']).then(({ stdout }) => {
      spawn('sleep', ['60'], { grace: 0 })
      parentPort.postMessage(stdout)
      setInterval(() => {}, 1000)
    })\`
  ;(async () => {
    for (let round = 0; round < ${WORKERS}; round++) {
      const worker = new Worker(text, { eval: true })
      const [said] = await require('node:events').once(worker, 'message')
      if (said !== 'one\\n') throw new Error('it printed ' + said)
      await worker.terminate()
    }
    console.log('done')
  })()
`

const folder = mkdtempSync(join(tmpdir(), 'holdfast-valgrind-'))
const log = join(folder, 'log')
const { status, error, stdout } = spawnSync(
  'valgrind',
  [...OPTIONS, `--log-file=${log}`, process.execPath, '--jitless', '-e', PROGRAM],
  { encoding: 'utf8', env: { ...process.env, HOLDFAST }, stdio: ['ignore', 'pipe', 'inherit'], timeout: 1_500_000 },
)
if (error?.code === 'ENOENT') {
  console.log('skipped: there is no valgrind')
} else {
  const text = readFileSync(log, 'utf8')
  const blocks = text.split(/\n==\d+== \n/)
  const ours = blocks.filter(
    (block) =>
      /holdfast/.test(block) &&
      /(Invalid|uninitialised|definitely lost)/.test(block) &&
      !HARMLESS.test(block) &&
      !isUnfreedWake(block),
  )
  console.log(blocks.filter((block) => /LEAK SUMMARY|ERROR SUMMARY/.test(block)).join('\n'))
  for (const block of ours) console.log(`\n${block}`)
  const isDone = status === 0 && stdout === 'done\n'
  console.log(
    `\n${WORKERS} workers: ${isDone ? 'all done' : `not done (status ${status})`}, ${ours.length} findings of ours`,
  )
  if (!isDone || ours.length > 0) process.exitCode = 1
}
rmSync(folder, { recursive: true, force: true })
