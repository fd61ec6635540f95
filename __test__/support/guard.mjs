// Hosts that guard what somebody else started, in the forms that it takes; and the ends that all of them come to.
import { createInterface } from 'node:readline'
import { argsOf, comm, guardsOf, isAlive, marked, newMark, noneMarked, stat, until } from './facts.mjs'
import { fixture } from './fixtures.mjs'
import { startHost } from './host.mjs'

/** Of a shell in a group of its own: itself, a child, and a grandchild in a subshell. */
const TREE = 'sleep 60 & (sleep 60 & wait) & wait'
const TREE_OF_FOUR = { count: 4, isSettled: (pids) => pids.filter((pid) => comm(pid) === 'sleep').length === 2 }
const shell = JSON.stringify(['-c', TREE])
const library = (name) => JSON.stringify(import.meta.resolve(name))

/** How it is started, with `child` as what guard() takes; and how many processes that makes. */
export const users = {
  'child_process.spawn': {
    start: `const child = plain('bash', ${shell}, { detached: true, stdio: 'ignore' })`,
    ...TREE_OF_FOUR,
  },
  execa: {
    start: `
      const { execa } = await import(${library('execa')})
      const child = execa('bash', ${shell}, { detached: true, reject: false, stdio: 'ignore' })
    `,
    ...TREE_OF_FOUR,
  },
  tinyexec: {
    start: `
      const { x } = await import(${library('tinyexec')})
      const child = x('bash', ${shell}, { nodeOptions: { detached: true, stdio: 'ignore' } })
    `,
    ...TREE_OF_FOUR,
  },
  'child_process.fork with IPC': {
    start: `
      const child = fork(${JSON.stringify(fixture('forked.cjs'))}, { detached: true })
      await once(child, 'message')
    `,
    count: 3,
  },
  'a multiprocessing pool of Python': {
    start: `
      const child = plain(PYTHON, [${JSON.stringify(fixture('pool.py'))}], {
        detached: true, stdio: ['ignore', 'pipe', 'inherit'],
      })
      await once(child.stdout, 'data')
    `,
    count: 4,
  },
}

/** In the host's session: such a group is held by a pin. */
export const ownGroup = {
  start: `
    const child = plain(PYTHON, [${JSON.stringify(fixture('own-group.py'))}], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
  `,
  count: 3,
}

/** A shell as `child`, which leads a group of its own. */
export const shellOf = (script, stdio = 'ignore') =>
  `const child = plain('bash', ['--norc', '-c', ${JSON.stringify(script)}], { detached: true, stdio: ${JSON.stringify(stdio)} })`

const PRELUDE = `
  const { spawn: plain, fork } = require('node:child_process')
  const { once } = require('node:events')
  const fs = require('node:fs')
  const { guard } = holdfast
`
/** Does what it is told to, line by line. */
const OBEY = `
  report({ value: 'ready' })
  for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
    await eval('(async () => {' + JSON.parse(line) + '\\n})()').then(
      (value) => report({ value }),
      (error) => report({ error: error.stack, facts: { ...error, name: error.name, message: error.message } }),
    )
  }
`

/** A host that has run `start`. `do(code)` is what the code returns there. Itself is marked as all that it starts. */
export async function orderedHost(t, start, { env = {}, command } = {}) {
  const mark = newMark()
  const host = startHost(`${PRELUDE}${start}\n${OBEY}`, {
    env: { MARK: mark, NODE_DEBUG: 'holdfast', ...env },
    options: { stdio: ['pipe', 'pipe', 'pipe'] },
    ...(command && { command }),
  })
  t.teardown(() => host.kill())
  const said = []
  createInterface({ input: host.child.stderr }).on('line', (line) => said.push(line))
  // It may be gone by the next order.
  host.child.stdin.on('error', () => {})
  const answer = async () => {
    try {
      return await host.next()
    } catch (error) {
      throw new Error(`${error.message}: ${said.join('\n')}`)
    }
  }
  const held = () => said.flatMap((line) => /the guard of group (\d+) is ready, by (\w+)/.exec(line)?.[2] ?? [])
  const self = {
    ...host,
    mark,
    said,
    tell: (code) => host.child.stdin.write(`${JSON.stringify(code)}\n`),
    /** Whatever tell() told it to. */
    async answer() {
      const { value, error } = await answer()
      if (error !== undefined) throw new Error(error)
      return value
    },
    do(code) {
      self.tell(code)
      return self.answer()
    },
    /** What the code throws there. */
    async error(code) {
      self.tell(code)
      return (await answer()).facts
    },
    /** By what the guards that became ready hold their groups, oldest first. */
    held,
    nowHeld: (count) => until(() => held().length >= count && held(), `${count} guards that are ready: ${said}`),
    /** All live processes of it but itself and its guards. */
    others: () => marked(mark).filter((pid) => pid !== host.pid),
  }
  await self.answer()
  return self
}

/**
 * A host that guards such a user's processes, all of which have started.
 * @param early guarded right after the start; else when all are there, which matters where each member has to be found
 */
export async function guardHost(t, { start, count, isSettled = () => true }, { options = '{}', early, ...more } = {}) {
  const take = `group = await guard(child, ${options})`
  const host = await orderedHost(t, `${start}\nlet group\n${early ? take : ''}`, more)
  const members = await until(() => {
    const pids = host.others()
    return pids.length >= count && isSettled(pids) && pids
  }, `${count} processes of it`)
  if (!early) await host.do(take)
  const leader = await host.do('return child.pid')
  return { ...host, members, leader, guard: guardsOf(host.pid)[0] }
}

// ---- the ends
const isReport = (t, report, reason, count) => {
  t.like(report, { outcome: 'ended', mechanism: 'group', by: 'guard', reason, survivors: [], released: [] })
  t.is(report.notice, undefined)
  t.true(report.leftoverCount >= count, JSON.stringify(report))
  t.true(report.leftovers.every(({ pid, name }) => pid > 1 && name.length > 0))
  t.true(report.proofTime >= 0 && report.proofTime < 5000)
}

/** What is left of a host when the end was reported: it, without a zombie, a guard or one of its group's processes. */
async function isClean(t, host) {
  t.deepEqual(host.others(), [])
  await until(() => guardsOf(host.pid).length === 0, 'the end of the guard')
  // Node reaps the leader, holdfast the guard.
  await host.do("if (child.exitCode === null && child.signalCode === null) await once(child.process ?? child, 'exit')")
  await until(() => stat(host.guard)?.ppid !== host.pid, 'no zombie of the guard')
}

/** By whatever all of a group comes to its end, it is gone; where there is somebody to be told, the report is true. */
export const ends = {
  'end()': async (t, host) => {
    isReport(t, await host.do('return group.end()'), 'end', host.members.length - 1)
    await isClean(t, host)
  },
  'the exit of its leader, killed by something else (C05)': async (t, host) => {
    isReport(
      t,
      await host.do("process.kill(child.pid, 'SIGKILL'); return group.ended"),
      'exit',
      host.members.length - 1,
    )
    await isClean(t, host)
  },
  'SIGKILL of the host (C02)': async (t, host) => {
    host.kill()
    t.deepEqual(await host.exited, { code: null, signal: 'SIGKILL' })
    await noneMarked(host.mark)
    await until(() => !isAlive(host.guard) || argsOf(host.guard)[1] !== '__group-guard', 'the end of the guard')
  },
}
