// The starter by its command line alone: what an SDK that knows nothing of holdfast has of it.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  childrenOf,
  comm,
  descriptors,
  gone,
  isAlive,
  marked,
  newMark,
  noneMarked,
  stat,
  until,
} from './support/facts.mjs'
import { fixture, PYTHON } from './support/fixtures.mjs'
import { ACK, belowStarter, HELPER, sdk, starter, starterToEnd, VARIABLE } from './support/session.mjs'
import { folderOfFile, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const folder = folderOfFile(test)
suite(test)
const ENGINE = [PYTHON, fixture('engine.py'), 'none']
/** Deaf to all but SIGKILL, in sessions of their own, one without a parent. */
const LEAVES = `trap '' HUP INT TERM QUIT
  sleep 60 & setsid sleep 60 & (setsid sh -c 'sleep 60 & sleep 60' &)`
const sleepers = (m) => marked(m).filter((pid) => comm(pid) === 'sleep')
const allLeft = (m) => until(() => sleepers(m).length >= 4, 'the whole brood')

// ---- the command line
test('a wrong command line is 64 with one line on stderr, and nothing is run', async (t) => {
  const trace = join(folder, 'ran')
  const run = ['--', 'touch', trace]
  const cases = [
    [['--ack', 'touch', trace], 'touch'],
    [['--ack'], '--'],
    [[], '--'],
    [['--ack', '--'], 'program'],
    [['--frobnicate', ...run], '--frobnicate'],
    [['--control-fd=3', ...run], '--control-fd=3'],
    [['--control-fd', 'x', ...run], "'x'"],
    [['--control-fd', '-1', ...run], "'-1'"],
    [['--control-fd', '0', ...run], "'0'"],
    [['--control-fd', '2', ...run], "'2'"],
    [['--control-fd', '99999999999', ...run], '99999999999'],
    [['--control-fd'], '--control-fd'],
    // They are not open.
    [['--control-fd', '9', ...run], 'descriptor 9'],
    [['--ack', '--control-fd', '1000000', ...run], 'descriptor 1000000'],
    [['--parent-pid', '0', ...run], "'0'"],
    [['--parent-pid', '-1', ...run], "'-1'"],
    [['--parent-pid', 'abc', ...run], 'abc'],
    [['--grace', '2s', ...run], '2s'],
    [['--grace', '-1', ...run], "'-1'"],
    [['--grace', '', ...run], '--grace'],
  ]
  for (const [args, word] of cases) {
    const { code, out, err } = await starterToEnd(args)
    t.deepEqual([code, out], [64, ''], args.join(' '))
    t.true(/^holdfast: .*\n$/.test(err) && err.includes(word), `${args.join(' ')}: ${err}`)
  }
  t.throws(() => readFileSync(trace), { code: 'ENOENT' })
})

test('a parent or control descriptor that is not as it says is 70 with one line, and nothing is run', async (t) => {
  const trace = join(folder, 'ran')
  const file = openSync(HELPER, 'r')
  const cases = [
    [['--control-fd', '3'], '3', ['pipe', 'pipe', 'pipe', file]],
    [['--parent-pid', '1'], '1', undefined],
    [['--parent-pid', `${process.pid + 1}`, '--watch-parent'], `${process.pid + 1}`, undefined],
  ]
  for (const [options, word, stdio] of cases) {
    const { code, out, err } = await starterToEnd(['--ack', ...options, '--', 'touch', trace], stdio && { stdio })
    t.deepEqual([code, out], [70, ''], options.join(' '))
    t.true(/^holdfast: .*\n$/.test(err) && err.includes(word), `${options.join(' ')}: ${err}`)
  }
  t.throws(() => readFileSync(trace), { code: 'ENOENT' })
})

test('127 and 126: the acknowledgement came, then one line that names the program (C60)', async (t) => {
  const plain = join(folder, 'plain')
  writeFileSync(plain, '#!/bin/sh\n')
  chmodSync(plain, 0o644)
  const cases = [
    ['no-such-program-x', 127],
    ['/no/such/program', 127],
    [plain, 126],
    [folder, 126],
  ]
  for (const [program, status] of cases) {
    const { code, out, err } = await starterToEnd(['--ack', '--', program])
    t.deepEqual([code, out], [status, ACK], program)
    t.true(/^holdfast: .*\n$/.test(err) && err.includes(program), err)
  }
})

test('the line is the first, and comes with --ack alone; the Engine is executed after it', async (t) => {
  const args = ['--', 'sh', '-c', 'echo engine']
  const [asked, unasked] = [await starterToEnd(['--ack', ...args]), await starterToEnd(args)]
  t.deepEqual([asked.code, asked.out, asked.err], [0, `${ACK}engine\n`, ''])
  t.deepEqual([unasked.code, unasked.out, unasked.err], [0, 'engine\n', ''])
})

test('arguments, environment and directory arrive as they are, but for the request', async (t) => {
  const words = ['', 'a b', '--ack', '--', "it's", 'ü€\n']
  const script = `printf '%s|' "$@" "$VALUE" "\${${VARIABLE}-unset}"; pwd`
  const env = { VALUE: 'ü = \n "x"', [VARIABLE]: '1' }
  const { out } = await starterToEnd(['--', 'sh', '-c', script, 'sh', ...words], { env, cwd: folder })
  t.is(out, `${[...words, env.VALUE, 'unset'].map((word) => `${word}|`).join('')}${folder}\n`)
})

test('what is given to it reaches the Engine: descriptors, but the control descriptor', async (t) => {
  const stdio = ['pipe', 'pipe', 'pipe', 'pipe', 'pipe']
  const script = 'echo four >&4; cd /proc/self/fd; for n in 3 4; do [ -e $n ] && echo $n; done'
  const started = starter(['--ack', '--control-fd', '3', '--', 'sh', '-c', script], { stdio })
  const four = []
  started.child.stdio[4].on('data', (chunk) => four.push(chunk))
  t.deepEqual(await started.closed, { code: 0, signal: null }, started.err())
  t.deepEqual([started.out(), Buffer.concat(four).toString()], [`${ACK}4\n`, 'four\n'])
})

// ---- the end of the Engine
for (const [script, status] of [
  ['exit 0', { code: 0, signal: null }],
  ['exit 7', { code: 7, signal: null }],
  ['exit 255', { code: 255, signal: null }],
  ['kill -USR1 $$', { code: null, signal: 'SIGUSR1' }],
  ['kill -KILL $$', { code: null, signal: 'SIGKILL' }],
  ['kill -SEGV $$', { code: null, signal: 'SIGSEGV' }],
]) {
  test(`its status is the Engine's, and at that moment nothing of it is left: ${script} (C20)`, async (t) => {
    const started = starter(['--ack', '--', 'sh', '-c', `${LEAVES}; echo ready; read x; ${script}`])
    await started.shows('ready')
    await allLeft(started.mark)
    let left
    started.child.once('exit', () => {
      left = marked(started.mark).map(comm)
    })
    started.child.stdin.end('\n')
    t.deepEqual(await started.exited, status)
    t.deepEqual(left, [])
    await started.closed
  })
}

test("another signal that is pending for the starter is not taken for the Engine's end (C20)", async (t) => {
  const started = starter(['--', 'sh', '-c', 'trap "" USR1; echo ready; read x; kill -KILL $$'])
  await started.shows('ready')
  started.child.kill('SIGUSR1')
  started.child.stdin.end('\n')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  t.deepEqual(marked(started.mark), [])
})

test('in a directory that its user may not search the Engine runs, as it does without the starter', async (t) => {
  if (process.getuid() !== 0) {
    t.log('skipped: another user needs root')
    t.pass()
    return
  }
  const open = mkdtempSync(join(tmpdir(), 'holdfast-starter-open-'))
  t.teardown(() => rmSync(open, { recursive: true }))
  chmodSync(open, 0o755)
  const locked = join(open, 'locked')
  mkdirSync(locked, 0o700)
  const copy = join(open, 'holdfast-helper')
  copyFileSync(HELPER, copy)
  chmodSync(copy, 0o755)
  const options = { command: [copy, '__session-starter'], cwd: locked, uid: 65534, gid: 65534 }
  const { code, out, err } = await starterToEnd(
    ['--ack', '--', 'sh', '-c', 'echo ran; ls . && exit 1; exit 5'],
    options,
  )
  t.deepEqual([code, out], [5, `${ACK}ran\n`], err)
})

test('children that it had before it became the starter are left alone', async (t) => {
  const script = `sleep 60 </dev/null >/dev/null 2>&1 & echo $!; exec "$0" __session-starter --ack -- sh -c 'sleep 60 & exit 3'`
  const { code, out } = await starterToEnd(['-c', script, HELPER], { command: ['sh'] })
  const [before, ...rest] = out.split('\n')
  t.deepEqual([code, rest.join('\n')], [3, ACK])
  t.true(isAlive(Number(before)))
  process.kill(Number(before), 'SIGKILL')
  await gone([Number(before)])
})

test('the Engine closes its stdout and stderr: their ends arrive, though it lives; so does the end of its stdin', async (t) => {
  const started = starter(['--ack', '--', 'sh', '-c', 'echo ready; read x; exec <&- >&- 2>&-; sleep 60'])
  await started.shows('ready')
  const { child } = started
  child.stdin.on('error', () => {})
  child.stdin.write('\n')
  await until(() => child.stdout.readableEnded && child.stderr.readableEnded, 'the ends of stdout and stderr')
  await until(() => {
    if (child.stdin.writable) child.stdin.write('x')
    return child.stdin.destroyed
  }, 'that nobody reads its stdin')
  t.is(child.exitCode, null)
  const { engine } = await belowStarter(child.pid)
  t.true(isAlive(engine))
  child.kill('SIGTERM')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGTERM' })
})

test('it relays nothing: starter and keeper hold none of the descriptors', async (t) => {
  const started = starter(['--', 'sh', '-c', 'echo ready; read x'])
  await started.shows('ready')
  const { keeper, engine } = await belowStarter(started.child.pid)
  const ours = [0, 1, 2].map((fd) => descriptors(engine).get(fd))
  const held = () =>
    [started.child.pid, keeper].flatMap((pid) => [...descriptors(pid).values()]).filter((one) => ours.includes(one))
  await until(() => held().length === 0, 'that nothing of it is held')
  t.true(ours.every((target) => target.startsWith('pipe:') || target.startsWith('socket:')))
})

// ---- what begins the end
for (const name of ['TERM', 'INT', 'HUP', 'QUIT']) {
  test(`SIG${name} is passed on once, and its status is the Engine's answer`, async (t) => {
    // A signal just before read(2) is acted on after it.
    const script = `trap 'echo ${name} >>"$0"; exit 9' ${name}; echo ready; while :; do read -t 0.2 x; done`
    const counts = join(folder, name)
    const started = starter(['--', 'bash', '-c', script, counts])
    await started.shows('ready')
    started.child.kill(`SIG${name}`)
    t.deepEqual(await started.exited, { code: 9, signal: null })
    t.is(readFileSync(counts, 'utf8'), `${name}\n`)
    t.deepEqual(marked(started.mark), [])
  })
}

test('a signal that does not begin the end is passed on, once (C81)', async (t) => {
  const started = starter(['--', PYTHON, fixture('signals.py')])
  await started.shows('ready')
  for (const name of ['SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGCONT', 'SIGALRM']) {
    started.child.kill(name)
    await started.shows(`got-${name}.`)
  }
  started.child.stdin.end('x\n')
  t.deepEqual(await started.closed, { code: 7, signal: null })
  t.is(started.out().match(/got-/g).length, 5)
})

for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT']) {
  test(`${name} that waits, blocked, when the process becomes the starter ends it, and nothing is run`, async (t) => {
    const trace = join(folder, `early ${name}`)
    const script = `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.${name}])
os.kill(os.getpid(), signal.${name})
os.execv(sys.argv[1], sys.argv[1:])`
    const command = [PYTHON, '-c', script, HELPER, '__session-starter']
    for (const options of [[], ['--ack']]) {
      const started = starter([...options, '--', 'touch', trace], { command })
      t.deepEqual(await started.closed, { code: null, signal: name })
      t.deepEqual([started.out(), existsSync(trace)], ['', false])
    }
  })
}

test('an Engine that ignores the signals is killed after --grace, and gets no second one (C03)', async (t) => {
  const env = { COUNT: join(folder, 'terms') }
  const started = starter(['--ack', '--grace', '400', '--', ...ENGINE], { env })
  await started.shows('"pid"')
  const begin = Date.now()
  started.child.kill('SIGTERM')
  await until(() => started.child.exitCode === null && readSafely(env.COUNT) !== '', 'the first one')
  started.child.kill('SIGTERM')
  started.child.kill('SIGINT')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  t.true(Date.now() - begin >= 400)
  t.is(readFileSync(env.COUNT, 'utf8'), 'TERM\n')
  t.deepEqual(marked(started.mark), [])
})

test('--grace 0 is SIGKILL at once; the default is two seconds', async (t) => {
  for (const [options, least] of [
    [['--grace', '0'], 0],
    [[], 2000],
  ]) {
    const started = starter([...options, '--', ...ENGINE])
    await started.shows('"pid"')
    const begin = Date.now()
    started.child.kill('SIGTERM')
    t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
    const passed = Date.now() - begin
    t.true(passed >= least && passed < least + 1500, `${options}: ${passed} ms`)
  }
})

test('it hears SIGTERM though it was started with it ignored, and with SIGCHLD ignored', async (t) => {
  const script = `trap '' TERM CHLD HUP INT; exec "$0" __session-starter -- ${PYTHON} -c 'print("ready", flush=True); input()'`
  const started = starter(['-c', script, HELPER], { command: ['sh'] })
  await started.shows('ready')
  started.child.kill('SIGTERM')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGTERM' })
})

test('--control-fd: what comes over it means nothing, its end begins the end', async (t) => {
  const env = { COUNT: join(folder, 'hang-up') }
  const started = starter(['--ack', '--control-fd', '3', '--grace', '300', '--', ...ENGINE], {
    env,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  })
  await started.shows('"pid"')
  started.child.stdio[3].write('x'.repeat(100_000))
  started.child.stdin.write('echo still here\n')
  await started.shows('still here')
  started.child.stdio[3].destroy()
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  t.is(readFileSync(env.COUNT, 'utf8'), 'TERM\n')
  t.deepEqual(marked(started.mark), [])
})

test('without --watch-parent the parent may go', async (t) => {
  const script = `"$0" __session-starter --ack -- sh -c 'echo ready; read x <&3; echo over' & kill -KILL $$`
  const stdio = ['ignore', 'pipe', 'pipe', 'pipe']
  const started = starter(['-c', script, HELPER], { command: ['bash'], stdio })
  await started.shows('ready')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  t.is(marked(started.mark).length, 3)
  started.child.stdio[3].write('\n')
  await started.closed
  t.is(started.out(), `${ACK}ready\nover\n`)
  await noneMarked(started.mark)
})

// ---- deaths
test('SIGKILL of the starter ends everything; the end of stdout arrives (C02)', async (t) => {
  const started = starter(['--grace', '100', '--', 'sh', '-c', `${LEAVES}; echo ready; sleep 60; true`])
  await started.shows('ready')
  await allLeft(started.mark)
  started.child.kill('SIGKILL')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  await noneMarked(started.mark)
  await started.closed
})

test('SIGKILL of its keeper ends everything, and is told (C05)', async (t) => {
  const started = starter(['--', 'sh', '-c', `${LEAVES}; echo ready; sleep 60; true`])
  await started.shows('ready')
  await allLeft(started.mark)
  const { keeper } = await belowStarter(started.child.pid)
  process.kill(keeper, 'SIGKILL')
  t.deepEqual(await started.exited, { code: 70, signal: null })
  t.deepEqual(marked(started.mark), [])
})

test('a keeper that is stopped goes on; so does one that is sent signals (C56)', async (t) => {
  const started = starter(['--grace', '0', '--', 'sh', '-c', `${LEAVES}; echo ready; sleep 60; true`])
  await started.shows('ready')
  await allLeft(started.mark)
  const { keeper } = await belowStarter(started.child.pid)
  for (const signal of ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGSTOP']) process.kill(keeper, signal)
  await until(() => stat(keeper).state !== 'T', 'that it goes on')
  t.true(isAlive(started.child.pid) && sleepers(started.mark).length >= 4)
  started.child.kill('SIGTERM')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  t.deepEqual(marked(started.mark), [])
})

// ---- the acknowledgement cannot be written
/** The writing end of a pipe that is full and stays so until the end of the test. */
function fullPipe(t, name) {
  const path = join(folder, name)
  t.is(spawnSync('mkfifo', [path]).status, 0)
  const both = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
  const end = openSync(path, constants.O_WRONLY)
  t.teardown(() => [both, end].forEach(closeSync))
  for (const size of [4096, 1]) {
    t.throws(
      () => {
        for (;;) writeSync(both, 'x'.repeat(size))
      },
      { code: 'EAGAIN' },
    )
  }
  return end
}

for (const [what, act, expected] of [
  ['SIGTERM', ({ child }) => child.kill('SIGTERM'), { code: null, signal: 'SIGTERM' }],
  ['the end of the control descriptor', ({ child }) => child.stdio[3].destroy(), { code: 70, signal: null }],
  ['the end of its keeper', (_, keeper) => process.kill(keeper, 'SIGKILL'), { code: 70, signal: null }],
]) {
  test(`a full stdout at the acknowledgement: ${what} is its end, and nothing is run`, async (t) => {
    const trace = join(folder, `trace ${what}`)
    const args = ['--ack', '--control-fd', '3', '--', 'touch', trace]
    const stdio = ['ignore', fullPipe(t, `full ${what}`), 'pipe', 'pipe']
    const started = starter(args, { stdio })
    const [keeper] = await until(() => {
      const found = childrenOf(started.child.pid)
      return found.length > 0 && found
    }, 'a keeper')
    act(started, keeper)
    t.deepEqual(await started.exited, expected, started.err())
    t.false(existsSync(trace))
    await noneMarked(started.mark)
  })
}

// ---- what it had before
test('orphans of children from before are reaped; when the keeper is lost they live on, and no more is said than is true', async (t) => {
  const list = join(folder, 'orphans')
  // It leaves orphans once the starter is there for them: twenty that end, and one that does not.
  const before = `read x <&3
    for i in $(seq 20); do (sh -c 'echo $$ >>"$0"; exec sleep 0' "$0" &); done
    (sleep 60 &); exec sleep 60`
  const script = `sh -c "$1" "$2" >/dev/null 2>&1 & exec "$0" __session-starter --ack -- sh -c 'echo ready; sleep 60; true' 3<&-`
  // It would let go of a pipe.
  const errors = join(folder, 'errors')
  const file = openSync(errors, 'w')
  const started = starter(['-c', script, HELPER, before, list], {
    command: ['sh'],
    stdio: ['ignore', 'pipe', file, 'pipe'],
  })
  closeSync(file)
  await started.shows('ready')
  const { keeper, engine } = await belowStarter(started.child.pid)
  started.child.stdio[3].write('\n')
  const ended = () => readSafely(list).trim().split('\n').map(Number)
  await until(() => ended().length === 20, 'all orphans')
  await until(() => ended().every((pid) => stat(pid) === undefined), 'that all of them are reaped')
  // The one from before, and its orphan that lives.
  const ours = () => childrenOf(started.child.pid).filter((pid) => comm(pid) === 'sleep')
  await until(() => ours().length === 2, 'the two that live')
  const live = ours()
  process.kill(keeper, 'SIGKILL')
  t.deepEqual(await started.exited, { code: 70, signal: null })
  t.deepEqual(live.map(isAlive), [true, true])
  t.false(isAlive(engine))
  for (const pid of live) process.kill(pid, 'SIGKILL')
  await started.closed
  t.regex(readFileSync(errors, 'utf8'), /^holdfast: the keeper was lost; .*\n$/)
  t.notRegex(readFileSync(errors, 'utf8'), /everything that the command started was ended/)
  await noneMarked(started.mark)
})

// ---- an SDK in another language
test('an SDK in Python: acknowledgement, talk, end of the Engine', async (t) => {
  const one = newMark()
  const command = [HELPER, '__session-starter', '--ack', '--watch-parent', '--parent-pid', '{pid}', '--', ...ENGINE]
  const steps = ['line', 'line', 'write echo hello', 'line', 'write exit 5', 'rest', 'wait']
  const { seen } = await sdk({ command, steps }, { ...process.env, MARK: one })
  const [ack, about, echo] = seen.lines
  t.deepEqual([ack, echo, seen.rest, seen.status, seen.stderr], [ACK, 'hello\n', '', 5, ''])
  t.is(JSON.parse(about).asked, null)
  t.deepEqual(marked(one), [])
})

test('an SDK in Python: SIGTERM, and the end of a control pipe', async (t) => {
  for (const step of ['signal SIGTERM', 'hang-up']) {
    const one = newMark()
    const options = ['--ack', '--control-fd', '{control}', '--grace', '100']
    const command = [HELPER, '__session-starter', ...options, '--', 'sh', '-c', `${LEAVES}; echo ready; sleep 60; true`]
    const { seen } = await sdk(
      { command, steps: ['line', 'line', step, 'rest', 'wait'] },
      { ...process.env, MARK: one },
    )
    t.deepEqual([seen.lines, seen.status, seen.stderr], [[ACK, 'ready\n'], -9, ''], step)
    t.deepEqual(marked(one), [])
  }
})

for (const [title, options] of [
  ['--watch-parent and --parent-pid', ['--watch-parent', '--parent-pid', '{pid}']],
  ['--watch-parent', ['--watch-parent']],
  ['--control-fd', ['--control-fd', '{control}']],
]) {
  test(`an SDK in Python is killed: the Engine gets one SIGTERM, and nothing is left (${title}) (C02)`, async (t) => {
    const one = newMark()
    const env = { ...process.env, MARK: one, COUNT: join(folder, one) }
    const command = [HELPER, '__session-starter', '--ack', '--grace', '300', ...options, '--', ...ENGINE]
    const { signal, seen } = await sdk({ command, steps: ['line', 'line', 'die'] }, env)
    t.deepEqual([signal, seen.lines[0]], ['SIGKILL', ACK])
    await noneMarked(one)
    t.is(readFileSync(env.COUNT, 'utf8'), 'TERM\n')
  })
}

// ---- process 1
const UNSHARE = ['unshare', '-pf', '--mount-proc']
const hasNamespaces = spawnSync(UNSHARE[0], [...UNSHARE.slice(1), 'true']).status === 0

test('as process 1 of a pid namespace: orphans are reaped, 128+n for a signal (C54)', async (t) => {
  if (!has(t, hasNamespaces ? '' : `${UNSHARE.join(' ')} is refused here`)) return
  const script = `. ${fixture('strays.sh')} 100; kill -TERM $$`
  const started = starter(['--ack', '--', 'bash', '-c', script], { command: [...UNSHARE, HELPER, '__session-starter'] })
  t.deepEqual(await started.closed, { code: 143, signal: null })
  // The pin of the Engine's group is one of holdfast's own.
  t.regex(started.out(), new RegExp(`^${ACK.trim()}\nzombies-[01]\\.\n$`))
})

function readSafely(file) {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
