// A helper that is missing, cannot be executed, is another one's, or does not speak as it should: one clear error with a
// stable code, nothing ran; and with best effort a plain child and its notice, never a silent one.
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { notices } from '../dist/index.js'
import { childrenOf, isAlive, marked, newMark, until } from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const NATIVE = fileURLToPath(new URL('../npm/linux-x64-gnu/', import.meta.url))
const ADDON = 'holdfast.linux-x64-gnu.node'
const HELPER = 'holdfast-helper.node'
const { version: VERSION } = JSON.parse(readFileSync(join(NATIVE, 'package.json'), 'utf8'))

suite(test, { patience: 0 })

/** A folder like the platform package's, whose helper is what `make` writes. */
function folderWith(t, make) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-helper-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  for (const name of [ADDON, 'package.json', HELPER]) copyFileSync(join(NATIVE, name), join(folder, name))
  make(join(folder, HELPER), folder)
  return folder
}

/** What a host with this folder gets to see, first of calls that must be contained, then of one that need not be. */
async function experience(t, folder) {
  const mark = newMark()
  const ground = mkdtempSync(join(tmpdir(), 'holdfast-ground-'))
  t.teardown(() => rmSync(ground, { recursive: true, force: true }))
  const ran = join(ground, 'ran')
  const env = { PATH: process.env.PATH, MARK: mark, RAN: ran }
  const host = startHost(programOf('helper/experience', { env }), { env: { HOLDFAST_BINARY_PATH: folder } })
  t.teardown(() => host.kill())
  const seen = await host.next()
  return {
    ...seen,
    /** Who has run, by the marker file. */
    ran: () => (existsSync(ran) ? readFileSync(ran, 'utf8').trim().split('\n') : []),
    children: () => childrenOf(host.pid).filter(isAlive),
    mark,
    async next() {
      host.child.stdin.write('\n')
      return host.next()
    },
    exited: host.exited,
  }
}

/** One clear error, of a stable code, that says what is wrong; nothing ran; and everybody agrees. */
function assertRefused(t, seen, reason) {
  for (const error of [seen.required, seen.spawned.error]) {
    t.is(error.code, 'ERR_HOLDFAST_NO_HELPER')
    t.is(error.ran, false)
    t.is(error.step, 'helper')
    t.true(error.is)
    t.regex(error.message, /^spawn sh: not started: no holdfast helper is available: \S/)
    t.regex(error.message, reason)
  }
  t.deepEqual(seen.spawned.events, ['error', 'close', 'ended'])
  t.is(seen.spawned.pid, undefined)
  const { outcome, mechanism, by, reason: why, error } = seen.spawned.report
  t.deepEqual(
    { outcome, mechanism, by, why },
    { outcome: 'ended', mechanism: 'none', by: 'host', why: 'not-started' },
    'the report of a refusal',
  )
  t.is(error.code, 'ERR_HOLDFAST_NO_HELPER')
  t.is(seen.running, 0)
  t.deepEqual(seen.ran(), [])
  t.deepEqual(marked(seen.mark), [])
  // Tried, and so known.
  t.true(seen.probed.helper.probed)
  t.regex(seen.probed.helper.problem, reason)
  assertNothing(t, seen.probed)
}

function assertNothing(t, { mechanism, hostDeath, escapees, proof }) {
  t.deepEqual(
    { mechanism, hostDeath, escapees, proof },
    { mechanism: 'none', hostDeath: 'none', escapees: 'not-seen', proof: 'none' },
  )
}

/** Uncontained, and said so. */
async function assertBestEffort(t, seen) {
  const result = await seen.next()
  t.is(result.exitCode, 0, JSON.stringify(result))
  t.deepEqual(seen.ran(), ['effort'])
  t.is(result.report.mechanism, 'none')
  t.is(result.report.by, 'host')
  t.is(result.report.outcome, 'unconfirmed')
  t.is(result.report.notice, notices.helper)
  t.deepEqual(result.notices, [notices.helper])
}

/** No half-started helper is left below the host. */
const assertNoChild = (seen) => until(() => seen.children().length === 0, 'the end of every failed helper')

// ---- files that show it
test('bad helper: a missing one', async (t) => {
  const seen = await experience(
    t,
    folderWith(t, (path) => rmSync(path)),
  )
  assertRefused(t, seen, /holdfast-helper.node' does not exist/)
  t.regex(seen.files.helper.problem, /holdfast-helper.node' does not exist/)
  t.false(seen.files.helper.probed)
  assertNothing(t, seen.files)
  await assertBestEffort(t, seen)
})

for (const [cause, act] of [
  ['the exit of the command', 'child.stdin.end()'],
  ['a timeout', ''],
  ['an abort', 'controller.abort()'],
  ['end()', 'child.end()'],
]) {
  test(`best effort: what is left in the group is ended by ${cause}, and that is not confirmed`, async (t) => {
    const folder = folderWith(t, (path) => rmSync(path))
    const mark = newMark()
    const host = startHost(
      `const act = (child, controller) => { ${act} }\n` +
        programOf('helper/left-in-the-group', { timeout: cause === 'a timeout' ? 500 : 0 }),
      { env: { HOLDFAST_BINARY_PATH: folder, MARK: mark } },
    )
    t.teardown(() => host.kill())
    t.is(await host.next(), 'up')
    const { outcome, mechanism, by, notice } = await host.next()
    t.deepEqual([outcome, mechanism, by, notice], ['unconfirmed', 'none', 'host', notices.helper])
    // The host is still there, and nothing else.
    await until(() => marked(mark).every((pid) => pid === host.pid), 'the end of the group')
    host.child.stdin.write('\n')
    t.deepEqual(await host.exited, { code: 0, signal: null })
  })
}

test('bad helper: NODE_DEBUG=holdfast tells once that commands run without containment', async (t) => {
  const folder = folderWith(t, (path) => rmSync(path))
  const told = async (debug) => {
    const host = startHost(
      `
      const options = { containment: 'best-effort' }
      await Promise.all([run('true', options), run('true', { ...options, background: 'keep' }), spawn('true', options).ended])
      report((await run('true', options)).report.mechanism)
      `,
      { env: { HOLDFAST_BINARY_PATH: folder, NODE_DEBUG: debug }, options: { stdio: ['ignore', 'pipe', 'pipe'] } },
    )
    t.teardown(() => host.kill())
    const text = host.child.stderr.setEncoding('utf8').toArray()
    t.is(await host.next(), 'none')
    t.deepEqual(await host.exited, { code: 0, signal: null })
    return (await text).join('')
  }
  t.regex(await told('holdfast'), /^HOLDFAST \d+: true ran without containment.*\n$/)
  t.is(await told(''), '')
})

test('bad helper: one that lost its exec bit is repaired', async (t) => {
  const folder = folderWith(t, (path) => chmodSync(path, 0o644))
  const seen = await experience(t, folder)
  t.is(seen.required.code, 'RAN')
  t.deepEqual(seen.spawned.events, ['spawn', 'exit', 'close', 'ended'])
  t.deepEqual(seen.ran(), ['required', 'spawn'])
  t.is(statSync(join(folder, HELPER)).mode & 0o111, 0o111)
  t.is(seen.probed.mechanism, 'subreaper')
  t.is(seen.probed.helper.problem, undefined)
})

// ---- files that must be tried
const foreign = {
  'one of another version': [
    (path) => {
      // Four bytes of it: the compiler may have put them into an instruction.
      writeFileSync(path, replaced(readFileSync(path), VERSION.slice(0, 4), `9${VERSION.slice(1, 4)}`))
    },
    /another version/,
  ],
  'one for another architecture': [
    (path) => {
      const bytes = readFileSync(path)
      bytes.writeUInt16LE(183, 18) // e_machine: EM_AARCH64
      writeFileSync(path, bytes)
    },
    /Exec format error/,
  ],
  'a text file': [(path) => writeFileSync(path, 'version https://git-lfs.github.com/spec/v1\n'), /Exec format error/],
  'an empty file': [(path) => writeFileSync(path, ''), /Exec format error/],
  'a cut executable': [
    (path) => writeFileSync(path, readFileSync(path).subarray(0, 32)),
    /Exec format error|Input\/output error/,
  ],
  'a folder': [
    (path) => {
      rmSync(path)
      mkdirSync(path)
    },
    /Permission denied|is a directory/i,
  ],
  'a script whose interpreter is missing': [(path) => writeFileSync(path, '#!/no/such/interpreter\n'), /No such file/],
  'a program that does something else': [(path) => copyFileSync('/bin/true', path), /without a word/],
}
for (const [what, [make, reason]] of Object.entries(foreign)) {
  test(`bad helper: ${what}`, async (t) => {
    const seen = await experience(t, folderWith(t, make))
    assertRefused(t, seen, reason)
    // Nothing of this can be seen without trying.
    t.is(seen.files.helper.problem, undefined)
    t.false(seen.files.helper.probed)
    await assertBestEffort(t, seen)
    await assertNoChild(seen)
  })
}

test('bad helper: once there is a good one, the next call is contained', async (t) => {
  const folder = folderWith(t, (path) => copyFileSync('/bin/true', path))
  const seen = await experience(t, folder)
  assertRefused(t, seen, /without a word/)
  await seen.next()
  rmSync(join(folder, HELPER))
  copyFileSync(join(NATIVE, HELPER), join(folder, HELPER))
  const result = await seen.next()
  t.is(result.report?.by, 'keeper', JSON.stringify(result))
  t.deepEqual(seen.ran(), ['effort', 'again'])
})

// ---- helpers that speak wrongly
const [HELLO, KEEPER, NO_KEEPER, KEEPER_ENDED, STARTED] = [48, 49, 50, 51, 18]
const word = (value) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value >>> 0)
  return bytes
}
const frame = (kind, ...payload) => {
  const body = Buffer.concat([Buffer.of(kind), ...payload])
  return Buffer.concat([word(body.length), body])
}
const SUBREAPER = 0
const hello = (version = VERSION) => frame(HELLO, word(version.length), Buffer.from(version), Buffer.of(SUBREAPER))

/** A helper that says these bytes, and then leaves or waits for the host's end. */
const saying = (bytes, then) => (path) => {
  const octal = [...Buffer.concat(bytes)].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('')
  writeFileSync(path, `#!/bin/sh\nprintf '${octal}' >&3\n${then}\n`)
}
const LEAVES = 'exit 0'
/** Until the end of file: the host lets go of it. */
const STAYS = 'while read -r _ <&3; do :; done'

const EAGAIN = 11
const WRONG = /another version|without a word/
const wrong = {
  'nothing, and leaves': [[], LEAVES, /without a word/],
  'half a greeting, and leaves': [[hello().subarray(0, 7)], LEAVES, /without a word/],
  'a greeting, and leaves': [[hello()], LEAVES, /./],
  'a greeting, and is killed': [[hello()], 'kill -9 $$', /./],
  'half a message after the greeting, and leaves': [[hello(), frame(NO_KEEPER, word(1)).subarray(0, 6)], LEAVES, /./],
  'a later version': [[hello('99.0.0')], STAYS, WRONG],
  'an empty version': [[hello('')], STAYS, WRONG],
  'a frame of 4 GiB': [[word(0xffffffff), Buffer.of(HELLO)], STAYS, WRONG],
  'a frame of no length': [[word(0), Buffer.of(HELLO)], STAYS, WRONG],
  'a greeting whose text is longer than its frame': [[frame(HELLO, word(500), Buffer.from('0.1.0'))], STAYS, WRONG],
  'an unknown kind': [[frame(200)], STAYS, WRONG],
  'a keeper’s word': [[frame(STARTED)], STAYS, WRONG],
  HTTP: [[Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')], STAYS, WRONG],
  'a keeper before the greeting': [[frame(KEEPER, word(1234)), hello()], STAYS, WRONG],
  'a keeper without its sockets': [[hello(), frame(KEEPER, word(1234))], STAYS, WRONG],
  'the end of a keeper that it never had, in half': [[hello(), frame(KEEPER_ENDED, word(1234))], STAYS, WRONG],
  'that it cannot fork': [[hello(), frame(NO_KEEPER, word(EAGAIN))], STAYS, /Resource temporarily unavailable/],
}
for (const [what, [bytes, then, reason]] of Object.entries(wrong)) {
  test(`bad messages: a helper that says ${what}`, async (t) => {
    const seen = await experience(t, folderWith(t, saying(bytes, then)))
    for (const error of [seen.required, seen.spawned.error]) {
      t.is(error?.code, 'ERR_HOLDFAST_NO_HELPER')
      t.is(error.ran, false)
      t.regex(error.message, reason)
      t.regex(error.message, /no holdfast helper is available: \S/)
    }
    t.deepEqual(seen.spawned.events, ['error', 'close', 'ended'])
    t.is(seen.spawned.report.reason, 'not-started')
    t.deepEqual(seen.ran(), [])
    t.is(seen.running, 0)
    await assertBestEffort(t, seen)
    // What the host has given up on is let go of, reaped, and not one per call.
    await until(() => seen.children().length <= 1, 'the end of every failed helper')
  })
}

test('bad messages: a helper that says nothing, and stays, is started once more and given up', async (t) => {
  const folder = folderWith(t, () => {})
  const starts = join(folder, 'starts')
  writeFileSync(join(folder, HELPER), `#!/bin/sh\necho started >> '${starts}'\n${STAYS}\n`)
  const mark = newMark()
  const host = startHost(
    `
    const env = { PATH: process.env.PATH, MARK: ${JSON.stringify(mark)} }
    const { code, ran, message } = await run('sh', ['-c', 'sleep 60'], { env }).catch((error) => error)
    report({ code, ran, message })
    await new Promise((resolve) => process.stdin.once('data', resolve))
  `,
    { env: { HOLDFAST_BINARY_PATH: folder } },
  )
  t.teardown(() => host.kill())
  const { code, ran, message } = await host.next()
  t.deepEqual({ code, ran }, { code: 'ERR_HOLDFAST_NO_HELPER', ran: false })
  t.regex(message, /no answer within 2 seconds/)
  t.deepEqual(marked(mark), [])
  await until(() => childrenOf(host.pid).filter(isAlive).length === 0, 'the end of every failed helper')
  // The loop stands still meanwhile: two seconds each.
  t.is(readFileSync(starts, 'utf8'), 'started\n'.repeat(2))
})

// ---- the addon beside it
const addons = {
  'a folder that does not exist': [(_, folder) => rmSync(folder, { recursive: true }), /HOLDFAST_BINARY_PATH names/],
  'a folder without the addon': [(_, folder) => rmSync(join(folder, ADDON)), /HOLDFAST_BINARY_PATH names/],
  'an addon that is a text file': [(_, folder) => writeFileSync(join(folder, ADDON), 'text'), /is damaged/],
  'an addon of another version': [
    (_, folder) => {
      const path = join(folder, ADDON)
      writeFileSync(path, replaced(readFileSync(path), VERSION, VERSION.replace(/^\d/, '9')))
    },
    /is version '9\.1\.0', and the package is/,
  ],
}
for (const [what, [make, reason]] of Object.entries(addons)) {
  test(`bad addon: ${what}`, async (t) => {
    const seen = await experience(t, folderWith(t, make))
    for (const error of [seen.required, seen.spawned.error]) {
      t.is(error?.code, 'ERR_HOLDFAST_NO_HELPER')
      t.is(error.ran, false)
      t.regex(error.message, reason)
    }
    t.deepEqual(seen.spawned.events, ['error', 'close', 'ended'])
    t.is(seen.spawned.report.reason, 'not-started')
    t.regex(seen.probed.helper.problem, reason)
    assertNothing(t, seen.probed)
    // Best effort needs the addon.
    const effort = await seen.next()
    t.is(effort.code, 'ERR_HOLDFAST_NO_HELPER')
    t.is(effort.ran, false)
    t.deepEqual(seen.ran(), [])
  })
}

/** `to` has the length of `from`. */
function replaced(bytes, from, to) {
  let count = 0
  for (let at = bytes.indexOf(from); at >= 0; at = bytes.indexOf(from, at + 1), count++) bytes.write(to, at)
  if (count === 0) throw new Error(`no ${from} in it`)
  return bytes
}
