// C78: a host that has given up root still holds sockets to helper and keepers of root. Plain JavaScript writes to them
// what the addon would: frames of crates/wire, made here byte by byte.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { argsOf, helpersOf, isAlive, keepersOf, newMark, noneMarked, until } from './support/facts.mjs'
import { compiled, PYTHON, programOf, SHARED } from './support/fixtures.mjs'
import { HOLDFAST } from './support/host.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { mark, host } = suite(test)

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

const HELPERS = programOf('identity/attack', { USER })

function attacker(t, body, { attack = Buffer.alloc(0), ...options } = {}) {
  return host(t, body, { before: `const attack = '${attack.toString('base64')}';${HELPERS}`, ...options })
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
  PYTHON,
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

test('the measuring instrument: what a host writes that has given up nothing is started (C78)', async (t) => {
  const ran = marker(t)
  // The host stays: what is started by the frame is ended with it.
  const program = attacker(t, "await run('true'); report(inherited()); await order()", { attack: spec(ran.script) })
  t.true((await program.next()).includes(spec(ran.script).length))
  await until(() => ran.text() !== '', 'a command that was started by a frame')
  t.is(new Set(ran.text().split('\n').filter(Boolean)).size, 1)
  t.true(ran.text().startsWith(`${process.getuid()}\n`))
})

for (const [what, { drop, command }] of Object.entries(drops)) {
  test(`a host gives up ${what}: what it writes to idle keepers starts nothing (C78)`, async (t) => {
    if (!has(t, NO_USER)) return
    const ran = marker(t)
    const program = attacker(
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

  test(`a host gives up ${what} in the middle of a call: the call can be ended, and nothing else is started (C78)`, async (t) => {
    if (!has(t, NO_USER)) return
    const ran = marker(t)
    const program = attacker(t, `const giveUp = () => { ${drop} }\n${programOf('identity/drop-in-calls')}`, {
      command,
      attack: Buffer.concat([end(), spec(ran.script)]),
    })
    const written = await program.next()
    t.true(written.length >= 4, `${written}`)
    const [outcome, signal] = await program.next()
    t.is(outcome, 'ended')
    t.true(['SIGINT', 'SIGKILL'].includes(signal), signal)
    t.deepEqual(await program.next(), ['ended', 'ended', 'ended'])
    t.is(ran.text(), '')
  })
}

test('after the drop a helper forks no keeper (C78)', async (t) => {
  if (!has(t, NO_USER)) return
  const program = attacker(
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

test('a spec that was begun before the drop and finished after it starts nothing (C78)', async (t) => {
  if (!has(t, NO_USER)) return
  const ran = marker(t)
  const whole = spec(ran.script, `\0FILL=${'x'.repeat(10_000)}`)
  const program = attacker(t, programOf('identity/half-a-spec'), { attack: whole })
  await until(() => spawnHelpersOf(program.pid).length === 1, 'the helper')
  const [helper] = spawnHelpersOf(program.pid)
  await until(() => keepersOf(helper).length >= 2, 'the keepers')
  const keepers = keepersOf(helper)
  program.child.stdin.write('go\n')
  t.true((await program.next()).includes(1))
  await until(() => ran.text() !== '' || !keepers.some(isAlive), 'the end of the keepers')
  t.is(ran.text(), '')
})

test('a call that was made before the drop runs as of then, whatever is said to it after (C78)', async (t) => {
  if (!has(t, NO_USER)) return
  const program = attacker(
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

test('the death of a host that has given up root ends its calls of before (C78)', async (t) => {
  if (!has(t, NO_USER)) return
  const own = newMark()
  const program = attacker(
    t,
    `
    await start('setsid sleep 50 & exec sleep 50')
    drop()
    report(process.getuid())
    await order()
    `,
    { mark: own },
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
  test(`a host takes on ${name}: its commands have it after resetHelper(), and nothing else is started (C78)`, async (t) => {
    if (!has(t, missing())) return
    const module = compiled(t, 'take-on', SHARED)
    if (module === undefined) return
    const { what, command } = arrange(t)
    const ran = marker(t)
    const program = attacker(t, programOf('identity/take-on', { script, what, module }), {
      command,
      attack: spec(ran.script),
    })
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

const WORKER = programOf('identity/forty-calls', { HOLDFAST })

test('resetHelper() by one thread in the middle of the calls of others: every call is made (C78)', async (t) => {
  const program = attacker(t, programOf('identity/reset-beside-calls', { WORKER }))
  t.deepEqual(await program.next(), [[true, true, true], true])
})
