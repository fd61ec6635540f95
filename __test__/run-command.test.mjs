// `holdfast run`: exit status, options, stdio, signals, and that nothing is left behind.
import { fork, spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { capabilities } from '../dist/index.js'
import { CLI, holdfast, keeperOf, run, runToEnd, within } from './support/command-line.mjs'
import { childrenOf, comm, gone, isAlive, marked, newMark, noneMarked, stat, until } from './support/facts.mjs'
import { fixture, PYTHON, programOf, TIDIES } from './support/fixtures.mjs'
import { folderOfFile, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const HELPER = capabilities().helper.path
const folder = folderOfFile(test)
suite(test)

/** Says `ready`, then answers each TERM, INT, QUIT or HUP with its name; ends at the first, or with its stdin. */
const ANSWERS = `
  for s in HUP INT TERM QUIT; do trap "echo got-$s; exit 5" $s; done
  echo ready; read x; exit 6`
/** Leaves three behind, one of them in a session of its own and one that lost its parent as well, deaf to all but SIGKILL. */
const LEAVES = `trap '' HUP INT TERM
  sleep 60 & setsid sleep 60 & (setsid sh -c 'sleep 60 & sleep 60' &)`
const lives = (m, name) => marked(m).filter((pid) => comm(pid) === name).length

// ---- exit status
for (const code of [0, 1, 7, 255]) {
  test(`the exit status is the command's: ${code}`, async (t) => {
    const { code: found, signal, err } = await runToEnd(['--', 'sh', '-c', `exit ${code}`])
    t.deepEqual({ found, signal, err }, { found: code, signal: null, err: '' })
  })
}
for (const name of ['TERM', 'KILL', 'SEGV', 'PIPE', 'USR1']) {
  test(`the command's signal is raised again: ${name}`, async (t) => {
    const { code, signal } = await runToEnd(['--', 'sh', '-c', `kill -${name} $$`])
    t.deepEqual({ code, signal }, { code: null, signal: `SIG${name}` })
  })
}

test('124: the time was up, not before it was, and nothing is left', async (t) => {
  const start = Date.now()
  const { code, mark: m } = await runToEnd(['--timeout', '300ms', '--grace=0', '--', 'sh', '-c', `${LEAVES}; sleep 60`])
  t.is(code, 124)
  t.true(Date.now() - start >= 300)
  t.deepEqual(marked(m), [])
})

test('--timeout sends SIGTERM first, and --grace is waited for', async (t) => {
  // Its stdin stays open: it ends by the signal or not at all.
  const started = run(['--timeout', '0.2', '--grace', '60s', '--', 'sh', '-c', ANSWERS])
  t.deepEqual(await started.closed, { code: 124, signal: null })
  t.is(started.out(), 'ready\ngot-TERM\n')
})

test('a command that ignores SIGTERM is killed after the grace (C03)', async (t) => {
  const start = Date.now()
  const script = `trap '' TERM; echo ready; sleep 60`
  const { code, out } = await runToEnd(['--timeout', '100ms', '--grace', '300ms', '--', 'sh', '-c', script])
  t.deepEqual([code, out], [124, 'ready\n'])
  const passed = Date.now() - start
  t.true(passed >= 400 && passed < 20_000, `${passed} ms`)
})

test('125, 126, 127: holdfast itself, not executable, not found; each message names what it is about (C60)', async (t) => {
  const file = (name, text, mode) => {
    writeFileSync(join(folder, name), text)
    chmodSync(join(folder, name), mode)
    return join(folder, name)
  }
  const plain = file('plain', '#!/bin/sh\n', 0o644)
  const interpreter = file('interpreter', '#!/no/such/interpreter\n', 0o755)
  const cases = [
    [['--', 'no-such-program-x'], 127, 'no-such-program-x'],
    [['--', '/no/such/program'], 127, '/no/such/program'],
    [['--', plain], 126, plain],
    [['--', folder], 126, folder],
    [['--', interpreter], 126, 'interpreter'],
    [['--cwd', '/no/such/folder', '--', 'true'], 125, 'cwd'],
    [['--cwd', plain, '--', 'true'], 125, 'cwd'],
  ]
  for (const [args, code, word] of cases) {
    const found = await runToEnd(args)
    t.is(found.code, code, args.join(' '))
    t.true(found.err.startsWith('holdfast: ') && found.err.includes(word), found.err)
    t.is(found.out, '')
  }
})

// ---- options
test('wrong options are 125 with a usage line, and nothing is run', async (t) => {
  const trace = join(folder, 'ran')
  const command = ['--', 'touch', trace]
  const cases = [
    [['--tiemout', '1', ...command], '--tiemout'],
    [['--timeout', 'soon', ...command], 'soon'],
    [['--timeout', '-1', ...command], '-1'],
    [['--grace', '1d', ...command], '1d'],
    [['--background', 'drop', ...command], 'drop'],
    [['--background-grace', '-1', ...command], '--background-grace'],
    [['--background-settle', 'NaN', ...command], '--background-settle'],
    [['--background-settle=', ...command], '--background-settle'],
    [['--timeout'], '--timeout'],
    [['--'], 'no command'],
    [[], 'no command'],
  ]
  for (const [args, word] of cases) {
    const { code, out, err } = await runToEnd(args)
    t.deepEqual([code, out], [125, ''], args.join(' '))
    t.true(err.includes(word) && err.includes('usage: holdfast run '), err)
  }
  t.throws(() => readFileSync(trace), { code: 'ENOENT' })
})

test('options end where the command begins', async (t) => {
  const { code, out } = await runToEnd(['printf', '%s,', '--timeout', '1', '--', '--cwd=/'])
  t.deepEqual([code, out], [0, '--timeout,1,--,--cwd=/,'])
})

test('--cwd, absolute and relative', async (t) => {
  const pwd = async (cwd) => (await runToEnd([`--cwd=${cwd}`, '--', 'pwd', '-P'], { cwd: join(folder, '..') })).out
  t.is(await pwd(folder), `${folder}\n`)
  t.is(await pwd(basename(folder)), `${folder}\n`)
})

test('the environment and the arguments arrive as they are', async (t) => {
  const args = ['', 'a b', '$HOME', "it's", 'ü€\n']
  const env = { HOLDFAST_TEST_VALUE: 'ü = \n "x"' }
  const script = 'printf "%s|" "$@" "$HOLDFAST_TEST_VALUE"'
  const { out } = await runToEnd(['--', 'sh', '-c', script, 'sh', ...args], { env })
  t.is(out, [...args, env.HOLDFAST_TEST_VALUE].map((text) => `${text}|`).join(''))
})

test("--background end: what the command left is ended, and the status is the command's", async (t) => {
  const {
    code,
    out,
    mark: m,
  } = await runToEnd(['--background', 'end', '--', 'sh', '-c', `${LEAVES}; echo done; exit 3`])
  t.deepEqual([code, out], [3, 'done\n'])
  t.deepEqual(marked(m), [])
})

test('--background-grace: what the command left gets SIGTERM first, and with 0 it does not (C90)', async (t) => {
  for (const [grace, tidied] of [
    ['60s', true],
    ['0', false],
  ]) {
    const file = join(folder, `tidied-${grace}`)
    const args = [`--background-grace=${grace}`, '--background-settle=0', '--', 'sh', '-c', TIDIES, 'sh', file]
    t.like(await runToEnd(args), { code: 3, signal: null, err: '' })
    t.deepEqual([existsSync(`${file}.ready`), existsSync(file)], [true, tidied], grace)
  }
})

test('--background keep: it waits for what the command left, which SIGTERM ends (C40)', async (t) => {
  const script = 'sleep 60 >/dev/null & setsid sleep 60 >/dev/null & echo done; exit 3'
  const kept = run(['--background', 'keep', '--grace', '0', '--', 'sh', '-c', script])
  await kept.shows('done')
  await until(() => lives(kept.mark, 'sh') === 0 && lives(kept.mark, 'sleep') === 2, 'the two that are kept')
  t.is(kept.child.exitCode, null)
  kept.child.kill('SIGTERM')
  t.deepEqual(await kept.exited, { code: 3, signal: null })
  t.deepEqual(marked(kept.mark), [])
})

test('--background keep: it leaves when the last one does', async (t) => {
  const script = 'exec 4<&0; cat <&4 >/dev/null & echo done; exit 3'
  const kept = run(['--background=keep', '--', 'sh', '-c', script])
  await kept.shows('done')
  await until(() => lives(kept.mark, 'sh') === 0 && lives(kept.mark, 'cat') === 1, 'the one that is kept')
  kept.child.stdin.end()
  t.deepEqual(await kept.exited, { code: 3, signal: null })
})

// ---- input and output
test('stdin and stdout are passed on, byte for byte', async (t) => {
  const bytes = randomBytes(4 << 20)
  const hash = (data) => createHash('sha256').update(data).digest('hex')
  const cat = run(['--', 'cat'])
  const received = []
  cat.child.stdout.on('data', (chunk) => received.push(chunk))
  cat.child.stdin.end(bytes)
  t.deepEqual(await cat.closed, { code: 0, signal: null })
  t.is(hash(Buffer.concat(received)), hash(bytes))
})

test('pipelines: of contained commands, and with a reader that leaves', async (t) => {
  const script = `set -o pipefail
    hf() { "${process.execPath}" "${CLI}" run -- "$@"; }
    printf 'b\\na\\nb\\n' | hf sort | hf uniq -c | tr -d ' '
    hf yes | head -n 1; echo "$?"`
  const { out } = await runToEnd([], { command: ['bash', '-c', script] })
  // 141: SIGPIPE, which Node ignores and the command must not.
  t.is(out, '1a\n2b\ny\n141\n')
})

test('stderr of the command is its own, and order is kept with 2>&1', async (t) => {
  const { out, err } = await runToEnd(['--', 'sh', '-c', 'echo out; echo err >&2'])
  t.deepEqual([out, err], ['out\n', 'err\n'])
  const command = ['sh', '-c', 'exec "$@" 2>&1', 'sh', process.execPath, CLI]
  const merged = await runToEnd(['--', 'sh', '-c', 'for i in 1 2 3; do echo o$i; echo e$i >&2; done'], { command })
  t.is(merged.out, 'o1\ne1\no2\ne2\no3\ne3\n')
})

test('the resident process holds no end of stdout: a command that closes it is at its end for the reader', async (t) => {
  const started = run(['--', 'sh', '-c', 'echo ready; exec >&-; read x'])
  await started.shows('ready')
  await until(() => started.child.stdout.readableEnded, 'the end of stdout')
  t.is(started.child.exitCode, null)
  t.true(isAlive(started.child.pid))
  started.child.stdin.end()
  await started.exited
})

test('inherited descriptors reach the command', async (t) => {
  const started = run(['--', 'sh', '-c', 'read line <&3; echo "answer to $line" >&3; cat <&5'], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'ignore', 'pipe'],
  })
  // A descriptor that does not arrive is a wrong answer below, and no uncaught EPIPE here.
  for (const place of [3, 5]) started.child.stdio[place].on('error', () => {})
  started.child.stdio[3].write('question\n')
  started.child.stdio[5].end('five')
  const answer = []
  started.child.stdio[3].on('data', (chunk) => answer.push(chunk))
  t.deepEqual(await started.closed, { code: 0, signal: null }, started.err())
  t.is(Buffer.concat(answer).toString(), 'answer to question\n')
  t.is(started.out(), 'five')
})

test('inherited descriptors reach the command: files, doubles of a pipe, process substitution', async (t) => {
  writeFileSync(join(folder, 'seven'), 'seven\n')
  const script = `"$0" "$1" run -- sh -c 'cat <&7; echo three >&3; cat "$1"' sh <(echo sub) 7<"$2" 3>&1`
  const { out, err } = await runToEnd([], {
    command: ['bash', '-c', script, process.execPath, CLI, join(folder, 'seven')],
  })
  t.deepEqual([out, err], ['seven\nthree\nsub\n', ''])
})

test('no descriptor of Node or holdfast reaches the command', async (t) => {
  // The shell's own listing shows what this file's process was given on top, and what the listing itself opens.
  const list = async (command, args) => (await runToEnd(args, { command })).out
  const script = 'cd /proc/self/fd && echo *'
  const plain = await list(['sh', '-c', script], [])
  t.is(await list(undefined, ['--', 'sh', '-c', script]), plain)
})

test('the resident process holds no end of an inherited descriptor', async (t) => {
  const started = run(['--', 'sh', '-c', 'echo ready >&3; exec 3>&-; read x'], {
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  })
  const third = started.child.stdio[3]
  third.resume()
  const outcome = await until(() => third.readableEnded && 'ended', 'the end of descriptor 3').catch(String)
  t.is(started.child.exitCode, null)
  started.child.stdin.end()
  await started.exited
  t.is(outcome, 'ended')
})

for (const serialization of ['json', 'advanced']) {
  test(`the IPC channel of a fork() reaches the command: ${serialization}`, async (t) => {
    const program = `process.on('message', (m) => process.send({ echo: m }, () => process.disconnect()))
      process.send('ready')`
    const child = fork(CLI, ['run', '--', process.execPath, '-e', program], {
      serialization,
      env: { ...process.env, MARK: newMark() },
    })
    const exited = within(once(child, 'exit'), 'exit of the fork')
    const question = serialization === 'json' ? { n: 12 } : { n: 12n }
    const messages = []
    child.on('message', (message) => {
      messages.push(message)
      if (message === 'ready') child.send(question)
    })
    t.deepEqual(await exited, [0, null])
    t.deepEqual(messages, ['ready', { echo: question }])
  })
}

// ---- what ends
test('everything left behind is ended: &, setsid, double fork, no environment, no descriptors (C20)', async (t) => {
  // `env -i` takes the mark away, so that these report their pids.
  const script = `${LEAVES}
    (setsid env -i sh -c 'trap "" HUP INT TERM; echo $$; exec sleep 60 <&- >&- 2>&-' &)
    (nohup env -i sh -c 'echo $$; exec sleep 60 >/dev/null' 2>/dev/null &)
    while [ ! -e "$0" ]; do sleep 0.01; done; exit 0`
  const go = join(folder, 'go')
  const started = run(['--', 'sh', '-c', script, go])
  const unmarked = await until(
    () => started.out().match(/^\d+\n\d+\n$/) && started.out().trim().split('\n').map(Number),
    'two pids',
  )
  await until(() => lives(started.mark, 'sleep') >= 4, 'four marked ones')
  t.true(unmarked.every(isAlive))
  writeFileSync(go, '')
  t.deepEqual(await started.exited, { code: 0, signal: null })
  t.deepEqual([...marked(started.mark), ...unmarked.filter(isAlive)], [])
})

test('children that the process had before it became `holdfast run` are left alone', async (t) => {
  const command = ['sh', '-c', 'sleep 60 >/dev/null 2>&1 & echo $!; exec "$@"', 'sh', process.execPath, CLI]
  const { code, out } = await runToEnd(['--', 'sh', '-c', 'sleep 60 & exit 0'], { command })
  t.is(code, 0)
  const before = Number(out)
  t.true(isAlive(before))
  process.kill(before, 'SIGKILL')
  await gone([before])
})

test('SIGKILL of the resident process ends everything (C02)', async (t) => {
  const started = run(['--grace', '100ms', '--', 'sh', '-c', `${LEAVES}; echo ready; sleep 60; true`])
  await started.shows('ready')
  await until(() => lives(started.mark, 'sleep') >= 5, 'the whole brood')
  started.child.kill('SIGKILL')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGKILL' })
  // Helper and keeper carry the mark too: nothing of holdfast is left either.
  await noneMarked(started.mark)
  await started.closed
  t.pass()
})

test('SIGKILL of its keeper ends everything, and the status says so (C05)', async (t) => {
  const started = run(['--', 'sh', '-c', `${LEAVES}; echo ready; sleep 60; true`])
  await started.shows('ready')
  await until(() => lives(started.mark, 'sleep') >= 5, 'the whole brood')
  process.kill(await keeperOf(started.child.pid), 'SIGKILL')
  t.deepEqual(await started.exited, { code: 125, signal: null })
  t.deepEqual(marked(started.mark), [])
  t.true(started.err().includes('keeper was lost'), started.err())
})

for (const [signal, name] of [
  ['SIGTERM', 'TERM'],
  ['SIGINT', 'INT'],
  ['SIGQUIT', 'QUIT'],
]) {
  test(`${signal} begins the ladder with that signal; what is deaf to it is killed`, async (t) => {
    const script = `sh -c "trap '' HUP INT TERM QUIT; sleep 60 & exec setsid sleep 60" & ${ANSWERS}`
    const started = run(['--grace', '200ms', '--', 'sh', '-c', script])
    await started.shows('ready')
    await until(() => lives(started.mark, 'sleep') === 2, 'the deaf ones')
    started.child.kill(signal)
    t.deepEqual(await started.exited, { code: 5, signal: null })
    t.is(started.out(), `ready\ngot-${name}\n`)
    t.deepEqual(marked(started.mark), [])
  })
}

// ---- signals to its pid
const ANSWERING = [PYTHON, fixture('signals.py')]
/** What `timeout(1)` or `exec` would let through, by what the command makes of it. */
const PASSED_ON = [
  'HUP',
  'USR1',
  'USR2',
  'WINCH',
  'CONT',
  'ALRM',
  'ABRT',
  'PIPE',
  'XCPU',
  'URG',
  'TSTP',
  'VTALRM',
  'PWR',
]
for (const name of PASSED_ON) {
  test(`SIG${name} is passed on to the command, once, and is the command's business (C81)`, async (t) => {
    const started = run(['--', ...ANSWERING])
    await started.shows('ready')
    started.child.kill(`SIG${name}`)
    await started.shows(`got-SIG${name}.`)
    started.child.stdin.end('x\n')
    t.deepEqual(await started.closed, { code: 7, signal: null })
    t.is(started.out().replace(/ready-\d+/, 'ready'), `ready.\ngot-SIG${name}.\nend-x.\n`)
  })
}

for (const name of ['HUP', 'USR1', 'ALRM', 'ABRT', 'PIPE', 'XCPU']) {
  test(`a command that does not answer SIG${name} dies of it, and what it left is ended (C81)`, async (t) => {
    const started = run(['--', 'sh', '-c', `ulimit -c 0; ${LEAVES}; trap - HUP; echo ready; exec sleep 60`])
    await started.shows('ready')
    await until(() => lives(started.mark, 'sleep') === 5, 'the brood')
    started.child.kill(`SIG${name}`)
    t.deepEqual(await started.exited, { code: null, signal: `SIG${name}` })
    t.deepEqual(marked(started.mark), [])
  })
}

test('a signal that comes before the command was executed is not lost (C81)', async (t) => {
  // They wait, blocked, when the process becomes the helper.
  const script = `import os, signal, sys
signals = {getattr(signal, name) for name in sys.argv[1].split()}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
for one in signals: os.kill(os.getpid(), one)
os.execv(sys.argv[2], sys.argv[2:])`
  const early = (names) => ({ command: [PYTHON, '-c', script, names, HELPER, '__run', '--'] })
  const passed = holdfast(['sleep', '60'], early('SIGUSR2'))
  t.deepEqual(await passed.closed, { code: null, signal: 'SIGUSR2' })
  for (const name of ['SIGTERM', 'SIGINT', 'SIGQUIT']) {
    const trace = join(folder, `early ${name}`)
    const ended = holdfast(['touch', trace], early(name))
    t.deepEqual(await ended.closed, { code: null, signal: name })
    t.throws(() => readFileSync(trace), { code: 'ENOENT' }, 'nothing is started')
  }
})

test("an alarm(2) that was set before is the command's, as with exec (C81)", async (t) => {
  const script = `import os, signal, sys
signal.setitimer(signal.ITIMER_REAL, 0.5)
os.execv(sys.argv[1], sys.argv[1:])`
  const started = holdfast(['sleep', '60'], { command: [PYTHON, '-c', script, HELPER, '__run', '--'] })
  t.deepEqual(await started.exited, { code: null, signal: 'SIGALRM' })
  t.deepEqual(marked(started.mark), [])
})

test('SIGSTOP and SIGCONT: the command goes on meanwhile, and is woken with it (C81)', async (t) => {
  const started = run(['--', ...ANSWERING])
  await started.shows('ready')
  const command = Number(started.out().match(/ready-(\d+)/)[1])
  process.kill(command, 'SIGSTOP')
  await until(() => stat(command).state === 'T', 'a stopped command')
  started.child.kill('SIGCONT')
  await started.shows('got-SIGCONT')
  started.child.stdin.end('x\n')
  t.deepEqual(await started.closed, { code: 7, signal: null })
})

test('SIGTERM to a command without an answer is its status', async (t) => {
  const started = run(['--', 'sleep', '60'])
  await until(() => lives(started.mark, 'sleep') === 1, 'the command')
  started.child.kill('SIGTERM')
  t.deepEqual(await started.exited, { code: null, signal: 'SIGTERM' })
})

test('SIGTERM to the keeper changes nothing, SIGSTOP neither', async (t) => {
  const started = run(['--timeout', '60s', '--', 'sh', '-c', ANSWERS])
  await started.shows('ready')
  const keeper = await keeperOf(started.child.pid)
  for (const signal of ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGSTOP']) process.kill(keeper, signal)
  await until(() => stat(keeper)?.state !== 'T', 'a keeper that runs again')
  started.child.stdin.end('x\n')
  t.deepEqual(await started.exited, { code: 6, signal: null })
  t.is(started.out(), 'ready\n')
})

// The helper itself: by way of Node it cannot be, since Node resets every disposition before its first line of JavaScript.
const nohup = ['sh', '-c', `trap '' HUP; exec "$@"`, 'sh', HELPER, '__run']

test('under nohup SIGHUP does not begin the end', async (t) => {
  const started = holdfast(['--', 'sh', '-c', ANSWERS], { command: nohup })
  await started.shows('ready')
  started.child.kill('SIGHUP')
  // Signals are taken in the order of their numbers: HUP would be answered first.
  started.child.kill('SIGTERM')
  t.deepEqual(await started.exited, { code: 5, signal: null })
  t.is(started.out(), 'ready\ngot-TERM\n')
})

test('under nohup the command ignores SIGHUP, as it would without holdfast', async (t) => {
  const started = holdfast(['--', 'grep', 'SigIgn', '/proc/self/status'], { command: nohup })
  await started.closed
  t.is(Number.parseInt(started.out().match(/SigIgn:\s*([0-9a-f]+)/)[1], 16) & 1, 1, started.out())
})

// ---- what it costs
test('what stays resident is the helper alone, without Node', async (t) => {
  const started = run(['--', 'sh', '-c', 'echo ready; read x'])
  await started.shows('ready')
  const mine = () => marked(started.mark)
  await until(() => lives(started.mark, 'sh') === 1, 'the command')
  t.deepEqual(mine().map(comm).sort(), ['holdfast-helper', 'holdfast-helper', 'sh'])
  t.is(comm(started.child.pid), 'holdfast-helper')
  const helpers = mine().filter((pid) => comm(pid) === 'holdfast-helper')
  let readable = true
  try {
    for (const pid of helpers) t.is(basename(readlinkSync(`/proc/${pid}/exe`)), 'holdfast-helper.node')
    const pss = helpers.map((pid) =>
      Number(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8').match(/^Pss:\s+(\d+)/m)[1]),
    )
    t.log(`PSS of helper and keeper: ${pss.join(' + ')} kB (bar: 1,500 kB)`)
  } catch (error) {
    readable = false
    t.log(`exe and memory not looked at: ${error.code} (they are not dumpable, and this is not root)`)
  }
  t.true(readable || process.getuid() !== 0)
  started.child.stdin.end('\n')
  await started.exited
})

// Node as process 1 adopts every orphan and reaps none that it does not know.
const NAMESPACE = ['unshare', '--pid', '--mount', '--fork', '--mount-proc', '--']
const refused = spawnSync(NAMESPACE[0], [...NAMESPACE.slice(1), 'true'], { encoding: 'utf8' })
if (refused.status !== 0) console.log(`C54 is not tested, no pid namespace: ${refused.error ?? refused.stderr}`)
;(refused.status === 0 ? test : test.skip)('below process 1 of a pid namespace no zombie is left (C54)', async (t) => {
  const program = programOf('run-command/below-init')
  const command = [...NAMESPACE, process.execPath, '-e', program, CLI]
  const started = run(['--', 'sh', '-c', `${LEAVES}; exit 3`], { command })
  await started.closed
  t.is(started.out(), '{"status":3,"zombies":0,"processes":2}\n', started.err())
})

const FIRST = ['unshare', '--pid', '--mount', '--fork', '--mount-proc', '--kill-child', '--']
/** As process 1 of a pid namespace; `pid` is its number outside. */
async function asFirst(args) {
  const started = holdfast(args, { command: [...FIRST, HELPER, '__run'] })
  const pid = await until(() => childrenOf(started.child.pid)[0], 'process 1')
  return { ...started, pid }
}

;(refused.status === 0 ? test : test.skip)(
  'as process 1: signals from outside are passed on, or begin the end (C81)',
  async (t) => {
    const started = await asFirst(['--grace', '0', '--', ...ANSWERING])
    await started.shows('ready')
    for (const name of ['SIGUSR1', 'SIGHUP', 'SIGWINCH', 'SIGABRT']) {
      process.kill(started.pid, name)
      await started.shows(`got-${name}.`)
    }
    process.kill(started.pid, 'SIGTERM')
    t.deepEqual(await started.exited, { code: 137, signal: null })
    t.deepEqual(marked(started.mark), [])
  },
)

;(refused.status === 0 ? test : test.skip)(
  'as process 1: the ladder from outside, and strays are reaped until the end (C81)',
  async (t) => {
    // The one that holds the command's group.
    const script = `[ $(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z ') = 1 ] && echo none-before.
    trap 'echo got-TERM; exit 5' TERM; . ${fixture('strays.sh')} 50; while :; do read x; done`
    // A child from before that has died: nothing tells of it any more.
    const before = `import os, sys
child = os.fork() or os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
os.execv(sys.argv[1], sys.argv[1:])`
    const command = [...FIRST, PYTHON, '-c', before, HELPER, '__run', '--']
    const started = holdfast(['bash', '-c', script], { command })
    await started.shows('zombies-1.')
    process.kill(childrenOf(started.child.pid)[0], 'SIGTERM')
    t.deepEqual(await started.exited, { code: 5, signal: null })
    t.regex(started.out(), /^none-before\.\nzombies-1\.\ngot-TERM\n$/)
  },
)

// ---- the other words
test('--version, --help, doctor, and a word that is none', async (t) => {
  const call = (...args) => spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8' })
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  t.is(call('--version').stdout, `${version}\n`)
  t.true(call('--help').stdout.includes('holdfast run [--timeout 30s]'))
  const doctor = call('doctor')
  t.is(doctor.status, 0, doctor.stderr)
  t.is(JSON.parse(doctor.stdout).probe.helper.probed, true)
  for (const args of [[], ['walk']]) {
    const { status, stdout, stderr } = call(...args)
    t.deepEqual([status, stdout], [125, ''])
    t.true(stderr.includes(args[0] ?? 'holdfast run'), stderr)
  }
})

test('a helper that cannot be found is 125 with one line that says so', async (t) => {
  const { code, out, err } = await runToEnd(['--', 'echo', 'ran'], { env: { HOLDFAST_BINARY_PATH: folder } })
  t.deepEqual([code, out], [125, ''])
  t.true(err.startsWith('holdfast: ') && err.includes(folder), err)
  t.is(err.trim().split('\n').length, 1)
})
