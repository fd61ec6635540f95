// What becomes of what a command leaves at its own exit: first nothing, while it is at work; then the ladder.
import { execFileSync, spawn as plainSpawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout } from 'node:timers/promises'
import { guard, notices, run, running, spawn } from '../dist/index.js'
import { gone, isAlive, noneMarked, stat, until } from './support/facts.mjs'
import { compiled, fixture, PYTHON } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env, mark } = suite(test)
const FOREVER = 60_000
/** At work without output. */
const SPINS = 'while :; do :; done'
/** Leaves a writer that never stops. It has begun when the command exits: a busy machine may not let it in the settle time. */
const WRITES = `yes & until grep -qs '^wchar: [1-9]' /proc/$!/io; do :; done; exit 0`
/** Works for 80 ms, sleeps never, then prints. */
const WORKS = `${PYTHON} -c '
import time
while time.process_time() < 0.08: pass
print("worked")'`

/** Until the last background process waits in write(2), on either architecture. */
const WAITS_TO_WRITE = 'until read -r call _ < /proc/$!/syscall && [[ $call = 1 || $call = 64 ]]; do :; done'

const bash = (script, options) => run('bash', ['-c', script], { env, ...options })

// ---- the settle time
test('what tee writes is complete on the pipe and on the disk, and the result is ok (C89)', async (t) => {
  const log = join(folder(t), 'log')
  const expected = `${Array.from({ length: 2000 }, (_, index) => index + 1).join('\n')}\nLAST\n`
  for (let round = 0; round < 30; round++) {
    const result = await bash(`exec > >(tee ${log}) 2>&1; seq 1 2000; echo LAST`)
    t.like(result, { stdout: expected, ok: true, notices: [] })
    t.is(readFileSync(log, 'utf8'), expected)
    t.deepEqual(result.report.leftovers, [], 'it has ended by itself')
  }
})

test('a chain of helpers at the exit says all it has (C89)', async (t) => {
  for (let round = 0; round < 10; round++) {
    const { stdout, ok } = await bash('exec > >(cat | tr a-z A-Z | sed "s/^/> /"); seq -f "line %g" 1 3000')
    t.true(ok)
    t.is(stdout.split('\n').length, 3001)
    t.true(stdout.endsWith('> LINE 3000\n'))
  }
})

test('what works without a pause is let finish; with backgroundSettle 0 it is not (C89)', async (t) => {
  const settled = await bash(`${WORKS} &`, { backgroundSettle: FOREVER })
  t.like(settled, { stdout: 'worked\n', ok: true, notices: [] })
  const cut = await bash(`${WORKS} &`, { backgroundSettle: 0 })
  t.like(cut, { stdout: '', ok: true, notices: [], report: { leftoverCount: 1, outcome: 'ended' } })
})

test('a thread of it that works is seen as well (C89)', async (t) => {
  const script = `
import threading, time
def work():
    while time.thread_time() < 0.08: pass
    print("worked", flush=True)
threading.Thread(target=work).start()`
  const result = await run('bash', ['-c', `${PYTHON} -c "$0" &`, script], { env, backgroundSettle: FOREVER })
  t.like(result, { stdout: 'worked\n', ok: true })
})

test('a writer that never stops is bounded, and told (C89)', async (t) => {
  for (const options of [{}, { stdio: ['ignore', 'pipe', 'stdout'] }]) {
    const result = await bash(WRITES, { maxOutput: 1000, ...options })
    t.like(result, { exitCode: 0, ok: false, report: { outcome: 'ended', reason: 'exit' } })
    t.true(result.notices.includes(notices.background))
    t.is(result.report.notice, notices.background)
  }
  const error = await t.throwsAsync(bash(WRITES, { maxOutput: 1000, check: true }), {
    code: 'ERR_HOLDFAST_CHECK',
  })
  t.regex(error.message, /still wrote output/)
})

test('a writer whose output is read as soon as it comes is told as well (C89)', async (t) => {
  const loop = 'for ((;;)); do echo more; for ((n = 0; n < 300; n++)); do :; done; done'
  for (let round = 0; round < 10; round++) {
    const result = await bash(`${loop} & sleep 0.05`)
    t.like(result, { exitCode: 0, ok: false, report: { outcome: 'ended', notice: notices.background } })
  }
})

test('what was written before the exit, and is read late, is no writer (C89)', async (t) => {
  const options = { backgroundSettle: 200, onOutput: () => setTimeout(40) }
  const result = await bash(`head -c 300000 /dev/zero; (${SPINS}) & exit 0`, options)
  t.like(result, { ok: true, notices: [], report: { outcome: 'ended', leftoverCount: 1 } })
  t.is(result.stdout.length, 300_000)
})

test('a writer whose reader does not read is told as well (C89)', async (t) => {
  const child = spawn('bash', ['-c', WRITES], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const report = await child.ended
  t.like(report, { outcome: 'ended', reason: 'exit', notice: notices.background })
  child.stdout.destroy()
})

test('who writes to a file of its own, or only holds the pipe, is not taken for a writer (C89)', async (t) => {
  for (const script of [
    'yes > /dev/null & exit 0',
    `(${SPINS}) & exit 0`,
    'head -c 300000 /dev/zero; sleep 60 & exit 0',
  ]) {
    const result = await bash(script, { backgroundSettle: 60 })
    t.like(result, { exitCode: 0, ok: true, notices: [], report: { outcome: 'ended', leftoverCount: 1 } }, script)
  }
})

test('a pipe that is full, and a host that does not read it: a sleeper is not taken for a writer (C89)', async (t) => {
  const script = `${PYTHON} -c "import os; os.set_blocking(1, False); os.write(1, bytes(1 << 20))"; sleep 60 & exit 0`
  const child = spawn('bash', ['-c', script], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const report = await child.ended
  t.deepEqual([report.outcome, report.notice, report.leftovers.length], ['ended', undefined, 1])
  child.stdout.destroy()
})

test('who waits with poll(2) for room in the pipe is a writer (C89)', async (t) => {
  const script = `exec > >(${PYTHON} "$0"); seq 1 300000; echo LAST`
  const options = { env, backgroundSettle: FOREVER, stdio: ['ignore', 'pipe', 'inherit'] }
  const child = spawn('bash', ['-c', script, fixture('poll-writer.py')], options)
  const output = text(child.stdout)
  await once(child, 'exit')
  // The host does not read for a while.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300)
  t.regex(await output, /\n300000\nLAST\n$/)
  const report = await child.ended
  t.deepEqual([report.outcome, report.notice, report.leftoverCount], ['ended', undefined, 0])
})

test('what others write to an inherited pipe is not taken for output of what is left (C89)', async (t) => {
  // The sleeper has the pipe as well, of which the host itself is a writer.
  const host = startHost(
    `setInterval(() => process.stderr.write('more\\n'), 1)
     const stdio = ['ignore', 'ignore', 'inherit']
     const child = spawn('bash', ['-c', 'sleep 60 & exit 0'], { stdio, backgroundSettle: 1000 })
     report(await child.ended)
     process.exit()`,
    {
      env,
      command: ['bash', '-c', '"$@" 2> >(while sleep 0.01; do read -r _ || exit; done)', 'bash', process.execPath],
    },
  )
  const { outcome, notice, leftoverCount } = await host.next()
  t.deepEqual([outcome, notice, leftoverCount], ['ended', undefined, 1])
  await host.exited
})

test('a sleeper is not waited for, whatever the bound (C89)', async (t) => {
  const result = await bash('sleep 60 & setsid sleep 60 & (sleep 60 &) & sleep 0.05', { backgroundSettle: FOREVER })
  t.like(result, { ok: true, notices: [], report: { outcome: 'ended', leftoverCount: 3 } })
})

test('a storm of short-lived leftovers is bounded (C89)', async (t) => {
  const result = await bash('(while :; do /bin/true; done) & (while :; do /bin/true & wait; done) & exit 0')
  t.like(result, { exitCode: 0, ok: true, report: { outcome: 'ended', survivors: [] } })
})

test('what is stopped, or traced, is not at work (C89 C22)', async (t) => {
  const stopped = await bash('sleep 60 & kill -STOP $!', { backgroundSettle: FOREVER })
  t.like(stopped.report, { outcome: 'ended', survivors: [] })
  const tracer = compiled(t, 'tracer')
  if (tracer === undefined) return
  const file = join(folder(t), 'out')
  writeFileSync(file, '')
  const traced = await run(
    'bash',
    ['-c', 'sleep 60 & "$0" $! > "$1" & until [ -s "$1" ]; do sleep 0.01; done; exit 0', tracer, file],
    { env, backgroundSettle: FOREVER },
  )
  t.like(traced.report, { outcome: 'ended', survivors: [], leftoverCount: 2 })
})

const CGROUPS = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find((at) => existsSync(join(at, 'cgroup.procs')))

test('what is in a frozen cgroup is ended (C89)', async (t) => {
  const at = CGROUPS && join(CGROUPS, `holdfast-${process.pid}`)
  try {
    mkdirSync(at)
  } catch (error) {
    return has(t, `no cgroup of version 2 can be made: ${error.code}`)
  }
  t.teardown(async () => {
    writeFileSync(join(at, 'cgroup.freeze'), '0')
    await until(() => readFileSync(join(at, 'cgroup.procs'), 'utf8') === '', 'an empty cgroup')
    rmdirSync(at)
  })
  const freeze = `sleep 60 & echo $! > ${at}/cgroup.procs; echo 1 > ${at}/cgroup.freeze
    until grep -q 'frozen 1' ${at}/cgroup.events; do :; done; exit 0`
  const { report } = await bash(freeze)
  t.like(report, { outcome: 'ended', reason: 'exit', leftoverCount: 1 })
})

// ---- what comes in the settle time
/** The command has exited, and something works for ever. */
async function settling(options) {
  const child = spawn('bash', ['-c', `(${SPINS}) & echo $!; exit 0`], {
    env,
    backgroundSettle: FOREVER,
    stdio: ['ignore', 'pipe', 'inherit'],
    ...options,
  })
  const pid = Number(await linesOf(child.stdout).next())
  await until(() => child.exitCode !== null, 'the exit')
  return { child, pid }
}

test('end() in the settle time ends it (C89)', async (t) => {
  const { child, pid } = await settling()
  await setTimeout(30)
  t.true(isAlive(pid))
  t.like(await child.end({ grace: 0 }), { outcome: 'ended', reason: 'end', leftoverCount: 1 })
  t.deepEqual([child.exitCode, isAlive(pid)], [0, false])
})

test('an abort in the settle time ends it (C89)', async (t) => {
  const abort = new AbortController()
  const { child } = await settling({ signal: abort.signal })
  child.on('error', () => {})
  abort.abort()
  t.like(await child.ended, { outcome: 'ended', reason: 'abort' })
  const late = new AbortController()
  const result = bash(`(${SPINS}) & exit 0`, { signal: late.signal, backgroundSettle: FOREVER })
  const [{ pid }] = running()
  await until(() => !isAlive(pid), 'the exit')
  late.abort()
  t.like(await result, { exitCode: 0, aborted: true, ok: false, report: { outcome: 'ended' } })
})

test('a timeout in the settle time cuts that short: the command itself was in time (C89)', async (t) => {
  const result = await bash(`(${SPINS}) & exit 0`, { timeout: 300, backgroundSettle: FOREVER })
  t.like(result, { exitCode: 0, timedOut: false, ok: true, report: { outcome: 'ended', reason: 'exit' } })
})

for (const [when, script] of [
  ['the settle time', `(${SPINS}) & echo $!; exit 0`],
  ['the grace', '(trap "" TERM; echo $BASHPID; exec sleep 60) & until grep -q sleep /proc/$!/comm; do :; done; exit 0'],
]) {
  test(`the host is killed in ${when}: nothing is left (C89 C20)`, async (t) => {
    const host = startHost(
      `const options = { grace: 50, backgroundSettle: ${FOREVER}, backgroundGrace: ${FOREVER}, stdio: ['ignore', 'pipe', 'inherit'] }
       const child = spawn('bash', ['-c', ${JSON.stringify(script)}], options)
       child.stdout.once('data', (data) => child.once('exit', () => report(Number(data))))`,
      { env },
    )
    t.teardown(() => host.kill())
    const left = await host.next()
    await setTimeout(20)
    t.true(isAlive(left))
    host.kill()
    await host.exited
    await noneMarked(mark)
    // One that is exiting has no environment any more.
    await gone([left])
    t.pass()
  })
}

// ---- then the ladder
const TIDIES = 'trap "echo tidied; exit" TERM; echo up >&2; while :; do sleep 0.05; done'

test('what is left gets SIGTERM and the time to act on it; with backgroundGrace 0 it does not (C90)', async (t) => {
  const file = join(folder(t), 'said')
  const script = `bash -c '${TIDIES}' > ${file} 2> ${file}.up & until [ -s ${file}.up ]; do sleep 0.01; done; exit 3`
  t.like(await bash(script), { exitCode: 3, report: { outcome: 'ended', reason: 'exit' } })
  t.is(readFileSync(file, 'utf8'), 'tidied\n')
  await bash(script, { backgroundGrace: 0 })
  t.is(readFileSync(file, 'utf8'), '')
})

test('shared memory of Python is given back (C90)', async (t) => {
  const name = `holdfast_${process.pid}`
  const python = `
import sys, time
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(name=sys.argv[1], create=True, size=4096)
print("made", flush=True)
time.sleep(60)`
  const script = `coproc ${PYTHON} -c "$0" "$1"; read -r line <&"$COPROC"; echo $line`
  const { stdout, report } = await run('bash', ['-c', script, python, name], { env, backgroundGrace: FOREVER })
  t.deepEqual([stdout, report.outcome], ['made\n', 'ended'])
  t.false(existsSync(`/dev/shm/${name}`))
})

test('one that is deaf is killed after the grace, which one that heeds does not wait for (C90)', async (t) => {
  const deaf = '(trap "" TERM; exec sleep 60) & until grep -q sleep /proc/$!/comm; do :; done; exit 0'
  const began = Date.now()
  t.like((await bash(deaf, { backgroundGrace: 600 })).report, { outcome: 'ended', leftoverCount: 1 })
  t.true(Date.now() - began >= 600)
  t.like((await bash('sleep 60 & exit 0', { backgroundGrace: FOREVER })).report, { outcome: 'ended' })
})

test('background keep sends nothing, and waits for nothing (C90)', async (t) => {
  const child = spawn('bash', ['-c', `(${SPINS}) & echo $!; exit 0`], {
    env,
    background: 'keep',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const pid = Number(await linesOf(child.stdout).next())
  await until(() => child.exitCode !== null, 'the exit')
  await setTimeout(300)
  t.like(stat(pid), { state: 'R' })
  t.like(await child.end({ grace: 0 }), { outcome: 'ended', reason: 'end' })
})

test('holdfast run does the same (C90)', (t) => {
  const cli = new URL('../dist/cli.js', import.meta.url).pathname
  const file = join(folder(t), 'log')
  const args = ['run', '--', 'bash', '-c', `exec > >(tee ${file}) 2>&1; seq 1 2000; echo LAST`]
  for (let round = 0; round < 5; round++) {
    const text = execFileSync(process.execPath, [cli, ...args], { env, encoding: 'utf8' })
    t.true(text.endsWith('2000\nLAST\n'))
    t.is(readFileSync(file, 'utf8'), text)
  }
})

test('holdfast run looks at the pipes that it was started with, and says when output may be incomplete (C89)', async (t) => {
  const cli = new URL('../dist/cli.js', import.meta.url).pathname
  const pipe = (options, script, reader) =>
    plainSpawn('sh', ['-c', `"$0" "$1" run ${options} -- bash -c '${script}' | (${reader})`, process.execPath, cli], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  const late = pipe('--background-settle 1m', 'exec > >(cat); seq 1 20000; echo LAST', 'sleep 0.5; tail -n 1')
  t.deepEqual(await Promise.all([text(late.stdout), text(late.stderr)]), ['LAST\n', ''])
  for (const writer of ['yes & exit 0', `exec > >(${PYTHON} ${fixture('poll-writer.py')}); seq 1 100000`]) {
    const never = pipe('--background-settle 1s', writer, 'sleep 3')
    t.regex(await text(never.stderr), /^holdfast: what the command left running still wrote output [^\n]*\n$/)
  }
})

// ---- a group that is guarded
/** What `script` leaves when its shell exits, and the report of that group's end. */
async function guarded(script) {
  const child = plainSpawn('bash', ['-c', `${script}\necho up; read -r _; exit 3`], {
    env,
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const group = await guard(child)
  await once(child.stdout, 'data')
  child.stdin.end('\n')
  return group.ended
}

test('guard(): what the leader leaves may finish, then it gets SIGTERM, then SIGKILL (C89 C90)', async (t) => {
  const file = join(folder(t), 'said')
  const worked = await guarded(`(for i in {1..5000}; do :; done; echo worked) > ${file} &`)
  t.like(worked, { outcome: 'ended', by: 'guard', reason: 'exit', leftoverCount: 0 })
  t.is(readFileSync(file, 'utf8'), 'worked\n')
  const tidied = await guarded(
    `bash -c '${TIDIES}' > ${file} 2> ${file}.up & until [ -s ${file}.up ]; do sleep 0.01; done`,
  )
  t.like(tidied, { outcome: 'ended', by: 'guard', reason: 'exit' })
  t.is(readFileSync(file, 'utf8'), 'tidied\n')
  const deaf = await guarded('(trap "" TERM; exec sleep 60) & until grep -q sleep /proc/$!/comm; do :; done')
  t.like(deaf, { outcome: 'ended', by: 'guard', reason: 'exit', leftoverCount: 1 })
  const spins = await guarded(`(${SPINS}) &`)
  t.like(spins, { outcome: 'ended', by: 'guard', reason: 'exit', leftoverCount: 1 })
})

test('guard(): a writer that waits for the reader of the leader’s pipe is waited for, and told (C89)', async (t) => {
  const script = `exec 3>&1; exec > >(exec sleep 60); (echo up >&3); exec 3>&-; read -r _; yes & ${WAITS_TO_WRITE}; exit 3`
  const child = plainSpawn('bash', ['-c', script], { env, detached: true, stdio: ['pipe', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  const group = await guard(child)
  child.stdin.end('\n')
  t.like(await group.ended, { outcome: 'ended', by: 'guard', reason: 'exit', notice: notices.background })
})
