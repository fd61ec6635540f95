// `holdfast run` in a terminal: job control, ^C and ^Z, and the terminal that is closed.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CLI } from './support/command-line.mjs'
import { childrenOf, comm, isAlive, marked, noneMarked, stat, until } from './support/facts.mjs'
import { fixture, PYTHON } from './support/fixtures.mjs'
import { NAMESPACE, NO_NAMESPACE } from './support/namespace.mjs'
import { folderOfFile, has, suite } from './support/suite.mjs'
import { NO_TERMINAL, openShell, openTerminal } from './support/terminal.mjs'
import ava from './support/test.mjs'

if (NO_TERMINAL) console.log(`holdfast run in a terminal is not tested: ${NO_TERMINAL}`)
const test = NO_TERMINAL ? ava.skip : ava
const folder = folderOfFile(ava)
suite(ava)

const env = { HF: `${process.execPath} ${CLI} run`, PYTHON }

const named = (mark, name) => marked(mark).filter((pid) => comm(pid) === name)
/** The resident process: of the two helpers the one that is the other one's parent. */
const residentOf = (mark) =>
  until(() => {
    const helpers = named(mark, 'holdfast-helper')
    return helpers.find((pid) => childrenOf(pid).some((child) => helpers.includes(child)))
  }, 'helper and keeper')
/** The foreground group of a process's terminal. */
const foreground = (pid) => Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')[5])

const COUNTS = fileURLToPath(new URL('fixtures/count-interrupts.sh', import.meta.url))

test('^C reaches the command exactly once, and the shell goes on (C33)', async (t) => {
  const terminal = await openShell({ ...env, COUNTS })
  terminal.type('$HF -- "$COUNTS"; echo status-$?.\n')
  const [, pid] = await terminal.shows(/ready-(\d+)\./)
  for (const round of [1, 2, 3, 4, 5]) {
    terminal.type('\x03')
    await terminal.shows(new RegExp(`int-${round}\\.`))
  }
  const resident = await residentOf(terminal.mark)
  t.is(stat(Number(pid)).pgrp, stat(resident).pgrp)
  t.is(foreground(pid), stat(resident).pgrp)
  terminal.type('x\n')
  await terminal.shows(/end-5-x\./)
  await terminal.shows(/status-0\./)
  t.is(terminal.screen().match(/int-/g).length, 5)
  t.deepEqual(named(terminal.mark, 'holdfast-helper'), [])
})

test('^C ends a command that has no answer to it: 130 in the shell, and what it left is ended (C33)', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF -- sh -c 'setsid sleep 60 & sleep 60 & echo ready-1.; sleep 60'\n`)
  await terminal.shows(/ready-1\./)
  await until(() => named(terminal.mark, 'sleep').length === 3, 'the brood')
  // ^C makes the shell forget the rest of its line, so that the question comes in a line of its own.
  terminal.type('\x03')
  terminal.type('echo status-$?.\n')
  await terminal.shows(/status-130\./)
  t.deepEqual([...named(terminal.mark, 'sleep'), ...named(terminal.mark, 'holdfast-helper')], [])
})

test('a script that runs it ends by ^C as well (C33)', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`sh -c '$HF -- sh -c "echo ready-1.; sleep 60"; echo went on'\n`)
  await terminal.shows(/ready-1\./)
  // A child of bash that has not come to its exec drops the signal, and the shell goes on waiting for it.
  await until(() => named(terminal.mark, 'sleep').length === 1, 'the sleep')
  terminal.type('\x03')
  terminal.type('echo status-$?.\n')
  await terminal.shows(/status-130\./)
  t.false(terminal.screen().includes('went on'))
})

test('^Z stops the job, fg continues it (C33)', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF -- sh -c 'echo ready-$$.; read x; echo got-$x.; exit 4'; echo status-$?.\n`)
  const [, command] = await terminal.shows(/ready-(\d+)\./)
  const resident = await residentOf(terminal.mark)
  const states = () => [stat(command)?.state, stat(resident)?.state]
  for (const round of [1, 2]) {
    terminal.type('\x1a')
    await terminal.shows(/Stopped/)
    t.deepEqual(states(), ['T', 'T'], `round ${round}`)
    // The shell has the terminal back and answers.
    terminal.type('jobs; echo free-$((20 + 2)).\n')
    await terminal.shows(/Stopped.*free-22\./s)
    terminal.type('fg\n')
    await until(() => !states().includes('T'), `both running again, round ${round}`)
    await until(() => foreground(command) === stat(command).pgrp, 'the job in the foreground')
  }
  terminal.type('abc\n')
  await terminal.shows(/got-abc\./)
  terminal.type('echo after-$?.\n')
  await terminal.shows(/after-4\./)
  t.pass()
})

test('a deadline holds for a stopped job', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF --timeout 3s --grace 100ms -- sh -c 'setsid sleep 60 & echo ready-1.; read x'\n`)
  await terminal.shows(/ready-1\./)
  await until(() => named(terminal.mark, 'sleep').length === 1, 'the brood')
  terminal.type('\x1a')
  await terminal.shows(/Stopped/)
  await until(() => named(terminal.mark, 'sleep').length === 0, 'the end by the deadline')
  terminal.type('fg; echo status-$?.\n')
  await terminal.shows(/status-124\./)
  t.deepEqual(named(terminal.mark, 'holdfast-helper'), [])
})

test('pipelines in a terminal: neighbours keep the terminal, and live on', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF -- printf '2 two\\n1 one\\n' | $HF -- sort | (cat; read x </dev/tty; echo typed-$x.)\n`)
  await terminal.shows(/1 one\s+2 two/)
  terminal.type('abc\n')
  await terminal.shows(/typed-abc\./)
  // The contained command asks the terminal itself.
  terminal.type(`echo piped | $HF -- sh -c 'read a; read b </dev/tty; echo "$a-$b."'\n`)
  terminal.type('def\n')
  await terminal.shows(/piped-def\./)
  // Ending a call signals no group: the neighbour in it goes on until its own end.
  terminal.type(`$HF --timeout 200ms --grace 0 -- sleep 60 | (cat; echo neighbour-$((1 + 2)).)\n`)
  await terminal.shows(/neighbour-3\./)
  terminal.type('$HF -- yes | head -n 1; set -- "$PIPESTATUS"; echo status-$1.\n')
  await terminal.shows(/y\s+status-141\./)
  t.pass()
})

// The shell here is not interactive: a line editor would put the modes back by itself.
const modes = (line, looks = 200) => `before=$(stty -g); ${line}; status=$?; n=0
  while [ "$(stty -g)" != "$before" ] && [ $n -lt ${looks} ]; do n=$((n + 1)); sleep 0.05; done
  if [ "$(stty -g)" = "$before" ]; then echo modes-same-$status.; else echo modes-other-$status.; fi; stty "$before"`
const RAW = `stty raw -echo; stty -a | grep -q -- "-icanon" && echo raw-now.`

test('the measuring instrument: without holdfast the modes stay changed', async (t) => {
  const terminal = openTerminal(modes(`sh -c '${RAW}; kill -KILL $$'`, 5))
  t.truthy(await terminal.shows(/modes-other-137\./))
})

for (const [how, options, ending, status] of [
  ['SIGKILL of the command', '', 'kill -KILL $$', 137],
  ['its exit', '', 'exit 3', 3],
  ['its deadline', '--timeout 300ms --grace 0', 'sleep 60', 124],
  ['SIGKILL of the resident process', '--grace 0', 'kill -KILL $PPID_OF_KEEPER; sleep 60', 137],
  ['SIGKILL of the keeper', '', 'kill -KILL $PPID; sleep 60', 125],
]) {
  test(`terminal modes are as before after ${how} (C33)`, async (t) => {
    const parent = 'PPID_OF_KEEPER=$(cut -d" " -f4 /proc/$PPID/stat)'
    const terminal = openTerminal(modes(`$HF ${options} -- sh -c '${parent}; ${RAW}; ${ending}'`), env)
    await terminal.shows(/raw-now\./)
    t.truthy(await terminal.shows(new RegExp(`modes-same-${status}\\.`), 20_000))
    await terminal.exited
    t.deepEqual(named(terminal.mark, 'holdfast-helper'), [])
  })
}

// ---- the terminal goes
const SIGNALS = fixture('signals.py')
let files = 0
/** A file that fixtures/signals.py writes its answers to; the answers. */
function answersOf() {
  const file = join(folder, `answers-${++files}`)
  return { file, answers: () => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : []) }
}

test('the leader of a session is hung up: the command gets SIGHUP once, and everything ends (C81)', async (t) => {
  const { file, answers } = answersOf()
  const terminal = openTerminal(`exec $HF --grace 300ms -- ${PYTHON} ${SIGNALS} ${file} stay`, env)
  await terminal.shows(/ready-\d+\./)
  terminal.close()
  await noneMarked(terminal.mark)
  // SIGCONT follows the first signal of the ladder. Of its end by SIGKILL nothing is written.
  t.deepEqual(answers(), ['got-SIGHUP.', 'got-SIGCONT.'])
})

test('the leader of a session is hung up: a command without an answer, and what it left (C81)', async (t) => {
  const script = `sh -c "trap '' HUP; echo deaf-1.; exec sleep 60" & setsid sleep 60 & (sleep 60 &) & echo ready-1.; sleep 60; true`
  const terminal = openTerminal(`exec $HF -- sh -c '${script.replaceAll("'", "'\\''")}'`, env)
  await terminal.shows(/ready-1\./)
  await until(() => named(terminal.mark, 'sleep').length === 4, 'the brood')
  const resident = await residentOf(terminal.mark)
  t.is(stat(resident).session, resident)
  terminal.close()
  await noneMarked(terminal.mark)
})

test('the shell is killed: the command has had SIGHUP from the kernel, once, and is ended if it stays (C81)', async (t) => {
  const { file, answers } = answersOf()
  const aside = answersOf()
  const terminal = await openShell({ ...env, SIGNALS, FILE: file, ASIDE: aside.file })
  const script = 'setsid "$PYTHON" "$SIGNALS" "$ASIDE" stay & exec "$PYTHON" "$SIGNALS" "$FILE" stay'
  terminal.type(`echo shell-$$.; $HF --grace 300ms -- sh -c '${script}'\n`)
  const [, shell] = await terminal.shows(/shell-(\d+)\./)
  await terminal.shows(/ready-\d+\./)
  await terminal.shows(/ready-\d+\./)
  process.kill(Number(shell), 'SIGKILL')
  await noneMarked(terminal.mark)
  t.deepEqual(answers(), ['got-SIGHUP.', 'got-SIGCONT.'])
  t.deepEqual(aside.answers(), ['got-SIGHUP.', 'got-SIGCONT.'])
})

test('the shell of a stopped job is killed: the job is hung up, as without holdfast (C81)', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`echo shell-$$.; $HF -- sh -c 'echo ready-1.; sleep 60; true'\n`)
  const [, shell] = await terminal.shows(/shell-(\d+)\./)
  await terminal.shows(/ready-1\./)
  // Before the sleep is executed its shell waits in vfork(2), and does not stop.
  await until(() => named(terminal.mark, 'sleep').length === 1, 'the sleep')
  terminal.type('\x1a')
  await terminal.shows(/Stopped/)
  process.kill(Number(shell), 'SIGKILL')
  await noneMarked(terminal.mark)
  t.pass()
})

test('it outlives its terminal in a session of its own (C81)', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`setsid -f $HF -- sh -c 'echo ready-1.; exec sleep 60'; echo shell-$$.\n`)
  await terminal.shows(/ready-1\./)
  await until(() => named(terminal.mark, 'sleep').length === 1, 'the command')
  const resident = await residentOf(terminal.mark)
  terminal.close()
  await until(() => named(terminal.mark, 'bash').length === 0, 'the end of the shell')
  t.is(named(terminal.mark, 'sleep').length, 1)
  process.kill(resident, 'SIGTERM')
  await noneMarked(terminal.mark)
})

// ---- what the terminal sends
test('the leader of a session: ^Z does not stop it for ever (C81)', async (t) => {
  const terminal = openTerminal(`exec $HF -- sh -c 'echo ready-$$.; read x; echo got-$x.'`, env)
  const [, command] = await terminal.shows(/ready-(\d+)\./)
  terminal.type('\x1a')
  terminal.type('abc\n')
  await terminal.shows(/got-abc\./)
  await terminal.exited
  t.false(isAlive(Number(command)))
})

test('a new size, ^Z and fg reach the command once; so does what is sent to the pid of the resident process (C33)', async (t) => {
  const { file, answers } = answersOf()
  const terminal = await openShell({ ...env, SIGNALS, FILE: file })
  terminal.type('$HF -- "$PYTHON" "$SIGNALS" "$FILE"; echo status-$?.\n')
  const [, command] = await terminal.shows(/ready-(\d+)\./)
  const resident = await residentOf(terminal.mark)
  const tty = `/proc/${command}/fd/0`
  const expected = []
  const answered = async (...names) => {
    expected.push(...names.map((name) => `got-${name}.`))
    await until(() => answers().length >= expected.length, `${expected}: ${answers()}`)
    t.deepEqual(answers(), expected)
  }
  t.is(spawnSync('stty', ['-F', tty, 'rows', '41']).status, 0)
  await answered('SIGWINCH')
  // Until it has read its own copy of that, a second one is the same signal, sent by the terminal.
  const hasPending = () => !/^ShdPnd:\s*0+$/m.test(readFileSync(`/proc/${resident}/status`, 'utf8'))
  await until(() => !hasPending(), 'its own copy')
  process.kill(resident, 'SIGWINCH')
  await answered('SIGWINCH')
  process.kill(resident, 'SIGUSR1')
  await answered('SIGUSR1')
  // It answers ^Z and goes on.
  terminal.type('\x1a')
  await answered('SIGTSTP')
  // And is stopped all the same, and the whole job with it.
  process.kill(Number(command), 'SIGSTOP')
  await terminal.shows(/Stopped/)
  terminal.type('fg\n')
  await answered('SIGCONT')
  await until(() => foreground(command) === stat(command).pgrp, 'the job in the foreground')
  terminal.type('\x03')
  await answered('SIGINT')
  terminal.type('x\n')
  await terminal.shows(/end-x\./)
})

test('SIGCONT to the pid of the resident process continues the command (C81)', async (t) => {
  const { file, answers } = answersOf()
  // Not as the only one: script(1) continues a child that was stopped.
  const terminal = openTerminal(`$HF -- ${PYTHON} ${SIGNALS} ${file}; true`, env)
  const [, command] = await terminal.shows(/ready-(\d+)\./)
  const resident = await residentOf(terminal.mark)
  process.kill(Number(command), 'SIGSTOP')
  await until(() => stat(resident).state === 'T', 'a stopped job')
  process.kill(resident, 'SIGCONT')
  await until(() => answers().length > 0, 'an answer')
  terminal.type('x\n')
  await terminal.shows(/end-x\./)
  t.deepEqual(answers(), ['got-SIGCONT.'])
})

for (const [what, command] of [
  ['has left for a session of its own', `setsid sh -c 'echo ready-1.; sleep 60; true'`],
  ['has exited and left something behind', `--background keep -- sh -c 'sleep 60 & echo ready-1.'`],
]) {
  test(`^C begins the end when the command ${what} (C81)`, async (t) => {
    const terminal = await openShell(env)
    terminal.type(`$HF ${command}\n`)
    await terminal.shows(/ready-1\./)
    await until(() => named(terminal.mark, 'sh').length + named(terminal.mark, 'sleep').length <= 2, 'what is left')
    await until(() => named(terminal.mark, 'sleep').length === 1, 'a sleep')
    terminal.type('\x03')
    await until(() => named(terminal.mark, 'sleep').length === 0, 'the end')
    await until(() => named(terminal.mark, 'holdfast-helper').length === 0, 'the end of holdfast')
    terminal.type('echo free-$((20 + 2)).\n')
    await terminal.shows(/free-22\./)
    t.pass()
  })
}

// ---- in a container
for (const [where, leads] of [
  ['1, as in a container', 'setsid --ctty'],
  ['outside of the pid namespace', ''],
]) {
  test(`a child of process 1, in a group with the number ${where}: the terminal is the command's (C81)`, async (t) => {
    if (!has(t, NO_NAMESPACE)) return
    // Process 1 is an interactive program's place: it must not die of the ^C itself.
    const first = `trap : INT; $HF -- "$COUNTS"; echo status-$?.`
    const unshare = NAMESPACE.slice(0, NAMESPACE.indexOf('sh')).join(' ')
    const terminal = openTerminal(`exec ${unshare} ${leads} sh -c '${first}'`, { ...env, COUNTS })
    await terminal.shows(/ready-\d+\./)
    for (const round of [1, 2, 3]) {
      terminal.type('\x03')
      await terminal.shows(new RegExp(`int-${round}\\.`))
    }
    terminal.type('x\n')
    await terminal.shows(/end-3-x\./)
    await terminal.shows(/status-0\./)
    t.is(terminal.screen().match(/int-/g).length, 3)
  })
}

test('as process 1, the leader of the terminal: ^C once, /dev/tty, and the hang-up ends everything (C81)', async (t) => {
  if (!has(t, NO_NAMESPACE)) return
  const { file, answers } = answersOf()
  const unshare = NAMESPACE.slice(0, NAMESPACE.indexOf('sh')).join(' ')
  const first = `exec setsid --ctty $HF --grace 300ms -- sh -c 'exec ${PYTHON} ${SIGNALS} ${file} stay </dev/tty'`
  const terminal = openTerminal(`exec ${unshare} sh -c "${first}"`, env)
  await terminal.shows(/ready-\d+\./)
  terminal.type('\x03')
  await until(() => answers().length === 1, 'an answer')
  terminal.close()
  await noneMarked(terminal.mark)
  t.deepEqual(answers(), ['got-SIGINT.', 'got-SIGHUP.', 'got-SIGCONT.'])
})

test('closing the terminal ends the command and what it started (C02)', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF -- sh -c 'setsid sleep 60 & (sleep 60 &) & echo ready-1.; sleep 60; true'\n`)
  await terminal.shows(/ready-1\./)
  await until(() => named(terminal.mark, 'sleep').length === 3, 'the brood')
  terminal.close()
  await noneMarked(terminal.mark)
  t.pass()
})

test('closing the terminal ends a background job, by SIGHUP from its shell', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF --grace 100ms -- sh -c 'trap "" HUP; setsid sleep 60 & echo ready-1.; sleep 60; true' &\n`)
  await terminal.shows(/ready-1\./)
  await until(() => named(terminal.mark, 'sleep').length === 2, 'the brood')
  terminal.close()
  await noneMarked(terminal.mark)
  t.pass()
})

test('in the background it may print, and an attempt to read stops the job, as without holdfast', async (t) => {
  const terminal = await openShell(env)
  terminal.type(`$HF -- sh -c 'echo printed-1.; read x; echo got-$x.' &\n`)
  await terminal.shows(/printed-1\./)
  const resident = await residentOf(terminal.mark)
  await until(() => stat(resident).state === 'T', 'a stopped job')
  terminal.type('fg\n')
  terminal.type('abc\n')
  await terminal.shows(/got-abc\./)
  t.pass()
})
