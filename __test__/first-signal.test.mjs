// The first signal of the ladder comes once, also behind a program that passes on what it is sent.
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { spawn } from '../dist/index.js'
import { fixture, PYTHON } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)

/** A server: notes each SIGTERM in the file, and exits some time after the first. `busy`: it wakes up all the time. */
const LEAF = fixture('first-signal/leaf.py')
/** Passes SIGTERM on to its child, waits for it, and ends as it does. */
const PASSES = `
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
signal.alarm(60)
child = subprocess.Popen(sys.argv[1:])
sys.exit(child.wait())`
/** Handles SIGTERM and passes nothing on. */
const KEEPS = PASSES.replace('child.send_signal(number)', 'None')
/** Passes nothing on and leaves, as Node.js does where a program listens for nothing. */
const LEAVES = PASSES.replace('child.send_signal(number)', 'sys.exit(3)')

/** Without `--foreground` it sends two itself: to its child, and to its group, and a child that is awake has both. */
const TIMEOUT = ['timeout', '--foreground', '60']
const python = (script) => [PYTHON, '-c', script]

/** Ends `wrapper leaf` and returns how often the leaf had SIGTERM, and its exit. */
async function asked(t, wrapper, { lasts = 0.1, busy = false, ...options } = {}) {
  const file = join(folder(t), 'asked')
  const [program, ...args] = [...wrapper, PYTHON, LEAF, file, String(lasts), ...(busy ? ['busy'] : [])]
  const child = spawn(program, args, { env, grace: 10_000, stdio: ['ignore', 'pipe', 'ignore'], ...options })
  const exited = once(child, 'exit')
  t.is(await linesOf(child.stdout).next(), 'up')
  const { outcome, reason } = await child.end()
  t.deepEqual([outcome, reason], ['ended', 'end'])
  const [code, signal] = await exited
  return { count: readFileSync(file, 'utf8').split('TERM').length - 1, code, signal }
}

const installed = (program, ...args) =>
  spawnSync(program, args, { stdio: 'ignore' }).error ? `${program} is not installed` : ''
const root = process.getuid() === 0 ? '' : 'not root'

const passers = {
  'nobody in between': { wrapper: [], code: 7 },
  'timeout(1)': { wrapper: TIMEOUT, code: 7 },
  'two times timeout(1)': { wrapper: [...TIMEOUT, ...TIMEOUT], code: 7 },
  'a program that passes it on': { wrapper: python(PASSES), code: 7 },
  'a chain of three that do': { wrapper: [...python(PASSES), ...python(PASSES), ...python(PASSES)], code: 7 },
  'env(1), nice(1), nohup(1)': { wrapper: ['env', 'A=1', 'nice', 'nohup'], code: 7 },
  'setsid --wait of one that does': { wrapper: ['setsid', '--wait', ...python(PASSES)], code: 7 },
  'a shell around one that does': {
    wrapper: ['bash', '-c', '"$@"; exit', 'bash', ...python(PASSES)],
    signal: 'SIGTERM',
  },
  'su(1)': { wrapper: ['su', '-s', '/bin/sh', 'root', '-c', '"$0" "$@"', '--'], reason: root },
  tini: { wrapper: ['tini', '-s', '--'], code: 7, reason: installed('tini', '--version') },
  'dumb-init': { wrapper: ['dumb-init'], code: 7, reason: installed('dumb-init', '--version') },
}

for (const [name, { wrapper, code, signal, reason = '' }] of Object.entries(passers)) {
  test(`behind ${name} the server gets the first signal once (C93)`, async (t) => {
    if (!has(t, reason)) return
    const seen = await asked(t, wrapper, { lasts: 0.3 })
    t.is(seen.count, 1)
    if (code !== undefined) t.deepEqual([seen.code, seen.signal], [code, null])
    if (signal !== undefined) t.is(seen.signal, signal)
  })
}

const others = {
  'handles it for itself': python(KEEPS),
  leaves: python(LEAVES),
  'waits for it before its trap runs': ['bash', '-c', 'trap "exit 3" TERM; "$@"; exit', 'bash'],
  'waits for it in the background': ['bash', '-c', '"$@" & wait', 'bash'],
  'has left it behind': ['bash', '-c', '"$@" & exec sleep 60', 'bash'],
}

for (const [name, wrapper] of Object.entries(others)) {
  test(`below one that ${name} the server gets the first signal all the same, once (C93)`, async (t) => {
    t.is((await asked(t, wrapper)).count, 1)
  })
}

test('a server that never sleeps, below one that handles the signal for itself, gets it before the grace is over (C93)', async (t) => {
  t.is((await asked(t, python(KEEPS), { busy: true, grace: 1000 })).count, 1)
  t.is((await asked(t, python(KEEPS), { busy: true, grace: 200, lasts: 0 })).count, 1)
})

test('a grace that is shortened: a server that never sleeps gets it before that is over (C93)', async (t) => {
  const file = join(folder(t), 'asked')
  const args = [...python(KEEPS), PYTHON, LEAF, file, '0', 'busy']
  const child = spawn(args[0], args.slice(1), { env, grace: 10_000, stdio: ['ignore', 'pipe', 'ignore'] })
  t.is(await linesOf(child.stdout).next(), 'up')
  child.end()
  t.like(await child.end({ grace: 800 }), { outcome: 'ended', reason: 'end' })
  t.is(readFileSync(file, 'utf8'), 'TERM\n')
})

test('a stopped process below one that handles the signal is not woken before it has the signal (C93)', async (t) => {
  const file = join(folder(t), 'woken')
  const script = `
import os, signal, sys
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
signal.signal(signal.SIGCONT, lambda number, frame: os.write(out, b'CONT '))
signal.signal(signal.SIGTERM, lambda number, frame: os.write(out, b'TERM '))
signal.alarm(60)
os.kill(os.getpid(), signal.SIGSTOP)
while os.fstat(out).st_size < 10: signal.pause()`
  const waits = `${KEEPS.replace('sys.exit(child.wait())', 'os.waitid(os.P_PID, child.pid, os.WSTOPPED); print("up", flush=True)\n$&')}`
  const child = spawn(PYTHON, ['-c', `import os${waits}`, ...python(script), file], {
    env,
    grace: 10_000,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.is(await linesOf(child.stdout).next(), 'up')
  t.like(await child.end(), { outcome: 'ended', reason: 'end' })
  t.is(readFileSync(file, 'utf8'), 'TERM CONT ')
})

test('what a process leaves that was itself left to one above it gets it as well (C93)', async (t) => {
  const [file, flag] = ['asked', 'flag'].map((name) => join(folder(t), name))
  const script = `trap : TERM; echo up; until [ -e "$1" ]; do sleep 0.01; done
    (trap 'echo TERM >> "$0"; exit' TERM; while :; do sleep 0.01; done) & exit`
  const args = [...python(KEEPS), 'bash', '-c', script, file, flag]
  const child = spawn(args[0], args.slice(1), { env, grace: 5000, stdio: ['ignore', 'pipe', 'ignore'] })
  t.is(await linesOf(child.stdout).next(), 'up')
  const ended = child.end()
  await setTimeout(20)
  writeFileSync(flag, '')
  t.like(await ended, { outcome: 'ended', reason: 'end' })
  t.is(readFileSync(file, 'utf8'), 'TERM\n')
})

for (const [where, leaves, limit, start] of [
  ['in the group', 150, 64, ''],
  ['in sessions of their own', 60, 104, 'setsid '],
]) {
  test(`where not all can be held at once, all get it: ${where} (C93)`, async (t) => {
    const file = join(folder(t), 'asked')
    const leaf = `trap 'echo TERM >> "$0"; exit' TERM; echo up; read -r _ <&3`
    const script = `trap : TERM; exec 3<&0
      for i in {1..${leaves}}; do ${start}bash -c '${leaf.replaceAll("'", `'\\''`)}' "$0" & done
      while [ -n "$(jobs -r)" ]; do wait; done`
    const host = startHost(
      `const child = spawn('bash', ['-c', ${JSON.stringify(script)}, ${JSON.stringify(file)}], {
       grace: 5000, stdio: ['pipe', 'pipe', 'inherit'],
     })
     let up = 0
     child.stdout.on('data', async (data) => {
       up += data.toString().split('up').length - 1
       if (up === ${leaves}) report(await child.end())
     })`,
      { env, command: ['prlimit', `--nofile=${limit}:${limit}`, process.execPath] },
    )
    t.teardown(() => host.kill())
    t.like(await host.next(), { outcome: 'ended', reason: 'end' })
    t.is(readFileSync(file, 'utf8').split('TERM').length - 1, leaves)
  })
}

test('abort, timeout and what is left at the exit come once as well (C93)', async (t) => {
  const file = join(folder(t), 'asked')
  const leaf = [...python(PASSES), PYTHON, LEAF, file, '0.1']
  const seen = () => readFileSync(file, 'utf8')
  const abort = new AbortController()
  const aborted = spawn(leaf[0], leaf.slice(1), { env, signal: abort.signal, stdio: ['ignore', 'pipe', 'ignore'] })
  aborted.on('error', () => {})
  await once(aborted.stdout, 'data')
  abort.abort()
  t.like(await aborted.ended, { outcome: 'ended', reason: 'abort' })
  t.is(seen(), 'TERM\n')
  const limited = spawn(leaf[0], leaf.slice(1), { env, timeout: 4000, stdio: ['ignore', 'pipe', 'ignore'] })
  await once(limited.stdout, 'data')
  t.like(await limited.ended, { outcome: 'ended', reason: 'timeout' })
  t.is(seen(), 'TERM\nTERM\n')
  const script = '"$@" & until [ -s "$0" ]; do sleep 0.01; done; exit 0'
  const leaves = spawn('bash', ['-c', script, `${file}.up`, 'bash', '-c', '"$@" > "$0"', `${file}.up`, ...leaf], {
    env,
  })
  t.like(await leaves.ended, { outcome: 'ended', reason: 'exit' })
  t.is(seen(), 'TERM\nTERM\nTERM\n')
})
