// C01 to C07: what a host leaves behind when it ends, and what a command leaves behind when its handle is forgotten.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { run, running, spawn } from '../dist/index.js'
import {
  childrenBesidePin,
  childrenOf,
  comm,
  descendantsOf,
  descriptors,
  gone,
  helpersOf,
  isAlive,
  keepersOf,
  marked,
  newMark,
  noneMarked,
  stat,
  until,
} from './support/facts.mjs'
import { fixture, programOf } from './support/fixtures.mjs'
import { SESSION, startHost } from './support/host.mjs'
import { linesOf } from './support/lines.mjs'
import { bind } from './support/port.mjs'
import { HELPER } from './support/session.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const GRACE = 2000
const environment = (mark) => ({ ...process.env, MARK: mark })

suite(test, { patience: 0 })

/** Helper and keepers of a host. */
function staffOf(host) {
  const helpers = helpersOf(host)
  return [...helpers, ...helpers.flatMap(keepersOf)]
}

test('two children of a host that calls process.exit() are gone within the grace time (C01)', async (t) => {
  const mark = newMark()
  const host = startHost(
    `
    const children = [spawn('sleep', ['60']), spawn('sh', ['-c', 'sleep 60; true'])]
    report(children.map((child) => child.pid))
    process.stdin.once('data', () => process.exit(0))
  `,
    { env: { MARK: mark } },
  )
  const pids = await host.next()
  await until(() => marked(mark).length >= 4, 'host, two children, a grandchild')
  const staff = staffOf(host.pid)
  t.true(staff.length >= 3, 'a helper and two keepers')
  t.true(pids.every(isAlive))
  host.child.stdin.write('go\n')
  t.deepEqual(await host.exited, { code: 0, signal: null })
  await noneMarked(mark, GRACE)
  await gone(staff)
  t.pass()
})

// A host in a terminal: `script` holds the master. Its argument is text for a shell, so the program goes by variable.
const IN_TERMINAL = 'TEXT=$1 SHELL=/bin/sh exec script -qec "stty -echo; exec \\"\\$NODE\\" -e \\"\\$TEXT\\"" /dev/null'

const deaths = {
  SIGKILL: { end: (host) => host.kill(), last: { code: null, signal: 'SIGKILL' } },
  'an uncaught exception': {
    body: `process.stdin.once('data', () => { throw new Error('on purpose') })`,
    end: (host) => host.child.stdin.write('go\n'),
    last: { code: 1, signal: null },
  },
  'process.abort()': {
    body: `process.stdin.once('data', () => process.abort())`,
    command: ['sh', '-c', 'ulimit -c 0; exec "$0" "$@"', process.execPath],
    end: (host) => host.child.stdin.write('go\n'),
    last: { code: null, signal: 'SIGABRT' },
  },
  'the closing of its terminal': {
    body: 'process.stdin.resume()',
    command: ['sh', '-c', IN_TERMINAL],
    // The one who holds the master dies, not the host.
    end: (host) => host.kill(),
    last: { code: null, signal: 'SIGKILL' },
    terminal: true,
  },
}

function hasScript() {
  try {
    return execFileSync('script', ['-qec', 'echo there', '/dev/null'], { encoding: 'utf8' }).includes('there')
  } catch {
    return false
  }
}

/** A shell stands between host and server. */
const WRAPPED = `NODE="$0"; "$NODE" ${fixture('listener.mjs')}; true`

/** How a host has `command` and `args`; each has its stdout as `child.stdout`. */
const ways = {
  'a call': 'const child = spawn(command, args)',
  'a guarded group': `
    const child = plain(command, args, { detached: true })
    await holdfast.guard(child)
  `,
  "a guarded group of the host's session": `
    const moved = 'import os, sys; os.setpgid(0, 0); os.execvp(sys.argv[1], sys.argv[1:])'
    const child = plain(PYTHON, ['-c', moved, command, ...args])
    const { stat, until } = await import(${JSON.stringify(import.meta.resolve('./support/facts.mjs'))})
    await until(() => stat(child.pid)?.pgrp === child.pid, 'a group of its own')
    await holdfast.guard(child)
  `,
  'a session': `
    const child = await require(${JSON.stringify(SESSION)}).startSession(command, args)
  `,
  'a starter': `
    const watching = ['--ack', '--watch-parent', '--parent-pid', String(process.pid)]
    const child = plain(${JSON.stringify(HELPER)}, ['__session-starter', ...watching, '--', command, ...args])
  `,
}

for (const [way, start] of Object.entries(ways))
  for (const [death, { body = '', command, end, last, terminal = false }] of Object.entries(deaths)) {
    test(`a wrapped server in ${way} is gone after ${death} of its host (C02)`, async (t) => {
      if (terminal && !hasScript()) {
        t.log('skipped: there is no `script` to open a terminal with')
        return t.pass()
      }
      const mark = newMark()
      const host = startHost(
        `const { spawn: plain } = require('node:child_process')
        const [command, args] = ['sh', ['-c', ${JSON.stringify(WRAPPED)}, process.execPath]]
        ${start}
        ${programOf('orphans/report-port')}
        ${body}`,
        {
          ...(command && { command }),
          env: { MARK: mark, NODE: process.execPath },
          options: { stdio: ['pipe', 'pipe', 'ignore'] },
        },
      )
      const { port, pid, tty } = await host.next()
      t.is(tty, terminal)
      await t.throwsAsync(bind(port), { code: 'EADDRINUSE' })
      const staff = descendantsOf(pid).filter((one) => comm(one) === 'holdfast-helper')
      t.true(staff.length >= 1)
      end(host)
      t.deepEqual(await host.exited, last)
      await noneMarked(mark, GRACE)
      await gone(staff)
      await t.notThrowsAsync(bind(port))
    })
  }

test('a child that ignores EOF, SIGHUP, SIGINT and SIGTERM is ended by the ladder (C03)', async (t) => {
  const mark = newMark()
  const child = spawn(process.execPath, [fixture('stubborn.mjs')], { env: environment(mark) })
  const lines = linesOf(child.stdout)
  t.is(await lines.next(), 'ready')
  child.stdin.end()
  t.is(await lines.next(), 'EOF')
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM']) {
    t.true(child.kill(signal))
    t.is(await lines.next(), signal)
  }
  const ended = child.end({ grace: 100 })
  t.is(await lines.next(), 'SIGTERM')
  const report = await ended
  t.is(await lines.next(), undefined)
  t.is(child.signalCode, 'SIGKILL')
  t.like(report, { outcome: 'ended', reason: 'end', by: 'keeper', survivors: [], leftoverCount: 0 })
  t.deepEqual(marked(mark), [])
})

test('a child that ignores EOF, SIGHUP, SIGINT and SIGTERM is ended by the death of its host (C03)', async (t) => {
  const mark = newMark()
  const host = startHost(
    `
    const child = spawn(process.execPath, [${JSON.stringify(fixture('stubborn.mjs'))}], { grace: 300 })
    child.stdout.once('data', () => report(child.pid))
  `,
    { env: { MARK: mark } },
  )
  const pid = await host.next()
  t.true(isAlive(pid))
  const killed = Date.now()
  host.kill()
  await gone([pid], 300 + 1000)
  t.true(Date.now() - killed >= 300, 'it is SIGKILL that ended it')
  await noneMarked(mark)
})

test('end() at every moment of a start leaves nothing (C04)', async (t) => {
  const mark = newMark()
  const reports = []
  for (let delay = 0; delay <= 20; delay += 2) {
    const child = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)'], { env: environment(mark) })
    // What the case is about: the command has not started, or is just starting.
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay))
    reports.push(await child.end())
    t.false(isAlive(child.pid))
    t.is(child.signalCode, 'SIGTERM')
  }
  for (const report of reports) t.like(report, { outcome: 'ended', reason: 'end', leftoverCount: 0 })
  t.deepEqual(marked(mark), [])
  t.deepEqual(running(), [])
})

test('end() twice at once and after the end: one signal for each process, one report (C04)', async (t) => {
  const mark = newMark()
  const child = spawn('sh', ['-c', '"$0" "$1" & "$0" "$1"; true', process.execPath, fixture('stubborn.mjs')], {
    env: environment(mark),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text
  })
  const count = (word) => output.split('\n').filter((line) => line === word).length
  await until(() => count('ready') === 2, 'both are ready')
  let events = 0
  child.on('ended', () => events++)
  const [first, second] = [child.end({ grace: 400 }), child.end({ grace: 400 })]
  await until(() => count('SIGTERM') === 2, 'SIGTERM in both')
  const third = child.end()
  const reports = await Promise.all([first, second, third, child.ended])
  for (const report of reports) t.is(report, reports[0])
  t.like(reports[0], { outcome: 'ended', reason: 'end' })
  t.is(count('SIGTERM'), 2, 'one for each of them')
  t.is(events, 1)
  t.is(await child.end(), reports[0])
  t.false(child.kill())
  t.deepEqual(marked(mark), [])
})

test('the command is killed by something else: the rest is swept without a call to end() (C05)', async (t) => {
  const mark = newMark()
  const child = spawn('sh', ['-c', 'sleep 60 & setsid sleep 60 & sleep 60 & echo up; wait'], {
    env: environment(mark),
  })
  const ended = []
  child.on('ended', (report) => ended.push(report))
  const [text] = await once(child.stdout, 'data')
  t.is(String(text), 'up\n')
  await until(() => marked(mark).length === 4, 'the command and what it started')
  execFileSync('sh', ['-c', 'kill -KILL "$0"', String(child.pid)])
  const report = await child.ended
  t.like(report, { outcome: 'ended', reason: 'exit', by: 'keeper', leftoverCount: 3, survivors: [] })
  t.is(new Set(report.leftovers.map(({ pid }) => pid)).size, 3)
  t.is(child.signalCode, 'SIGKILL')
  t.deepEqual(ended, [report])
  t.deepEqual(marked(mark), [])
})

test('a call whose handle was dropped is listed, and gone with the host (C06)', async (t) => {
  const mark = newMark()
  const host = startHost(programOf('orphans/dropped-handles'), {
    env: { MARK: mark },
    command: [process.execPath, '--expose-gc'],
  })
  const listed = await host.next()
  t.deepEqual(
    listed.map(({ file }) => file),
    ['sleep', 'sh', 'sleep'],
  )
  t.is(new Set(listed.map(({ id }) => id)).size, 3)
  const pids = listed.map(({ pid }) => pid)
  t.deepEqual(await host.next(), pids.slice(0, 2))
  t.true(isAlive(pids[0]))
  t.true(isAlive(pids[1]))
  t.false(isAlive(pids[2]))
  host.kill()
  await noneMarked(mark, GRACE)
  t.pass()
})

test('fifty commands that leave a child behind and fail: no process, descriptor or zombie is left (C07)', async (t) => {
  const mark = newMark()
  const once = async () => {
    const { exitCode, report } = await run('sh', ['-c', 'sleep 60 & setsid sleep 60 & exit 3'], {
      env: environment(mark),
    })
    t.deepEqual([exitCode, report.outcome], [3, 'ended'])
    t.deepEqual(marked(mark), [])
  }
  const staff = () => {
    const [helper, ...others] = helpersOf(process.pid)
    t.deepEqual(others, [])
    return { helper, keepers: keepersOf(helper) }
  }
  const size = (pid) => descriptors(pid).size
  const zombies = () => {
    const { helper, keepers } = staff()
    const all = [...childrenOf(process.pid), ...childrenOf(helper), ...keepers.flatMap(childrenBesidePin)]
    return all.filter((pid) => stat(pid)?.state === 'Z')
  }
  for (let round = 0; round < 5; round++) await once()
  const { helper, keepers } = staff()
  const before = { host: size(process.pid), helper: size(helper), keepers: keepers.map(size) }
  for (let round = 0; round < 50; round++) {
    await once()
    t.true(staff().keepers.length <= keepers.length, 'more keepers than calls')
  }
  t.is(staff().helper, helper)
  t.deepEqual(zombies(), [])
  t.true(size(process.pid) <= before.host)
  t.true(size(helper) <= before.helper)
  for (const keeper of staff().keepers) t.true(size(keeper) <= Math.max(...before.keepers))
  t.deepEqual(
    childrenOf(process.pid).filter((pid) => pid !== helper),
    [],
  )

  // Side by side there are more keepers for a while, at most a pool and as many on their way; then it follows demand.
  await Promise.all(
    Array.from({ length: 50 }, () => run('sh', ['-c', 'sleep 60 & exit 3'], { env: environment(mark) })),
  )
  t.deepEqual(marked(mark), [])
  await until(() => staff().keepers.length <= 32, 'what is beyond the pool leaves')
  for (let round = 0; round < 60; round++) await run('true')
  await until(() => staff().keepers.length < 16, 'the pool follows demand')
  t.deepEqual(zombies(), [])
  for (const keeper of staff().keepers) t.true(size(keeper) <= Math.max(...before.keepers))
})
