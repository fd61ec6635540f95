// Process groups and sessions of a call are those of child_process; kill() and killGroup() reach nobody else.
import { spawn as spawnPlain } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as holdfast from '../dist/index.js'
import { isAlive, noneMarked, stat, until } from './support/facts.mjs'
import { PYTHON, programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { spawn } = holdfast
const { mark, env } = suite(test)

test('detached: process.kill(-pid) reaches the group from the moment that spawn() returns (C25)', async (t) => {
  for (let round = 0; round < 50; round++) {
    const child = spawn('sleep', ['50'], { env, stdio: 'ignore', detached: true })
    // A starved keeper is waited for 20 ms and no longer.
    if (child.pid === undefined) await once(child, 'spawn')
    t.true(process.kill(-child.pid, 0))
    t.like(stat(child.pid), { pgrp: child.pid, session: child.pid })
    process.kill(-child.pid, 'SIGUSR1')
    const [code, signal] = await once(child, 'exit')
    t.deepEqual([code, signal], [null, 'SIGUSR1'])
    t.like(await child.ended, { outcome: 'ended', reason: 'exit', by: 'keeper' })
    t.throws(() => process.kill(-child.pid, 0), { code: 'ESRCH' })
  }
})

test('the command leads neither group nor session, and no other call can join its group (C91)', async (t) => {
  const script = 'import os, sys; os.setpgid(0, int(sys.argv[1]))'
  for (let round = 0; round < 10; round++) {
    const [child, other] = [1, 2].map(() => spawn('sleep', ['50'], { env, stdio: 'ignore' }))
    for (const one of [child, other]) if (one.pid === undefined) await once(one, 'spawn')
    const { pgrp, session } = stat(child.pid)
    t.false([child.pid, process.pid].includes(pgrp))
    t.is(session, stat(child.pid).ppid, 'the session of its keeper')
    t.not(session, stat(other.pid).session)
    t.not(pgrp, stat(other.pid).pgrp)
    t.throws(() => process.kill(-child.pid, 0), { code: 'ESRCH' })
    const { stderr } = await holdfast.run(PYTHON, ['-c', script, String(pgrp)], { env })
    t.regex(stderr, /PermissionError/)
    t.true(child.killGroup('SIGTERM'))
    t.deepEqual(await once(child, 'exit'), [null, 'SIGTERM'])
    t.like(await child.ended, { outcome: 'ended', reason: 'exit', by: 'keeper' })
    t.like(await other.end({ grace: 0 }), { outcome: 'ended' })
  }
})

test('setsid(1) of the command itself: its program is the command, and its exit the call’s (C91)', async (t) => {
  const script = 'sleep .1; echo hi; exit 5'
  for (const args of [
    ['setsid', 'bash', '-c', script],
    ['bash', '-c', `exec setsid bash -c '${script}'`],
  ]) {
    const [file, ...rest] = args
    const { exitCode, stdout, ok } = await holdfast.run(file, rest, { env })
    t.deepEqual([exitCode, stdout, ok], [5, 'hi\n', false])
  }
  const python = 'import os; os.setpgrp(); print(os.getpgrp() == os.getpid())'
  t.is((await holdfast.run(PYTHON, ['-c', python], { env })).stdout, 'True\n')
  t.is((await holdfast.run(PYTHON, ['-c', 'import os; os.setsid(); print("led")'], { env })).stdout, 'led\n')
  const { exitCode, stderr } = await holdfast.run(PYTHON, ['-c', 'import os; os.setsid()'], { env, detached: true })
  t.is(exitCode, 1, 'a leader cannot, as under child_process with detached: true')
  t.regex(stderr, /PermissionError/)
})

test('after its exit the number of the command is free, while what it left runs on (C91)', async (t) => {
  const options = { env, stdio: ['ignore', 'pipe', 'inherit'], background: 'keep' }
  const child = spawn('sh', ['-c', 'sleep 50 & echo $!'], options)
  const [line] = await once(child.stdout, 'data')
  const pid = child.pid
  if (child.exitCode === null) await once(child, 'exit')
  await until(() => stat(pid) === undefined, 'the end of the zombie')
  t.true(isAlive(Number(line)))
  t.true(child.killGroup('SIGTERM'), 'the group is held')
  t.like(await child.ended, { outcome: 'ended' })
})

/** `$1` names a file for the facts: pid, parent, group and session of the process that writes them. */
const FACTS =
  'read -r pid name state ppid group session rest < /proc/$$/stat; echo $pid $ppid $group $session > $1.part'
const WRITE = `${FACTS}; mv $1.part $1`

const programs = {
  'setsid in a shell': { script: `setsid sh -c '${WRITE}' sh "$1"` },
  'setsid --wait': { script: `setsid --wait sh -c '${WRITE}; exit 7' sh "$1"` },
  'setsid of a child': { script: `setsid sh -c '${WRITE}; exit 6' sh "$1" & wait $!` },
  'a job in the background of a job-control shell': {
    script: `set -m; sh -c '${WRITE}; exit 5' sh "$1" & wait $!`,
  },
  'a job brought to the foreground': { script: `set -m; sh -c '${WRITE}; exit 4' sh "$1" & fg %1` },
  'a job in the foreground': { script: `set -m; sh -c '${WRITE}; exit 3' sh "$1"; exit $?` },
  'setsid() of the first process': {
    command: (out) => [
      'perl',
      '-MPOSIX',
      '-e',
      'my $id = POSIX::setsid(); open(my $out, ">", $ARGV[0]); print $out defined $id ? "made" : "refused: ".($!+0); exit 9',
      out,
    ],
  },
}

/** What one of the programs says of itself, with the ids replaced by what they mean. */
async function observe(start, { script, command }, out) {
  const [file, ...args] = command ? command(out) : ['bash', '-c', script, 'bash', out]
  const child = start(file, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (text += data))
  const [code, signal] = await once(child, 'close')
  const facts = await until(() => {
    try {
      return readFileSync(out, 'utf8').trim()
    } catch {}
  }, out)
  const [pid, parent, group, session] = facts.split(' ').map(Number)
  const named = (id) => (id === child.pid ? 'first process' : id === pid ? 'itself' : 'another')
  const family = command ? facts : { parent: parent === child.pid, group: named(group), session: named(session) }
  return { code, signal, family, text: text.replaceAll(out, 'OUT').replaceAll(String(child.pid), 'PID') }
}

for (const [name, program, detached] of Object.entries(programs).flatMap(([name, program]) => [
  [name, program, false],
  [name, program, true],
])) {
  test(`as under child_process ${detached ? 'with detached' : 'without it'}: ${name} (C25)`, async (t) => {
    const at = folder(t)
    const plain = await observe(
      (...call) => spawnPlain(call[0], call[1], { ...call[2], detached }),
      program,
      join(at, 'a'),
    )
    let child
    const contained = await observe(
      (...call) => {
        // What setsid leaves behind is to have its say.
        child = spawn(call[0], call[1], { ...call[2], detached, background: 'keep' })
        return child
      },
      program,
      join(at, 'b'),
    )
    // The parent of what a finished process left differs by design: it is the keeper.
    t.deepEqual(contained, plain)
    t.like(await child.end(), { outcome: 'ended' })
  })
}

test('what setsid left in a session of its own is ended with the call, and named (C25)', async (t) => {
  const script = 'setsid sleep 50 & until read -r name < /proc/$!/comm && [ "$name" = sleep ]; do :; done; echo $!'
  const { stdout, report } = await holdfast.run('bash', ['-c', script], { env })
  t.deepEqual(report.leftovers, [{ pid: Number(stdout), name: 'sleep' }])
  t.false(isAlive(Number(stdout)))
})

test('killGroup() signals the group and no other process of the call (C25)', async (t) => {
  const script = [
    'setsid sleep 50 & other=$!',
    // Out of the group before anybody signals it.
    'until read -r p n s pp group rest < /proc/$other/stat && [ "$group" = $other ]; do :; done',
    'sleep 50 & echo $other $!; wait',
  ].join('\n')
  const child = spawn('bash', ['-c', script], { env, stdio: ['ignore', 'pipe', 'inherit'], background: 'keep' })
  const [line] = await once(child.stdout, 'data')
  const [other, sleep] = String(line).trim().split(' ').map(Number)
  t.true(child.killGroup('SIGKILL'))
  await once(child, 'exit')
  t.is(child.signalCode, 'SIGKILL')
  await until(() => !isAlive(sleep), 'end of the member of the group')
  t.true(isAlive(other))
  await child.end()
  t.false(isAlive(other))
})

test('the first signal of the ladder reaches what setsid moved out of the group as well (C25)', async (t) => {
  const at = folder(t)
  const MANY = 20
  // Their parent, in the group, dies of the same signal: they change hands in the middle of the signalling.
  const listener = `trap 'echo > "$0"; exit' TERM; echo up; while :; do sleep 0.2; done`
  const script = `i=0; while [ $i -lt ${MANY} ]; do setsid sh -c "$0" "$1/$i" & i=$((i+1)); done; exec sleep 50`
  const child = spawn('sh', ['-c', `( ${script} ) & exec sleep 50`, listener, at], { env })
  let text = ''
  for await (const data of child.stdout) {
    text += data
    if (text.length === MANY * 'up\n'.length) break
  }
  t.like(await child.end({ grace: 5000 }), { outcome: 'ended', reason: 'end' })
  t.is(readdirSync(at).length, MANY)
})

// ---- the wrong process
/** In a pid namespace of its own, where a signal to everybody would reach nobody else. */
const NAMESPACE = ['unshare', '--pid', '--mount', '--fork', '--kill-child', '--mount-proc']

test('no other exported function takes a process (C30)', (t) => {
  const { default: _, 'module.exports': __, ...names } = holdfast
  t.deepEqual(
    Object.keys(names)
      .filter((name) => name !== '__esModule')
      .sort(),
    [
      'HoldfastError',
      'capabilities',
      'describe',
      'endAll',
      'guard',
      'notices',
      'probe',
      'resetHelper',
      'run',
      'running',
      'spawn',
    ],
  )
})

test('kill() and killGroup() refuse what is no signal, and nothing is signalled (C30)', async (t) => {
  const child = spawn('sleep', ['50'], { env, stdio: 'ignore' })
  for (const wrong of [-1, 1.5, Number.NaN, 2 ** 32, 2 ** 32 + 9, 200, '', 'SIGNONE', '9', {}, null, true, -9]) {
    for (const method of ['kill', 'killGroup']) {
      t.throws(() => child[method](wrong), { instanceOf: TypeError, code: 'ERR_UNKNOWN_SIGNAL' }, `${method} ${wrong}`)
    }
  }
  t.false(child.killed)
  // A signal that is one shows that the way was open, and that this is the first to arrive.
  t.true(child.kill('SIGUSR2'))
  await child.ended
  t.is(child.signalCode, 'SIGUSR2')
})

test('kill(0) asks and does not signal (C30)', async (t) => {
  const child = spawn('sleep', ['50'], { env, stdio: 'ignore' })
  t.true(child.kill(0))
  t.true(child.killGroup(0))
  t.true(child.kill('SIGUSR1'))
  await child.ended
  t.is(child.signalCode, 'SIGUSR1')
})

test('kill() after the end, and of a start that failed, is false and signals nothing (C30)', async (t) => {
  const host = startHost(programOf('group/signal-after-the-end'), {
    env: { MARK: mark },
    command: [...NAMESPACE, process.execPath],
  })
  t.teardown(() => host.kill())
  const { answers, caught, own, killed } = await host.next()
  t.deepEqual(answers, Array(16).fill(false))
  t.deepEqual(caught, ['SIGCONT'])
  t.deepEqual(own, [null, null])
  t.deepEqual(killed, [false, false])
  t.deepEqual(await host.exited, { code: 0, signal: null })
  await noneMarked(mark)
})
