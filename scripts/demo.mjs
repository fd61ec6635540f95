// What holdfast is for, on real input. Every line that begins with `ok` or `NOT SO` is a check, made against the
// report and, apart from it, against the process table and a port. Everything started here is marked in its
// environment, and would end by itself after a minute.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import * as holdfast from '../dist/index.mjs'

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..')
const GRACE = 200

/** A server that has walked out of its parent's session and is deaf to SIGTERM; it prints its port. */
const SERVER = `process.on('SIGTERM', () => {})
  const server = require('node:net').createServer((socket) => socket.end()).listen(0, '127.0.0.1')
  server.on('listening', () => console.log(server.address().port))
  setTimeout(() => process.exit(), 60_000)`

/** A compiler that brings a process of its own, and around it what scripts leave behind. */
async function actOne() {
  console.log("Act one: holdfast.run() of this package's type check, in a script that leaves processes behind")
  const mark = `demo-${process.pid}-1`
  const tool = 'node node_modules/typescript/bin/tsc -p tsconfig.build.json --noEmit --listFiles'
  const script = ['sleep 60 &', 'setsid sleep 60 &', '(setsid nohup sleep 60 >/dev/null 2>&1 &)', tool].join('\n')
  for (const line of script.split('\n')) console.log(`        ${line}`)

  const seen = new Map()
  const look = setInterval(() => {
    for (const pid of marked(mark)) seen.set(pid, nameOf(pid))
  }, 20)
  const options = { cwd: ROOT, env: { ...process.env, MARK: mark } }
  const { exitCode, stdout, duration, report } = await holdfast.run('sh', ['-c', script], options)
  const left = marked(mark).length
  clearInterval(look)

  const files = stdout.trim().split('\n').length
  claim(
    exitCode === 0 && files > 10,
    `the compiler left with ${exitCode} after ${ms(duration)} and named ${files} files`,
  )
  claim(seen.size >= 5, `meanwhile the process table held ${count([...seen.values()])}`)
  const names = report.leftovers.map(({ name }) => name)
  claim(report.leftoverCount === 3, `ended when the script was done: ${report.leftoverCount} (${count(names)})`)
  const how = report.proofTime === 0 ? 'by SIGTERM alone' : `proven ${ms(report.proofTime)} after the first SIGKILL`
  claim(
    report.outcome === 'ended' && report.mechanism === 'subreaper',
    `outcome '${report.outcome}' by mechanism '${report.mechanism}', ${how}`,
  )
  claim(left === 0, `when the call returned the process table held ${left} of them`)
}

/** A host of its own is killed by SIGKILL, which it cannot see coming. */
async function actTwo() {
  console.log('\nAct two: a program that uses holdfast.spawn() is killed with SIGKILL while its commands run')
  const mark = `demo-${process.pid}-2`
  const host = spawn(process.execPath, [fileURLToPath(import.meta.url), 'host'], {
    env: { ...process.env, MARK: mark },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [port] = await once(createInterface({ input: host.stdout }), 'line', { signal: AbortSignal.timeout(10_000) })
  const commands = () => marked(mark).filter((pid) => Number(pid) !== host.pid && nameOf(pid) !== 'holdfast-helper')
  const sessions = () => new Set(commands().map((pid) => field(pid, 3))).size
  const started = await until(() => commands().length === 8 && sessions() === 5)
  claim(started, `the host runs ${commands().length} processes (${count(commands().map(nameOf))})`)
  claim(started, `they are in ${sessions()} sessions: two calls, and three that walked out with setsid`)
  claim(await answers(port), `port ${port} answers: its server is one of the three, and deaf to SIGTERM`)

  const helpers = helpersBelow(String(host.pid))
  const left = () => [...marked(mark), ...helpers.filter(isAlive)].length
  const start = performance.now()
  host.kill('SIGKILL')
  const gone = await until(() => left() === 0)
  const time = performance.now() - start
  await until(() => host.signalCode)
  claim(host.signalCode === 'SIGKILL', `the host was ended by ${host.signalCode}`)
  const ours = helpers.length
  claim(gone && ours >= 3, `${ms(time)} later the process table held ${left()} of them and of holdfast's own ${ours}`)
  claim(time >= GRACE, `that is after the ${GRACE} ms of grace that the program gives those who ignore SIGTERM`)
  claim(!(await answers(port)), `port ${port} answers no more`)
}

async function beTheHost() {
  const env = { ...process.env, SERVER }
  const script = `sleep 60 &
    setsid sleep 60 &
    (setsid sleep 60 &)
    setsid node -e "$SERVER" &
    sh -c 'sleep 60; true'; true`
  holdfast.spawn('sh', ['-c', script], { env, grace: GRACE, stdio: ['ignore', 'inherit', 'inherit'] })
  holdfast.spawn('sleep', ['60'], { env, grace: GRACE, stdio: 'ignore' })
}

/** A pool of workers that child_process started, and holdfast only guards. */
async function actThree() {
  console.log(
    '\nAct three: child_process starts a pool of workers, holdfast.guard() watches it, and the first one is killed',
  )
  const mark = `demo-${process.pid}-3`
  const script = 'for i in 1 2 3 4; do sleep 60 & done; echo ready; wait'
  const env = { ...process.env, MARK: mark }
  const child = spawn('sh', ['-c', script], { detached: true, env, stdio: ['ignore', 'pipe', 'inherit'] })
  const guarded = await holdfast.guard(child)
  await once(child.stdout, 'data')
  // The shell says so before each of them has become sleep(1).
  const started = await until(() => marked(mark).filter((pid) => nameOf(pid) === 'sleep').length === 4)
  claim(
    started && marked(mark).length === 5,
    `the process table holds ${count(marked(mark).map(nameOf))}, in group ${guarded.group}`,
  )
  child.kill('SIGKILL')
  const report = await guarded.ended
  claim(
    report.reason === 'exit' && report.leftoverCount === 4,
    `its death left ${report.leftoverCount}, which were ended without a call to end()`,
  )
  claim(
    report.outcome === 'ended' && marked(mark).length === 0,
    `outcome '${report.outcome}' by '${report.by}'; the process table holds ${marked(mark).length} of them`,
  )
}

function claim(holds, text) {
  console.log(`${holds ? 'ok    ' : 'NOT SO'}  ${text}`)
  if (!holds) process.exitCode = 1
}

/** The live processes with this mark, from the process table alone. */
function marked(mark) {
  return readdirSync('/proc').filter((pid) => read(pid, 'environ').includes(`MARK=${mark}\0`) && isAlive(pid))
}

/** Spawn helper and keepers. Their environment is for root to read, their parents are for all. */
function helpersBelow(parent) {
  const found = readdirSync('/proc').filter((pid) => nameOf(pid) === 'holdfast-helper' && field(pid, 1) === parent)
  return [...found, ...found.flatMap(helpersBelow)]
}

/** '' where there is no such process, or it may not be looked at. */
function read(pid, file) {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return ''
  }
}

/** Of /proc/<pid>/stat, counted from the state on: 0 state, 1 parent, 2 group, 3 session. */
const field = (pid, index) => read(pid, 'stat').split(') ').pop().split(' ')[index]
const isAlive = (pid) => !['', 'Z', 'X'].includes(field(pid, 0))
const nameOf = (pid) => read(pid, 'comm').trim()

function answers(port) {
  const socket = connect(port, '127.0.0.1')
  return Promise.race([once(socket, 'connect').then(() => true), once(socket, 'error').then(() => false)])
    .catch(() => false)
    .finally(() => socket.destroy())
}

async function until(fact) {
  const end = performance.now() + 10_000
  while (!fact() && performance.now() < end) await setTimeout(2)
  return fact()
}

function count(names) {
  return [...new Set(names)].map((name) => `${names.filter((other) => other === name).length} × ${name}`).join(', ')
}

const ms = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`

if (process.argv[2] === 'host') {
  await beTheHost()
} else {
  await actOne()
  await actTwo()
  await actThree()
}
