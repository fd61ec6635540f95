// Hosts in unusual surroundings: no PATH, hidden processes, other users, limits, signals ignored or blocked, native code.
// The calls come to the same, and the command sees what it would under child_process.
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { run, spawn } from '../dist/index.js'
import {
  childrenOf,
  comm,
  descriptors,
  gone,
  helpersOf,
  isAlive,
  keepersOf,
  marked,
  newMark,
  noneMarked,
  stat,
  statusOf,
  until,
} from './support/facts.mjs'
import { compiled, loadNative, programOf, SHARED } from './support/fixtures.mjs'
import { folder, has, killMarked, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env, host } = suite(test)

/** Another user than root. */
const USER = 54321
const AS_USER = ['setpriv', '--reuid', `${USER}`, '--regid', `${USER}`, '--clear-groups']

const canUnshare = spawnSync('unshare', ['--mount', '--propagation', 'private', 'true']).status === 0
const isRoot = process.getuid() === 0
const canSetUser = isRoot && spawnSync(AS_USER[0], [...AS_USER.slice(1), 'true']).status === 0

/** For a test that needs what `probed` says is there; the reason is in the log otherwise. */
const needs = (t, probed, reason) => has(t, probed ? '' : reason)

// ---- the same results, whatever the surroundings
/** A bit of everything, with no name to be looked up but by its path; what may differ from run to run is left out. */
const WORKLOAD = programOf('environment/workload')

let expectation
/** What the workload comes to in a host of the ordinary kind. */
async function expected(t) {
  expectation ??= host(t, WORKLOAD).next()
  const results = await expectation
  // So that a workload that fails everywhere in the same way is no success.
  t.like(results[0], { exitCode: 0, stdout: 'done\n', outcome: 'ended', mechanism: 'subreaper', count: 2 })
  t.deepEqual(results[0].names, ['sleep', 'sleep'])
  t.like(results[1], { signal: 'SIGKILL', timedOut: true, reason: 'timeout', outcome: 'ended', stderr: 'deaf\n' })
  t.like(results[2], { exitCode: 7, ok: false })
  t.like(results[3], { exitCode: null, signal: 'SIGUSR1' })
  t.like(results[4], { stdout: 'through' })
  t.deepEqual(results[5].slice(0, 3), ['ENOENT', 'program', -2])
  t.deepEqual(results[6], ['ended', 'end', 'SIGTERM'])
  return results
}

/** A command that runs `script`, with the host's program and arguments behind it. */
const shim = (script) => ['sh', '-c', `${script}; exec "$@"`, 'sh']
const inMounts = (script) => ['unshare', '--mount', '--propagation', 'private', ...shim(`set -e; ${script}`)]
const NO_MOUNTS = 'no mount namespace can be made here'
const NO_USER = 'not root, so that no other user can be taken on'

test('PATH empty (C50)', async (t) => {
  const program = host(t, `if (process.env.PATH !== '') throw new Error('PATH');${WORKLOAD}`, { env: { PATH: '' } })
  t.deepEqual(await program.next(), await expected(t))
})

test('no `ps` in PATH, nor anything else but Node (C50)', async (t) => {
  const bin = join(folder(t), 'bin')
  mkdirSync(bin)
  symlinkSync(process.execPath, join(bin, 'node'))
  const check = "if (require('node:child_process').spawnSync('ps').error?.code !== 'ENOENT') throw new Error('ps');"
  const program = host(t, check + WORKLOAD, { env: { PATH: bin } })
  t.deepEqual(await program.next(), await expected(t))
})

test('no `ps` anywhere that could be executed (C50)', async (t) => {
  if (!needs(t, canUnshare, NO_MOUNTS)) return
  const hide = 'for at in /bin/ps /usr/bin/ps; do [ ! -e $at ] || mount --bind /dev/null $at; done'
  const check = "if (!require('node:child_process').spawnSync('ps').error) throw new Error('ps');"
  const program = host(t, check + WORKLOAD, { command: [...inMounts(hide), process.execPath] })
  t.deepEqual(await program.next(), await expected(t))
})

test('a `ps` that always fails (C50)', async (t) => {
  if (!needs(t, canUnshare, NO_MOUNTS)) return
  const broken = 'for at in /bin/ps /usr/bin/ps; do [ ! -e $at ] || mount --bind /bin/false $at; done'
  const check = "if (require('node:child_process').spawnSync('ps').status !== 1) throw new Error('ps');"
  const program = host(t, check + WORKLOAD, { command: [...inMounts(broken), process.execPath] })
  t.deepEqual(await program.next(), await expected(t))
})

test('not root, and /proc with hidepid=2 (C50)', async (t) => {
  if (!needs(t, canUnshare && canSetUser, canUnshare ? NO_USER : NO_MOUNTS)) return
  // A new instance: a remount would reach the one that everybody sees.
  const command = [...inMounts('mount -t proc -o hidepid=2 proc /proc'), ...AS_USER, process.execPath]
  const check = `
    if (process.getuid() !== ${USER}) throw new Error('user')
    if (require('node:fs').existsSync('/proc/1')) throw new Error('hidepid')
  `
  const program = host(t, check + WORKLOAD, { command })
  t.deepEqual(await program.next(), await expected(t))
})

test('hidepid=2, and the host is killed (C50)', async (t) => {
  if (!needs(t, canUnshare && canSetUser, canUnshare ? NO_USER : NO_MOUNTS)) return
  const own = newMark()
  const command = [...inMounts('mount -t proc -o hidepid=2 proc /proc'), ...AS_USER, process.execPath]
  const program = host(
    t,
    `
    const child = spawn('bash', ['-c', 'setsid sleep 50 & sleep 50 & echo up; wait'])
    child.stdout.once('data', () => report(child.pid))
    await child.ended
    `,
    { command, env: { MARK: own } },
  )
  await program.next()
  await until(() => marked(own).length >= 4, 'host, shell and its children')
  program.kill()
  await noneMarked(own)
  t.pass()
})

// ---- C55
const SEEN =
  'grep -E "^(Umask|SigBlk|SigIgn|SigCgt|SigPnd|ShdPnd):" /proc/self/status; cut -d" " -f19 /proc/self/stat; ulimit -n; ulimit -c'

/** What a command sees under child_process and under holdfast, of one host. */
const COMPARE = `
  const plain = require('node:child_process').spawn
  const text = async (child) => { let text = ''; for await (const data of child.stdout) text += data; return text }
  const seen = async () => {
    const args = ['-c', ${JSON.stringify(SEEN)}]
    return [await text(plain('sh', args)), (await run('sh', args)).stdout]
  }
`
/** Of the host's main thread. */
const OWN = `const own = (name) => new RegExp(name + ':\\\\s*(.*)').exec(fs.readFileSync('/proc/thread-self/status', 'utf8'))[1];`

test('a host with a umask and a nice value from its start (C55)', async (t) => {
  const command = ['nice', '-n', '5', ...shim('umask 027'), process.execPath]
  const program = host(t, `${COMPARE} report(await seen()); ${WORKLOAD}`, { command })
  const [plain, contained] = await program.next()
  t.regex(plain, /Umask:\t0027\n/)
  t.regex(plain, /\n5\n\d+\n/)
  t.is(contained, plain)
  t.deepEqual(await program.next(), await expected(t))
})

test('a host that changes umask, nice value and working directory between its calls (C55)', async (t) => {
  const at = folder(t)
  const program = host(t, COMPARE + programOf('environment/changes', { at }))
  const before = await program.next()
  t.is(before[1], before[0])
  const after = await program.next()
  t.regex(after[0], /Umask:\t0077\n/)
  t.regex(after[0], /\n7\n\d+\n/)
  t.is(after[1], after[0])
  t.is(await program.next(), at)
  const last = await program.next()
  t.regex(last[0], /Umask:\t0002\n/)
  t.is(last[1], last[0])
})

test('a host that is not root and makes itself nicer (C55)', async (t) => {
  if (!needs(t, canSetUser, NO_USER)) return
  const body = `${COMPARE} report(await seen()); require('node:os').setPriority(4); report(await seen())`
  const program = host(t, body, { command: [...AS_USER, process.execPath] })
  await program.next()
  const [plain, contained] = await program.next()
  t.regex(plain, /\n4\n\d+\n/)
  t.is(contained, plain)
})

for (const name of ['ignore-sigchld', 'block-signals']) {
  const condition = {
    'ignore-sigchld': "(BigInt('0x' + own('SigIgn')) >> 16n) & 1n",
    'block-signals': "(BigInt('0x' + own('SigBlk')) >> 14n) & 1n",
  }[name]
  for (const when of ['before the first call', 'after the first call'])
    test(`native code in the host does ${name} ${when} (C55)`, async (t) => {
      const library = compiled(t, name, SHARED)
      if (library === undefined) return
      const program = host(
        t,
        `${COMPARE}${OWN}
        const condition = () => String(${condition})
        const workload = async () => {${WORKLOAD}}\n` +
          programOf('environment/native-code', { isAfter: when === 'after the first call', library, SEEN }),
      )
      t.is(await program.next(), '1')
      t.deepEqual(await program.next(), await expected(t))
      const contained = await program.next()
      t.regex(contained, /SigBlk:\t0+\nSigIgn:\t0+\n/)
      // The host is as it was: nobody has repaired its dispositions in passing.
      t.is(await program.next(), '1')
      t.is(contained, await program.next())
      t.deepEqual(await program.exited, { code: 0, signal: null })
    })
}

// ---- C56
const SIGNALS = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGPIPE', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU']

test('SIGTERM, SIGHUP, SIGINT and their like to helper and keepers: nothing happens (C56)', async (t) => {
  const own = newMark()
  const program = host(t, programOf('environment/two-calls'), { env: { MARK: own } })
  const commands = await program.next()
  const [helper] = helpersOf(program.pid)
  const busy = commands.map((pid) => stat(pid).ppid)
  const keepers = await until(
    () => keepersOf(helper).length > 2 && keepersOf(helper),
    'an idle keeper beside the busy ones',
  )
  for (const pid of busy) t.true(keepers.includes(pid))
  for (const pid of [helper, ...keepers]) {
    // They are alive: the host that holds them is ours and runs.
    for (const signal of SIGNALS) process.kill(pid, signal)
    // An ignored signal is dropped as it is sent; it would be pending, or have done its work, otherwise.
    const ignored = BigInt(`0x${statusOf(pid, 'SigIgn')}`)
    for (const number of [15, 1, 2, 3, 13, 20, 21, 22])
      t.is((ignored >> BigInt(number - 1)) & 1n, 1n, `signal ${number}`)
    t.true(isAlive(pid))
    t.not(stat(pid).state, 'T')
  }
  t.deepEqual(commands.filter(isAlive), commands)
  program.child.stdin.write('go\n')
  t.is(await program.next(), 'still there\n')
  t.deepEqual(await program.next(), Array(2).fill(['keeper', 'ended', 'end']))
  t.deepEqual(helpersOf(program.pid), [helper])
  program.child.stdin.write('go\n')
  t.deepEqual(await program.exited, { code: 0, signal: null })
  await gone([helper, ...keepers])
})

test('SIGSTOP to a keeper: the deadline still works (C56)', async (t) => {
  const program = host(
    t,
    `
    const child = spawn('sh', ['-c', 'echo up; setsid sleep 50 & sleep 50'], { timeout: 1000 })
    await new Promise((resolve) => child.stdout.once('data', resolve))
    report(child.pid)
    const { by, outcome, reason } = await child.ended
    report([by, outcome, reason])
    report((await run('echo', ['next'])).stdout)
    `,
  )
  const keeper = stat(await program.next()).ppid
  process.kill(keeper, 'SIGSTOP')
  t.deepEqual(await program.next(), ['keeper', 'ended', 'timeout'])
  t.is(await program.next(), 'next\n')
})

test('SIGSTOP to every keeper: host death still works (C56)', async (t) => {
  const own = newMark()
  const program = host(
    t,
    `
    const calls = [0, 1].map(() => spawn('sh', ['-c', 'echo up; setsid sleep 50 & exec sleep 50']))
    await Promise.all(calls.map(({ stdout }) => new Promise((resolve) => stdout.once('data', resolve))))
    report(calls.map(({ pid }) => pid))
    await Promise.all(calls.map(({ ended }) => ended))
    `,
    { env: { MARK: own } },
  )
  await program.next()
  const [helper] = helpersOf(program.pid)
  const keepers = keepersOf(helper)
  for (const pid of keepers) process.kill(pid, 'SIGSTOP')
  program.kill()
  await noneMarked(own)
  await gone([helper, ...keepers])
  t.pass()
})

test('a keeper that is stopped again and again is treated as dead, and its call is ended (C56)', async (t) => {
  const own = newMark()
  const program = host(t, programOf('environment/stopped-keeper'), { env: { MARK: own } })
  const keeper = stat(await program.next()).ppid
  const [helper] = helpersOf(program.pid)
  t.true(childrenOf(helper).includes(keeper))
  // Reaped only by the helper, so that the number stays the keeper's while it is the helper's child.
  await until(
    () => {
      for (let round = 0; round < 100 && stat(keeper)?.ppid === helper && isAlive(keeper); round++) {
        try {
          process.kill(keeper, 'SIGSTOP')
        } catch (error) {
          // Ended and reaped since we looked.
          if (error.code !== 'ESRCH') throw error
        }
      }
      return !isAlive(keeper)
    },
    'the end of the keeper',
    20_000,
  )
  t.deepEqual(await program.next(), ['helper', 'ended', 'keeper-gone', 0])
  t.is(await program.next(), 'next\n')
  t.deepEqual(marked(own), [program.pid])
  program.child.stdin.write('go\n')
  t.deepEqual(await program.exited, { code: 0, signal: null })
})

test('native code in the host forks without exec and lives on: host death is seen at once (C56)', async (t) => {
  const library = compiled(t, 'fork-and-stay', SHARED)
  if (library === undefined) return
  const own = newMark()
  const program = host(
    t,
    `
    await run('true')
    const child = spawn('sh', ['-c', 'echo up; setsid sleep 50 & exec sleep 50'])
    await new Promise((resolve) => child.stdout.once('data', resolve))
    ${loadNative(library)}
    report(Number(process.env.COPY))
    await child.ended
    `,
    { env: { MARK: own } },
  )
  const copy = await program.next()
  t.teardown(() => killMarked(copy, own))
  // It holds the call's control socket: the end of that one will not come.
  const sockets = (pid) => [...descriptors(pid).values()].filter((what) => what.startsWith('socket:'))
  const shared = sockets(program.pid)
  t.true(shared.length > 2)
  t.deepEqual(sockets(copy), shared)
  const before = marked(own)
  t.true(before.includes(copy) && before.length >= 4, `${before}`)
  program.kill()
  await until(() => marked(own).every((pid) => pid === copy), 'the end of all but the copy')
  t.true(isAlive(copy))
  killMarked(copy, own)
  await noneMarked(own)
})

// ---- C66
test('the command inherits no descriptor beyond those asked for (C66)', async (t) => {
  const places = ['ignore', 'pipe', 'pipe', 'ignore', 'pipe', 'ignore', 'pipe']
  const children = Array.from({ length: 8 }, () =>
    spawn('sh', ['-c', 'echo up; exec sleep 50'], { env, stdio: places }),
  )
  for (const child of children) await once(child.stdout, 'data')
  // While a program is loaded it has its libraries open.
  const isAsleep = ({ pid }) => comm(pid) === 'sleep' && stat(pid).state === 'S'
  await until(() => children.every(isAsleep), 'eight that sleep')
  for (const { pid } of children) {
    const held = descriptors(pid)
    // As in node:child_process, 'ignore' is /dev/null up to 2, and nothing beyond.
    t.deepEqual([...held.keys()].sort(), [0, 1, 2, 4, 6])
    t.is(held.get(0), '/dev/null')
    for (const place of [1, 2]) t.regex(held.get(place), /^pipe:/)
    for (const place of [4, 6]) t.regex(held.get(place), /^socket:/)
  }
  // Each has its own.
  const all = children.flatMap(({ pid }) => [...descriptors(pid).values()].filter((what) => what !== '/dev/null'))
  t.is(new Set(all).size, 8 * 4)
  await Promise.all(children.map((child) => child.end()))
})

test('nor one that native code of the host left open for everybody (C66)', async (t) => {
  const library = compiled(t, 'open-descriptor', SHARED)
  if (library === undefined) return
  const list = ['-c', 'for fd in /proc/$$/fd/*; do readlink $fd; done']
  const program = host(
    t,
    `
    ${loadNative(library)}
    const list = ${JSON.stringify(list)}
    report(require('node:child_process').spawnSync('bash', list, { encoding: 'utf8' }).stdout.includes('/dev/zero'))
    report([(await run('bash', list)).stdout, (await run('bash', list)).stdout])
    `,
  )
  // The proof that there is something to be inherited.
  t.true(await program.next())
  for (const text of await program.next()) t.notRegex(text, /zero/)
})

test('an empty signal mask and default dispositions, SIGPIPE included (C66)', async (t) => {
  const { stdout } = await run('cat', ['/proc/self/status'], { env })
  t.deepEqual(
    [...stdout.matchAll(/^Sig(\w+):\s*(\w+)$/gm)].filter(([, name]) => name !== 'Q').map(([, ...line]) => line),
    ['Pnd', 'Blk', 'Ign', 'Cgt'].map((name) => [name, '0'.repeat(16)]),
  )
  // What that means: a writer whose reader has left ends silently.
  const pipeline = await run('bash', ['-c', 'yes | head -1; echo "$PIPESTATUS"'], { env })
  t.like(pipeline, { stdout: 'y\n141\n', stderr: '' })
})

// ---- C67
const IDENTITY = 'grep -E "^(Uid|Gid|Groups|CapEff|CapPrm|Umask):" /proc/self/status'

test('a host that drops root runs later commands with the new identity, never the old (C67)', async (t) => {
  if (!needs(t, canSetUser, NO_USER)) return
  const own = newMark()
  const program = host(t, programOf('environment/identity', { IDENTITY, USER }), { env: { MARK: own } })
  const [plain, contained] = await program.next()
  t.regex(plain, /Uid:\t0\t0\t0\t0\n/)
  t.is(contained, plain)
  const after = await program.next()
  t.is(after.length, 20)
  for (const [plain, contained] of after) {
    t.true(plain.includes(`Uid:\t${[USER, USER, USER, USER].join('\t')}\n`), plain)
    t.regex(plain, /Groups:\t4242 \n/)
    t.regex(plain, /Umask:\t0077\n/)
    t.is(contained, plain)
  }
  t.deepEqual(await program.next(), [`${USER}\n`])
  // The call of before went on untouched, and was ended by who started it.
  t.deepEqual(await program.next(), [null, 'ended'])
  // The helper of before leaves when its last call has.
  const uids = () => helpersOf(program.pid).map((pid) => statusOf(pid, 'Uid')?.split('\t')[0])
  await until(() => uids().length === 1, 'one helper')
  t.deepEqual(uids(), [`${USER}`])
  program.child.stdin.write('go\n')
  t.deepEqual(await program.exited, { code: 0, signal: null })
  await noneMarked(own)
})

test('also where only the effective user, the group or one supplementary group changes (C67)', async (t) => {
  if (!needs(t, canSetUser, NO_USER)) return
  const program = host(t, programOf('environment/effective-identity', { USER }))
  const seen = []
  for (let step = 0; step < 5; step++) {
    const [plain, contained] = await program.next()
    t.is(contained, plain)
    seen.push(plain)
  }
  // Each step has really changed something; the last one back.
  t.is(new Set(seen).size, 4)
  t.is(seen[4], seen[2])
  t.regex(seen[1], /Groups:\t1 2 3/)
  t.true(seen[2].includes(`Gid:\t0\t${USER}`))
  t.true(seen[3].includes(`Uid:\t0\t${USER}`))
})

test('resetHelper(): the next call has a new helper, a running one is not touched (C67)', async (t) => {
  const program = host(t, programOf('environment/last'))
  const pid = await program.next()
  const [first] = helpersOf(program.pid)
  program.child.stdin.write('go\n')
  t.is(await program.next(), null)
  const both = helpersOf(program.pid)
  t.is(both.filter(isAlive).length, 2)
  t.true(both.includes(first) && isAlive(pid))
  program.child.stdin.write('go\n')
  t.is(await program.next(), 'keeper')
  // Reaped as well: it leaves no zombie in its host.
  await until(() => !helpersOf(program.pid).includes(first), 'the end of the first helper')
  t.is(helpersOf(program.pid).length, 1)
  program.child.stdin.write('go\n')
  t.deepEqual(await program.exited, { code: 0, signal: null })
  t.false(existsSync(`/proc/${pid}`))
})
