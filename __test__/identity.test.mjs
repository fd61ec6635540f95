// C78: a host that has given up root still holds sockets to helper and keepers of root. Plain JavaScript writes to them
// what the addon would: frames of crates/wire, made here byte by byte.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { argsOf, helpersOf, isAlive, keepersOf, newMark, noneMarked, until } from './support/facts.mjs'
import { compiled } from './support/fixtures.mjs'
import { HOLDFAST, startHost } from './support/host.mjs'
import { folder, has, suite } from './support/suite.mjs'

const { mark } = suite(test)

/** Another user than root. */
const USER = 54321
const CAN_SET_USER = process.getuid() === 0 && spawnSync('setpriv', ['--reuid', `${USER}`, 'true']).status === 0
const NO_USER = CAN_SET_USER ? '' : 'not root, so that no other user can be taken on'

const SPEC = 1
const NO_DESCRIPTOR = 255
const END = 3
const WANT = 32

function frame(kind, payload) {
  const header = Buffer.alloc(5)
  header.writeUInt32LE(payload.length + 1)
  header.writeUInt8(kind, 4)
  return Buffer.concat([header, payload])
}

/** Each pair is a width in bytes and a value. */
const integers = (...pairs) =>
  Buffer.concat(
    pairs.map(([width, value]) => {
      const bytes = Buffer.alloc(8)
      bytes.writeBigInt64LE(BigInt(value))
      return bytes.subarray(0, width)
    }),
  )

/** A command without descriptors, as `holdfast run` sends it: it starts where its keeper stands. (-p: a shell gives up an
 *  effective user that is not the real one otherwise.) */
function spec(script, env = '') {
  const strings = ['/bin/sh', '', `sh\0-p\0-c\0${script}`, `PATH=/usr/bin:/bin\0MARK=${mark}${env}`]
  const none = [1, 0]
  return frame(
    SPEC,
    Buffer.concat([
      integers([4, 0], none, [4, 0o22], [4, 0], [8, 1024], none, [4, 0], none, [4, 0], [8, 10_000]),
      integers([4, 15], [8, 0], none, [8, 0], [8, 0], none, none, none, [1, NO_DESCRIPTOR], [4, 0]),
      ...strings.map((string) => Buffer.concat([integers([4, string.length + 1]), Buffer.from(`${string}\0`)])),
    ]),
  )
}

const want = (count) => frame(WANT, integers([4, count]))
const end = () => frame(END, integers([4, 9], [8, 0]))

const HELPERS = `
  const fs = require('node:fs')
  const link = (fd) => { try { return fs.readlinkSync('/proc/self/fd/' + fd) } catch { return '' } }
  const sockets = () => fs.readdirSync('/proc/self/fd').map(Number).filter((fd) => fd > 2 && link(fd).startsWith('socket:'))
  const write = (fd, bytes) => { try { return fs.writeSync(fd, bytes) } catch (error) { return error.code } }
  const inherited = () => sockets().map((fd) => write(fd, Buffer.from(attack, 'base64')))
  const order = () => new Promise((resolve) => process.stdin.once('data', resolve))
  const start = async (script) => {
    const child = spawn('sh', ['-c', 'echo up; ' + script])
    await new Promise((resolve) => child.stdout.once('data', resolve))
    return child
  }
  /** Until nothing of the call is left, with a loop that does not turn. */
  const block = (pid) => {
    const cell = new Int32Array(new SharedArrayBuffer(4))
    while (fs.existsSync('/proc/' + pid)) Atomics.wait(cell, 0, 0, 1)
  }
  const drop = () => { process.setgroups([]); process.setgid(${USER}); process.setuid(${USER}) }
`

function host(t, body, { attack = Buffer.alloc(0), own = mark, ...options } = {}) {
  const text = `const attack = '${attack.toString('base64')}';${HELPERS}${body}`
  const started = startHost(text, { ...options, env: { MARK: own } })
  t.teardown(() => started.kill())
  return started
}

const spawnHelpersOf = (pid) => helpersOf(pid).filter((helper) => argsOf(helper)[1] === '__spawn-helper')

/** In a folder that root alone can write to: what ran, by its user. */
function marker(t) {
  const path = join(folder(t), 'ran')
  return {
    script: `id -u >> ${path}`,
    path,
    text: () => (existsSync(path) ? readFileSync(path, 'utf8') : ''),
  }
}

/** A process of a set-user-ID program: its real user is not root, and its effective one is. */
const SET_USER_ID = [
  'python3',
  '-c',
  `import os, sys; os.setresgid(${USER}, 0, 0); os.setresuid(${USER}, 0, 0); os.execv(sys.argv[1], sys.argv[1:])`,
  process.execPath,
]

const drops = {
  'groups, group and user': { drop: 'drop()' },
  'the user alone': { drop: `process.setuid(${USER})` },
  'the group alone': { drop: `process.setgid(${USER})` },
  'what a set-user-ID program had': { drop: 'drop()', command: SET_USER_ID },
}

test('C78 the measuring instrument: what a host writes that has given up nothing is started', async (t) => {
  const ran = marker(t)
  const program = host(t, "await run('true'); report(inherited())", { attack: spec(ran.script) })
  t.true((await program.next()).includes(spec(ran.script).length))
  await until(() => ran.text() !== '', 'a command that was started by a frame')
  t.is(new Set(ran.text().split('\n').filter(Boolean)).size, 1)
  t.true(ran.text().startsWith(`${process.getuid()}\n`))
})

for (const [what, { drop, command }] of Object.entries(drops)) {
  test(`C78 a host gives up ${what}: what it writes to idle keepers starts nothing`, async (t) => {
    if (!has(t, NO_USER)) return
    const ran = marker(t)
    const program = host(
      t,
      `
      report((await run('id', ['-u'])).stdout)
      await order()
      ${drop}
      report(inherited())
      await order()
      report((await run('id', ['-u'])).stdout)
      `,
      { command, attack: spec(ran.script) },
    )
    t.is(await program.next(), '0\n')
    const [helper] = spawnHelpersOf(program.pid)
    const keepers = keepersOf(helper)
    t.true(keepers.length > 0)
    program.child.stdin.write('go\n')
    const written = await program.next()
    t.true(written.includes(spec(ran.script).length), `${written}`)
    await until(() => ran.text() !== '' || !keepers.some(isAlive), 'the end of every keeper that was written to')
    t.is(ran.text(), '')
    // The helper leaves with its keepers, and forks no more.
    await until(() => !isAlive(helper), 'the end of the helper')
    program.child.stdin.write('go\n')
    t.is(await program.next(), drop.includes('setgid') && !drop.includes('setuid') ? '0\n' : `${USER}\n`)
    t.is(ran.text(), '')
  })

  test(`C78 a host gives up ${what} in the middle of a call: the call can be ended, and nothing else is started`, async (t) => {
    if (!has(t, NO_USER)) return
    const ran = marker(t)
    const program = host(
      t,
      `
      const [attacked, signalled, ended] = await Promise.all([start('exec sleep 50'), start('exec sleep 50'), start('exec sleep 50')])
      const quick = spawn('true')
      const pid = quick.pid
      ${drop}
      block(pid)
      // All of it is over, and not even its exit was heard of.
      report(inherited())
      signalled.kill('SIGINT')
      report([(await signalled.ended).outcome, signalled.signalCode])
      report([await ended.end(), await attacked.ended, await quick.ended].map(({ outcome }) => outcome))
      `,
      { command, attack: Buffer.concat([end(), spec(ran.script)]) },
    )
    const written = await program.next()
    t.true(written.length >= 4, `${written}`)
    const [outcome, signal] = await program.next()
    t.is(outcome, 'ended')
    t.true(['SIGINT', 'SIGKILL'].includes(signal), signal)
    t.deepEqual(await program.next(), ['ended', 'ended', 'ended'])
    t.is(ran.text(), '')
  })
}

test('C78 after the drop a helper forks no keeper', async (t) => {
  if (!has(t, NO_USER)) return
  const program = host(
    t,
    `
    const child = await start('exec sleep 50')
    await order()
    drop()
    report(inherited())
    await order()
    report([(await child.end()).outcome, (await run('id', ['-u'])).stdout])
    `,
    { attack: want(64) },
  )
  await until(() => spawnHelpersOf(program.pid).length === 1, 'the helper')
  const [helper] = spawnHelpersOf(program.pid)
  await until(() => keepersOf(helper).length >= 2, 'the keepers')
  program.child.stdin.write('go\n')
  const written = await program.next()
  t.true(written.includes(want(64).length))
  // To a keeper the same bytes are no message. The call's own ends its call, then all are gone, and the helper as well.
  await until(() => keepersOf(helper).length > 8 || !isAlive(helper), 'the end of the helper')
  t.false(isAlive(helper))
  program.child.stdin.write('go\n')
  t.deepEqual(await program.next(), ['ended', `${USER}\n`])
})

test('C78 a spec that was begun before the drop and finished after it starts nothing', async (t) => {
  if (!has(t, NO_USER)) return
  const ran = marker(t)
  const whole = spec(ran.script, `\0FILL=${'x'.repeat(10_000)}`)
  const program = host(
    t,
    `
    await run('true')
    await order()
    const whole = Buffer.from(attack, 'base64')
    // To the helper this is no message.
    const all = sockets().filter((fd) => write(fd, whole.subarray(0, -1)) === whole.length - 1)
    drop()
    report(all.map((fd) => write(fd, whole.subarray(-1))))
    await order()
    `,
    { attack: whole },
  )
  await until(() => spawnHelpersOf(program.pid).length === 1, 'the helper')
  const [helper] = spawnHelpersOf(program.pid)
  await until(() => keepersOf(helper).length >= 2, 'the keepers')
  const keepers = keepersOf(helper)
  program.child.stdin.write('go\n')
  t.true((await program.next()).includes(1))
  await until(() => ran.text() !== '' || !keepers.some(isAlive), 'the end of the keepers')
  t.is(ran.text(), '')
})

test('C78 a call that was made before the drop runs as of then, whatever is said to it after', async (t) => {
  if (!has(t, NO_USER)) return
  const program = host(
    t,
    `
    await run('true')
    const children = [0, 1].map(() => spawn('id', ['-u']))
    drop()
    for (const child of children) child.kill('SIGCONT')
    const texts = children.map(async (child) => Buffer.concat(await child.stdout.toArray()).toString())
    report([await Promise.all(texts), (await Promise.all(children.map((child) => child.ended))).map(({ outcome }) => outcome)])
    `,
  )
  t.deepEqual(await program.next(), [
    ['0\n', '0\n'],
    ['ended', 'ended'],
  ])
})

test('C78 the death of a host that has given up root ends its calls of before', async (t) => {
  if (!has(t, NO_USER)) return
  const own = newMark()
  const program = host(
    t,
    `
    await start('setsid sleep 50 & exec sleep 50')
    drop()
    report(process.getuid())
    await order()
    `,
    { own },
  )
  t.is(await program.next(), USER)
  program.kill()
  await program.exited
  await noneMarked(own)
})

// ---- what the ids do not show: resetHelper()
const STATUS = "grep -E '^(NoNewPrivs|CapBnd):' /proc/self/status"
const NO_CHROOT =
  process.getuid() === 0 && spawnSync('unshare', ['--mount', '--propagation', 'private', 'true']).status === 0
    ? ''
    : 'not root, or no mount namespace of its own'

/** What a host takes on, and a command that shows it. */
const takenOn = {
  no_new_privs: { missing: () => '', script: STATUS },
  capabilities: { missing: () => NO_USER, script: STATUS },
  'a changed root directory': {
    missing: () => NO_CHROOT,
    // A second look at everything, in which one folder is another.
    arrange(t) {
      const [root, inside] = [folder(t), folder(t)]
      const mounts = `mount --rbind / ${root} && mount --bind ${inside} ${root}/mnt && exec "$0" "$@"`
      writeFileSync(join(inside, 'inside'), '')
      return {
        what: root,
        command: ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', mounts, process.execPath],
      }
    },
    script: 'test -e /mnt/inside && echo inside || echo outside',
  },
}

for (const [name, { missing, script, arrange = () => ({ what: name }) }] of Object.entries(takenOn))
  test(`C78 a host takes on ${name}: its commands have it after resetHelper(), and nothing else is started`, async (t) => {
    if (!has(t, missing())) return
    const module = compiled(t, 'take-on', ['-shared', '-fPIC'])
    if (module === undefined) return
    const { what, command } = arrange(t)
    const ran = marker(t)
    const program = host(
      t,
      `
      const show = async () => (await run('sh', ['-c', ${JSON.stringify(script)}], { cwd: '/' })).stdout
      const plain = () => require('node:child_process').spawnSync('sh', ['-c', ${JSON.stringify(script)}], { encoding: 'utf8' }).stdout
      const before = [plain(), await show()]
      const running = await start('exec sleep 50')
      process.env.TAKE_ON = ${JSON.stringify(what)}
      process.dlopen({ exports: {} }, ${JSON.stringify(module)})
      const between = [plain(), await show()]
      const quick = spawn('true')
      const pid = quick.pid
      holdfast.resetHelper()
      block(pid)
      // The keepers of before have calls that are over, or run. Neither they nor the helper are to be had any more.
      const written = inherited()
      const after = [plain(), await show()]
      report({ before, between, after, written, outcomes: [(await quick.ended).outcome, (await running.ended).outcome] })
      `,
      { command, attack: spec(ran.script) },
    )
    const { before, between, after, written, outcomes } = await program.next()
    t.is(before[0], before[1])
    t.not(between[0], before[0])
    // As documented, not as one would wish.
    t.is(between[1], before[1])
    t.is(after[0], between[0])
    t.is(after[1], after[0])
    t.true(written.filter((count) => count === spec(ran.script).length).length >= 2, `${written}`)
    t.deepEqual(outcomes, ['ended', 'ended'])
    t.is(ran.text(), '')
  })

const WORKER = `
  const { run } = require(${JSON.stringify(HOLDFAST)})
  ;(async () => {
    const results = []
    for (let round = 0; round < 40; round++) results.push(await run('echo', [String(round)]))
    const good = ({ stdout, report }, round) => stdout.trim() === String(round) && report.outcome === 'ended'
    require('node:worker_threads').parentPort.postMessage(results.every(good))
  })()
`

test('C78 resetHelper() by one thread in the middle of the calls of others: every call is made', async (t) => {
  const program = host(
    t,
    `
    const { Worker, isMainThread } = require('node:worker_threads')
    const body = ${JSON.stringify(WORKER)}
    const workers = [1, 2, 3].map(() => new Worker(body, { eval: true }))
    const answers = Promise.all(workers.map((worker) => new Promise((resolve, reject) => worker.on('message', resolve).on('error', reject))))
    let over = false
    answers.finally(() => { over = true })
    let resets = 0
    while (!over) {
      holdfast.resetHelper()
      resets++
      await new Promise((resolve) => setImmediate(resolve))
      if (resets % 5 === 0) await run('true')
    }
    report([await answers, resets > 10])
    `,
  )
  t.deepEqual(await program.next(), [[true, true, true], true])
})
