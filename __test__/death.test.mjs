// The death matrix: whoever dies, of whatever, whenever: nothing is left, and the report says what happened.
import { readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { probe, run, running, spawn } from '../dist/index.js'
import { comm, gone, helpersOf, isAlive, keepersOf, marked, newMark, stat, until } from './support/facts.mjs'
import { fixture, programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { startKiller } from './support/killer.mjs'
import { randomOf } from './support/random.mjs'
import { folderOfFile, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? (process.env.HOLDFAST_LONG ? 20 : 1))
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 0x7fffffff)
const TARGETS = ['host', 'helper', 'keeper', 'command']
const SIGNALS = ['SIGKILL', 'SIGTERM', 'SIGSEGV']
const PHASES = ['before start', 'during start', 'running', 'while ending']
/** HOLDFAST_ONLY=keeper,SIGKILL: the cells whose name begins so, to repeat one. */
const CELLS = TARGETS.flatMap((target) =>
  SIGNALS.flatMap((signal) => PHASES.map((phase) => [target, signal, phase])),
).filter((cell) => String(cell).startsWith(process.env.HOLDFAST_ONLY ?? ''))
const TEN = fixture('ten.sh')
const LEAVES_WITH = 3
const GRACE = 40

const folder = folderOfFile(test)
const killer = startKiller()
const random = randomOf(SEED)
/** Those that their round has not ended. */
const hosts = new Set()

test.after.always('hosts of rounds that failed', async () => {
  await killer.stop()
  for (const host of hosts) host.kill()
})
suite(test, { patience: 0 })

test(`every death leaves nothing and is told truthfully, ${ROUNDS} rounds a cell`, async (t) => {
  t.timeout(30 * 60_000)
  t.log(`HOLDFAST_SEED=${SEED}`)
  const tallies = new Map()
  const failures = []
  for (const cell of CELLS) {
    const [target, signal, phase] = cell
    const tally = {}
    for (let round = 0; round < ROUNDS; round++) {
      let outcome
      try {
        outcome = await rounds[target](signal, phase)
      } catch (error) {
        outcome = 'FAILED'
        failures.push(`${cell}, round ${round}: ${error.message}`)
      }
      tally[outcome] = (tally[outcome] ?? 0) + 1
    }
    tallies.set(String(cell), tally)
  }
  t.log(table(tallies))
  await gone([...keepersSeen].filter(([pid, birth]) => birth === birthOf(pid) && !isOurKeeper(pid)).map(([pid]) => pid))
  t.deepEqual(failures, [])
  t.deepEqual(running(), [])
  const counted = [...tallies.values()].flatMap((tally) => Object.values(tally)).reduce((sum, count) => sum + count, 0)
  t.is(counted, CELLS.length * ROUNDS)
})

const rounds = {
  async host(signal, phase) {
    const { env, mark } = newGround()
    const options = { env, stdio: 'ignore', killSignal: 'SIGUSR1', grace: GRACE }
    const host = startHost(programOf('death/host', { ten: TEN, options }), { options: { cwd: folder } })
    hosts.add(host)
    same(await host.next(), 'ready')
    const [helper] = await until(() => some(helpersOf(host.pid)), 'a helper')
    await until(() => some(keepersOf(helper)), 'a keeper')
    if (phase !== 'before start') {
      host.child.stdin.write('\n')
      same(await host.next(), 'go')
    }
    if (phase === 'during start') spin(random(4_000))
    if (phase === 'running' || phase === 'while ending') {
      await treeOf(await host.next(), mark)
      await setTimeout(random(5))
    }
    if (phase === 'while ending') {
      host.child.stdin.write('\n')
      same(await host.next(), 'ending')
      await setTimeout(random(1.5 * GRACE))
    }
    const keepers = keepersOf(helper)
    host.kill(signal)
    same((await host.exited).signal, signal)
    hosts.delete(host)
    // Keepers leave when nothing is below them, the helper after its last keeper.
    await gone([helper, ...keepers])
    same(marked(mark), [])
    return 'all gone'
  },

  async helper(signal, phase) {
    const { helper } = await ready()
    if (phase === 'before start') {
      process.kill(helper, signal)
      spin(random(1_000))
    } else if (phase === 'during start') killer.arm([helper], constants.signals[signal], random(600))
    const call = start(phase === 'before start' || phase === 'during start' ? LEAVES_WITH : undefined)
    if (phase === 'running' || phase === 'while ending') await treeOf(await call.pid(), call.mark)
    if (phase === 'running') process.kill(helper, signal)
    if (phase === 'while ending') {
      call.child.end()
      await setTimeout(random(1.5 * GRACE))
      process.kill(helper, signal)
    }
    await killer.fired()

    if (signal === 'SIGKILL') await gone([helper])
    else same(isPending(helper, signal), true)
    if (phase === 'running') {
      // The call does not notice.
      same(marked(call.mark).length, 11)
      await until(() => call.seen.length > 0, 'the event spawn')
      same(call.seen.length, 1)
      same((await run('true')).exitCode, 0)
      call.child.end()
    }
    await call.report()
    if (phase === 'before start' || phase === 'during start') call.assertLeft()
    else call.assertEnded()
    // A new one is there at the next call, or the old one still.
    same((await run('true')).report.by, 'keeper')
    const now = helpersOf(process.pid).filter(isAlive)
    same([now.length, now[0] === helper], [1, signal !== 'SIGKILL'])
    return signal === 'SIGKILL' ? 'untouched, helper anew' : 'nothing happens'
  },

  async keeper(signal, phase) {
    const { helper, keepers } = await ready()
    const isKill = signal === 'SIGKILL'
    if (phase === 'before start') {
      for (const keeper of keepers) process.kill(keeper, signal)
      if (isKill) await gone(keepers)
      else for (const keeper of keepers) same(isPending(keeper, signal), true)
    } else if (phase === 'during start') killer.arm(keepers, constants.signals[signal], random(600))
    const call = start(phase === 'before start' || phase === 'during start' ? LEAVES_WITH : undefined)
    if (phase === 'running' || phase === 'while ending') {
      const keeper = await treeOf(await call.pid(), call.mark)
      if (phase === 'running') await setTimeout(random(5))
      else {
        call.child.end()
        await setTimeout(random(1.5 * GRACE))
      }
      process.kill(keeper, signal)
      if (!isKill) {
        same(isPending(keeper, signal), true)
        if (phase === 'running') {
          same(marked(call.mark).length, 11)
          call.child.end()
        }
      }
    }
    await killer.fired()
    await call.report()
    same(helpersOf(process.pid).filter(isAlive), [helper])
    if (!isKill) {
      if (phase === 'before start' || phase === 'during start') call.assertLeft()
      else call.assertEnded()
      return 'nothing happens'
    }
    if (phase === 'before start') {
      call.assertLeft()
      return 'another keeper'
    }
    return call.assertLost(phase)
  },

  async command(signal, phase) {
    await ready()
    const call = start()
    // Known to live: nobody but us ends it.
    const pid = await call.pid()
    if (phase === 'before start') process.kill(pid, signal)
    if (phase === 'during start') {
      spin(random(3_000))
      process.kill(pid, signal)
    }
    if (phase === 'running') {
      await treeOf(pid, call.mark)
      await setTimeout(random(5))
      process.kill(pid, signal)
    }
    if (phase === 'while ending') {
      await treeOf(pid, call.mark)
      call.child.end()
      await setTimeout(random(1.5 * GRACE))
      // By now it may be over, and its number another's: through the keeper, which knows.
      call.child.kill(signal)
    }
    await call.report()
    const { exit, error, report } = call.result
    same(error, undefined)
    same(report.outcome, 'ended')
    same(report.by, 'keeper')
    if (phase === 'while ending') {
      if (exit[1] !== signal && exit[1] !== 'SIGKILL') throw new Error(`exit ${exit}, not ${signal} or SIGKILL`)
      same(report.reason, 'end')
      same(report.leftoverCount, 10)
      return `exit ${exit[1] === signal ? 'by it' : 'by the ladder'}`
    }
    same(exit, [null, signal])
    same(report.reason, 'exit')
    if (phase === 'running') same(report.leftoverCount, 10)
    return `rest swept`
  },
}

// ---- a call under observation
function newGround() {
  const mark = newMark()
  const ran = join(folder, mark)
  return { mark, ran, env: { ...process.env, MARK: mark, RAN: ran } }
}

/** Starts ten.sh; it stays, or leaves ten behind. */
function start(code) {
  const { mark, ran, env } = newGround()
  const args = code === undefined ? [TEN] : [TEN, String(code)]
  const child = spawn('sh', args, { env, stdio: 'ignore', killSignal: 'SIGUSR1', grace: GRACE })
  const result = { exit: undefined, error: undefined, report: undefined }
  const seen = []
  for (const event of ['spawn', 'error', 'exit', 'close', 'ended']) child.on(event, () => seen.push(event))
  child.on('error', (error) => {
    result.error = error
  })
  child.on('exit', (...exit) => {
    result.exit = exit
  })
  child.on('ended', (report) => {
    result.report = report
  })
  const lines = () => {
    try {
      return readFileSync(ran, 'utf8').split('\n').length - 1
    } catch {
      return 0
    }
  }
  const told = () => `${seen} ${JSON.stringify(result)} ${result.error?.message ?? ''}`
  return {
    child,
    mark,
    seen,
    result,
    /** The first look waits for it; a keeper that is starved may tell it later. */
    pid: () => until(() => child.pid, 'the pid'),
    /** The last word; nothing may live then, and nothing was run twice. */
    async report() {
      await until(() => result.report, 'the report')
      // A descendant that is not marked yet would be one that was started after the end.
      same(marked(mark), [], told())
      if (lines() > 1) throw new Error(`it ran ${lines()} times: ${told()}`)
      same(seen.at(-1), 'ended', told())
    },
    /** It ran, left by itself, and its ten were ended. */
    assertLeft() {
      same(result.exit, [LEAVES_WITH, null], told())
      const { outcome, by, reason, leftoverCount } = result.report
      same([outcome, by, reason], ['ended', 'keeper', 'exit'], told())
      // What has not been forked when the first process leaves is forked later, or never.
      if (leftoverCount < 1 || leftoverCount > 12) throw new Error(`${leftoverCount} left over: ${told()}`)
      same(lines(), 1, told())
    },
    /** The ladder was climbed as if nothing had been. */
    assertEnded() {
      same(result.exit, [null, 'SIGKILL'], told())
      const { outcome, by, reason, leftoverCount } = result.report
      same([outcome, by, reason, leftoverCount], ['ended', 'keeper', 'end', 10], told())
    },
    /** Its keeper was killed: which of the true stories it is. */
    assertLost(phase) {
      const { exit, error, report } = result
      const by = `${report.by} ${report.reason}`
      same(report.outcome, error?.ran === 'unclear' && report.by === 'host' ? 'unconfirmed' : 'ended', told())
      if (error !== undefined) {
        same(phase, 'during start', told())
        same(exit, undefined, told())
        if (error.code === 'ERR_HOLDFAST_UNCLEAR') {
          same([error.ran, by], ['unclear', 'helper keeper-gone'], told())
          return 'unclear'
        }
        same([error.code, error.ran, lines()], ['ERR_HOLDFAST_NO_HELPER', false, 0], told())
        return 'refused, nothing ran'
      }
      if (by === 'helper keeper-gone') {
        // The exit may have been told before the keeper died.
        if (phase === 'during start') same(exit[0] ?? LEAVES_WITH, LEAVES_WITH, told())
        else if (phase === 'running') same(exit, [null, null], told())
        else if (![null, 'SIGKILL'].includes(exit[1])) throw new Error(told())
        return 'by the helper'
      }
      // It had reported, or another one took the call.
      if (phase === 'during start') this.assertLeft()
      else if (phase === 'while ending') this.assertEnded()
      else throw new Error(told())
      return phase === 'during start' ? 'completed' : 'had reported'
    },
  }
}

// ---- facts
/** Keepers met, with the time of their start: a number alone may be another's by the time of the last check. */
const keepersSeen = new Map()
const isOurKeeper = (pid) => helpersOf(process.pid).includes(stat(pid)?.ppid)

/** A helper with idle keepers, and no call. */
async function ready() {
  await probe()
  same((await run('true')).exitCode, 0)
  const [helper] = await until(() => some(helpersOf(process.pid).filter(isAlive)), 'a helper')
  const keepers = await until(() => some(keepersOf(helper).filter(isAlive)), 'a keeper')
  for (const keeper of keepers) keepersSeen.set(keeper, birthOf(keeper))
  return { helper, keepers }
}

/** All ten are there, three of them out of the command's session or parentage. Returns the keeper. */
async function treeOf(pid, mark) {
  const keeper = stat(pid).ppid
  await until(() => {
    const all = marked(mark)
    if (all.length !== 11 || !all.every((one) => comm(one) === 'sleep')) return false
    const escaped = all.filter(
      (one) => one !== pid && (stat(one)?.ppid === keeper || stat(one)?.session !== stat(pid)?.session),
    )
    return escaped.length === 3
  }, 'ten descendants, three of which escaped')
  return keeper
}

function birthOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return undefined
  }
}

/**
 * Helper and keepers block every signal. So one that kill() sent, SIGSEGV included (only a fault of their own would get
 * through), arrives, is pending, and stays so for ever.
 */
function isPending(pid, signal) {
  const [, pending] = /^ShdPnd:\s*(\w+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  return (BigInt(`0x${pending}`) & (1n << BigInt(constants.signals[signal] - 1))) !== 0n
}

// ---- small things
const some = (list) => list.length > 0 && list

function same(actual, expected, about = '') {
  const [is, be] = [JSON.stringify(actual), JSON.stringify(expected)]
  if (is !== be) throw new Error(`${is} should be ${be} ${about}`.trim())
}

/** mulberry32: whole numbers below `limit`. */
function spin(microseconds) {
  const end = process.hrtime.bigint() + BigInt(microseconds) * 1000n
  while (process.hrtime.bigint() < end);
}

function table(tallies) {
  const shown = (tally = {}) =>
    Object.entries(tally)
      .map(([outcome, count]) => `${count} ${outcome}`)
      .join(', ')
  const rows = TARGETS.flatMap((target) =>
    SIGNALS.map((signal) => [
      `${target} ${signal}`,
      ...PHASES.map((phase) => shown(tallies.get(String([target, signal, phase])))),
    ]),
  )
  const all = [['', ...PHASES], ...rows]
  const widths = all[0].map((_, column) => Math.max(...all.map((row) => row[column].length)))
  return all
    .map((row) =>
      row
        .map((text, column) => text.padEnd(widths[column]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}
