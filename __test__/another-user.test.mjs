// Set-uid programs where the host is not root: they are asked to end before SIGKILL, so that they end what they have
// started as somebody else, which no signal of ours reaches.
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DROP, setUid, hostOfAnother as startHostOfAnother, USER } from './support/another-user.mjs'
import { keeperOf, run as runOnCommandLine } from './support/command-line.mjs'
import { comm, gone, helpersOf, keepersOf, marked, noneMarked, stat, statusOf, until } from './support/facts.mjs'
import { compiled, programOf } from './support/fixtures.mjs'
import { HOLDFAST, startHost } from './support/host.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { mark, env } = suite(test)

/** Fixture passes-on: what it has started lives for 20 s, or for as long as a test waits for survivors. */
const LONG = 20_000
const SHORT = 3000
/** What an end may take at most, in ms: the budget of 5 s, and what a busy machine needs. */
const SOON = 10_000

const TELL = `
  const tell = ({ outcome, reason, by, survivors, leftovers, proofTime }) => report({
    outcome, reason, by, survivors: survivors.map(({ name }) => name).sort(),
    leftovers: leftovers.map(({ name }) => name).sort(), proofTime,
  })
`
const hostOfAnother = (t, body, options) => startHostOfAnother(t, 'passes-on', TELL + body, { env, ...options })
const isShared = (pid) => comm(pid) === 'passes-on' && statusOf(pid, 'Uid')?.split(/\s+/)[0] === `${USER}`
const isRefusing = (pid) => comm(pid) === 'passes-on' && statusOf(pid, 'Uid')?.split(/\s+/)[0] === '0'

async function isEnded(t, host, expected) {
  const told = await host.next()
  t.like(told, { outcome: 'ended', survivors: [], ...expected })
  t.deepEqual(
    marked(mark).filter((pid) => comm(pid) !== 'node' && comm(pid) !== 'holdfast-helper'),
    [],
  )
  return told
}

// ---- every cause of an end, without any grace
/** Where the program is in the call. */
const PLACES = {
  'the first process': `exec "$0" first ${LONG}`,
  'in the group': `"$0" first ${LONG}; :`,
  'in the group, below a shell that is not the first': `bash -c '"$0" first ${LONG}; :' "$0"; :`,
  'in a session of its own': `setsid "$0" first ${LONG} & wait`,
  'in the group, among 50 others': `for i in $(seq 50); do sleep 30 & done; "$0" first ${LONG}; :`,
  'below one of 50 sessions': `for i in $(seq 50); do setsid sleep 30 & done; setsid bash -c '"$0" first ${LONG}; :' "$0"; :`,
}
for (const [place, script] of Object.entries(PLACES)) {
  test(`a set-uid program passes the first signal on, although there is no grace: end(), ${place}`, async (t) => {
    const host = hostOfAnother(t, `tell(await (await started(${JSON.stringify(script)})).end({ grace: 0 }))`)
    if (host !== undefined) await isEnded(t, host, { reason: 'end', by: 'keeper' })
  })

  test(`a set-uid program passes the first signal on, although its keeper is killed: ${place}`, async (t) => {
    const host = hostOfAnother(
      t,
      `const child = await started(${JSON.stringify(script)})
       report(child.pid)
       tell(await child.ended)`,
    )
    if (host === undefined) return
    process.kill(stat(await host.next()).ppid, 'SIGKILL')
    await isEnded(t, host, { reason: 'keeper-gone', by: 'helper' })
  })
}

test('a set-uid program passes the first signal on, although there is no grace: the command exits', async (t) => {
  const host = hostOfAnother(
    t,
    `const child = spawn('bash', ['-c', '{ "$0" first ${LONG} 2>&1 & } | { read -r up; exit 7; }', program], {
       stdio: 'ignore', backgroundGrace: 0,
     })
     const exited = once(child, 'exit')
     tell(await child.ended)
     report((await exited)[0])`,
  )
  if (host === undefined) return
  const { leftovers } = await isEnded(t, host, { reason: 'exit', by: 'keeper' })
  t.true(leftovers.includes('passes-on'), `${leftovers}`)
  t.is(await host.next(), 7)
})

test('a set-uid program passes the first signal on, although there is no grace: a timeout', async (t) => {
  const host = hostOfAnother(
    t,
    `const child = await started('"$0" first ${LONG}; :', { timeout: 1000, grace: 0 })
     tell(await child.ended)`,
  )
  if (host !== undefined) await isEnded(t, host, { reason: 'timeout', by: 'keeper' })
})

test('a set-uid program passes the first signal on, although there is no grace: an abort, with SIGKILL as the first signal', async (t) => {
  const host = hostOfAnother(
    t,
    `const controller = new AbortController()
     const { signal } = controller
     const child = await started('"$0" first ${LONG}; :', { signal, killSignal: 'SIGKILL' })
     child.on('error', () => {})
     controller.abort()
     tell(await child.ended)`,
  )
  if (host !== undefined) await isEnded(t, host, { reason: 'abort', by: 'keeper' })
})

test('a set-uid program passes the first signal on, although there is no grace: the host is killed', async (t) => {
  const host = hostOfAnother(
    t,
    `await started('setsid "$0" first ${LONG} & "$0" first ${LONG}; :', { grace: 0 })
     report()
     setInterval(() => {}, 1000)`,
  )
  if (host === undefined) return
  await host.next()
  await until(() => marked(mark).filter(isRefusing).length === 2, 'two that refuse')
  const [helper] = helpersOf(host.pid)
  const family = [helper, ...keepersOf(helper)]
  host.kill()
  await noneMarked(mark, SOON)
  await gone(family, SOON)
  t.pass()
})

// ---- what it is, and what it is not
test('the others are killed at once: whoever was asked does not wait for them', async (t) => {
  // The set-uid program's input ends with the sleep.
  const host = hostOfAnother(
    t,
    `const child = await started('(trap "" TERM; exec sleep 30) | "$0" end ${LONG}; :')
     tell(await child.end({ grace: 0 }))`,
  )
  if (host === undefined) return
  const { leftovers } = await isEnded(t, host, { reason: 'end' })
  // The sleep, and two of the program.
  t.is(leftovers.length, 3, `${leftovers}`)
})

for (const when of ['never', 'deaf']) {
  test(`what is not told of the end survives, and is named as before: ${when}`, async (t) => {
    const host = hostOfAnother(
      t,
      `const child = await started('sleep 30 & setsid "$0" ${when} ${SHORT} & wait')
       tell(await child.end({ grace: 0 }))
       process.stdin.resume()`,
    )
    if (host === undefined) return
    const { proofTime, ...told } = await host.next()
    t.like(told, { outcome: 'survivors', by: 'keeper', survivors: ['passes-on'] })
    t.true(told.leftovers.includes('passes-on') && told.leftovers.length === 2, `${told.leftovers}`)
    // A moment for whoever was asked, and one for what refuses.
    t.true(proofTime < 5000, `${proofTime}`)
    t.deepEqual(marked(mark).filter(isShared), [])
    host.kill()
    await noneMarked(mark)
  })
}

/** A file for the program to note each SIGTERM in. */
function notes(t) {
  const file = join(folder(t), 'asked')
  writeFileSync(file, '')
  chmodSync(join(file, '..'), 0o755)
  chmodSync(file, 0o666)
  return { file, count: () => readFileSync(file, 'utf8').split('\n').length - 1 }
}

test('after a ladder with a grace the moment is not repeated, nor the signal', async (t) => {
  const { file, count } = notes(t)
  const script = `"$0" second ${SHORT} ${file}; :`
  const host = hostOfAnother(
    t,
    `tell(await (await started(${JSON.stringify(script)})).end({ grace: 700 }))
     process.stdin.resume()`,
  )
  if (host === undefined) return
  const { proofTime, ...told } = await host.next()
  t.like(told, { outcome: 'survivors', survivors: ['passes-on'] })
  t.is(count(), 1)
  t.true(proofTime < 5000, `${proofTime}`)
  host.kill()
  await noneMarked(mark)
})

test('a shorter grace is made up to that moment, without a second signal', async (t) => {
  const { file, count } = notes(t)
  const script = `{ trap "" TERM; sleep 30; } | "$0" end ${LONG} ${file}; :`
  const host = hostOfAnother(t, `tell(await (await started(${JSON.stringify(script)})).end({ grace: 50 }))`)
  if (host === undefined) return
  await isEnded(t, host, { reason: 'end' })
  t.is(count(), 1)
})

test('who was left to a process above it has not been asked yet when the grace is shortened', async (t) => {
  const { file, count } = notes(t)
  // The shell handles the signal, and passes nothing on.
  const script = `trap : TERM; "$0" first ${LONG} ${file}; :`
  const host = hostOfAnother(
    t,
    `const child = await started(${JSON.stringify(script)})
     const ended = child.end({ grace: 60_000 })
     child.end({ grace: 0 })
     tell(await ended)`,
  )
  if (host === undefined) return
  await isEnded(t, host, { reason: 'end' })
  t.is(count(), 1)
})

test('who has no other identity is not asked', async (t) => {
  const program = setUid(t, 'passes-on', USER)
  if (program === undefined) return
  const { file, count } = notes(t)
  const script = `${program} first ${LONG} ${file}; :`
  const host = hostOfAnother(t, `tell(await (await started(${JSON.stringify(script)})).end({ grace: 0 }))`)
  if (host === undefined) return
  await isEnded(t, host, { reason: 'end' })
  t.is(count(), 0)
})

test('nobody is asked by a host that may signal everybody', async (t) => {
  const program = setUid(t, 'passes-on', USER)
  if (program === undefined) return
  const { file, count } = notes(t)
  const script = `${program} first ${LONG} ${file} & wait`
  const host = startHost(
    `${TELL}
     const child = spawn('bash', ['-c', ${JSON.stringify(script)}], { stdio: ['pipe', 'ignore', 'pipe'] })
     await require('node:events').once(child.stderr, 'data')
     tell(await child.end({ grace: 0 }))`,
    { env },
  )
  t.teardown(() => host.kill())
  await isEnded(t, host, { reason: 'end' })
  t.is(count(), 0)
})

// ---- where the system tells less
const inMounts = (script) => [
  'unshare',
  '--mount',
  '--propagation',
  'private',
  'sh',
  '-c',
  `set -e; ${script}; exec "$0" "$@"`,
]
const HIDDEN = inMounts('mount -t proc -o hidepid=2 proc /proc')
const canUnshare = spawnSync('unshare', ['--mount', '--propagation', 'private', 'true']).status === 0
/** The command that starts Node.js so. `undefined`: skipped. */
function surroundings(t, rules, mounts = []) {
  if (!has(t, mounts.length === 0 || canUnshare ? '' : 'no mount namespace can be made here')) return undefined
  const filter = rules.length > 0 ? compiled(t, 'filter') : ''
  if (filter === undefined) return undefined
  const filters = rules.length > 0 ? [filter, 'by-root', ...rules, '--'] : []
  return [...mounts, ...filters, process.execPath]
}

const WITHOUT = {
  'a kernel that tells no ids': [['no-pidfd-info']],
  'no pidfds': [['no-pidfd']],
  'hidepid=2': [[], HIDDEN],
  'hidepid=2, and a kernel that tells no ids': [['no-pidfd-info'], HIDDEN],
  'no subreaper': [['no-subreaper']],
  'no subreaper, and a kernel that tells no ids': [['no-subreaper', 'no-pidfd-info']],
}
for (const [name, [rules, mounts]] of Object.entries(WITHOUT)) {
  for (const many of [false, true]) {
    const among = many ? ', among 50 others' : ''
    test(`a set-uid program passes the first signal on: ${name}${among}`, async (t) => {
      const command = surroundings(t, rules, mounts)
      if (command === undefined) return
      const others = many ? 'for i in $(seq 50); do sleep 30 & done; ' : ''
      const script = `${others}bash -c '"$0" first ${LONG}; :' "$0"; :`
      const body = `tell(await (await started(${JSON.stringify(script)})).end({ grace: 0 }))`
      const host = hostOfAnother(t, body, { command })
      if (host !== undefined) await isEnded(t, host, { reason: 'end', by: 'keeper' })
    })
  }
}

// ---- in a storm
const NAMESPACE = ['unshare', '--pid', '--mount', '--fork', '--mount-proc', '--kill-child']
/** A user that nothing else runs as: RLIMIT_NPROC counts all of a user's processes. */
const STORMY = 61235

for (const form of ['group', 'sessions']) {
  test(`a storm of 300 is ended, and so is what a set-uid program in its group has started: ${form}`, async (t) => {
    const program = setUid(t, 'passes-on')
    const storm = program && compiled(t, 'storm')
    if (storm === undefined) return
    const { status, stderr } = spawnSync(NAMESPACE[0], [...NAMESPACE.slice(1), 'true'], { encoding: 'utf8' })
    if (!has(t, status === 0 ? '' : `no pid namespace can be made here: ${stderr.trim()}`)) return
    // The shell stays, so that it is end() that ends a storm whose parents leave.
    const script = `${program} first ${LONG} 2>&1 & read -r _; prlimit --nproc=300 ${storm} ${form}; read -r _`
    const host = startHost(TELL + programOf('another-user/end-storm', { user: STORMY, script }), {
      command: [...NAMESPACE, 'sh', '-c', '"$0" "$@"; exit $?', process.execPath],
      env,
    })
    t.teardown(() => host.kill())
    const told = await host.next()
    t.log(`${told.proofTime.toFixed(0)} ms to the proof`)
    t.like(told, { outcome: 'ended', reason: 'end', survivors: [] })
    t.deepEqual(await host.next(), [])
  })
}

// ---- guard(), sessions, the command line
for (const hold of ['a group of its own', 'a session of its own']) {
  test(`guard(): a set-uid program passes the first signal on, in ${hold}`, async (t) => {
    const script = `${hold === 'a session of its own' ? 'setsid ' : ''}"$0" first ${LONG} & sleep 30`
    const host = hostOfAnother(
      t,
      `const child = require('node:child_process').spawn('bash', ['-c', ${JSON.stringify(script)}, program], {
         stdio: ['ignore', 'ignore', 'pipe'], detached: true,
       })
       const group = await holdfast.guard(child)
       await once(child.stderr, 'data')
       tell(await group.end({ grace: 0 }))`,
    )
    if (host !== undefined) await isEnded(t, host, { reason: 'end', by: 'guard' })
  })
}

test('guard(): a set-uid program passes the first signal on when the host is killed', async (t) => {
  const host = hostOfAnother(
    t,
    `const child = require('node:child_process').spawn('bash', ['-c', '"$0" first ${LONG} & sleep 30', program], {
       stdio: ['ignore', 'ignore', 'pipe'], detached: true,
     })
     await holdfast.guard(child)
     await once(child.stderr, 'data')
     report()
     setInterval(() => {}, 1000)`,
  )
  if (host === undefined) return
  await host.next()
  host.kill()
  await noneMarked(mark, SOON)
  t.pass()
})

for (const end of ['session.end({ grace: 0 })', 'session.end({ grace: 50 })']) {
  test(`a set-uid program below an Engine passes the first signal on: ${end}`, async (t) => {
    const host = hostOfAnother(
      t,
      `const { startSession } = require(${JSON.stringify(HOLDFAST.replace('index.js', 'session.js'))})
       const session = await startSession('bash', ['-c', 'setsid "$0" first ${LONG} & trap "" TERM; wait', program])
       await once(session.stderr, 'data')
       tell(await ${end})`,
    )
    if (host !== undefined) await isEnded(t, host, { reason: 'end', by: 'keeper' })
  })
}

/** The same on the command line, by that user. */
async function commandLine(t, args = []) {
  const program = setUid(t, 'passes-on')
  if (program === undefined) return undefined
  const user = ['setpriv', '--reuid', `${USER}`, '--regid', `${USER}`, '--clear-groups']
  const script = `sleep 30 & "$0" first ${LONG}; :`
  const command = [...user, process.execPath, join(HOLDFAST, '..', 'cli.js')]
  const running = runOnCommandLine([...args, '--', 'bash', '-c', script, program], { command, cwd: '/' })
  await until(() => running.err().includes('up'), 'the program')
  return running
}

test('holdfast run: a set-uid program passes the first signal on when the keeper is killed', async (t) => {
  const running = await commandLine(t)
  if (running === undefined) return
  process.kill(await keeperOf(running.child.pid), 'SIGKILL')
  t.deepEqual(await running.exited, { code: 125, signal: null })
  t.true(running.err().includes('everything that the command started was ended'), running.err())
  t.deepEqual(marked(running.mark), [])
})

test('holdfast run: a set-uid program passes the first signal on when the runner is killed', async (t) => {
  const running = await commandLine(t, ['--grace', '0'])
  if (running === undefined) return
  running.child.kill('SIGKILL')
  await noneMarked(running.mark, SOON)
  t.pass()
})

// ---- the real one
const SUDOERS = `Defaults !requiretty\n#${USER} ALL=(ALL) NOPASSWD: ALL\n`
const SUDO = ['/usr/bin/sudo', '/bin/sudo'].find(existsSync)

test('sudo: in the background of a command that exits, in its group and in a session of its own', async (t) => {
  if (!has(t, SUDO === undefined ? 'there is no sudo' : '')) return
  if (!has(t, canUnshare ? '' : 'no mount namespace can be made here')) return
  const sudoers = join(folder(t), 'sudoers')
  writeFileSync(sudoers, SUDOERS, { mode: 0o440 })
  // Its settings in a mount namespace: nothing of this system is changed.
  const command = [...inMounts(`mount --bind ${sudoers} /etc/sudoers`), process.execPath]
  const works = [
    ...command.slice(0, -1),
    'setpriv',
    '--reuid',
    `${USER}`,
    '--regid',
    `${USER}`,
    '--clear-groups',
    SUDO,
    '-n',
    'true',
  ]
  const { status, stderr } = spawnSync(works[0], works.slice(1), { encoding: 'utf8' })
  if (!has(t, status === 0 ? '' : `sudo does not work here: ${stderr.trim()}`)) return
  const host = startHost(`${DROP}${TELL}${programOf('another-user/sudo')}`, { command, env })
  t.teardown(() => host.kill())
  for (const reason of ['exit', 'end', 'exit', 'end']) {
    const told = await host.next()
    t.like(told, { outcome: 'ended', reason, by: 'keeper', survivors: [] })
    t.true(told.leftovers.includes('sudo'), `${told.leftovers}`)
  }
})
