/**
 * guard(): contains what other code has started. A process outside the group, the guard, holds it and ends it; here
 * is its handle. The addon names the leader by a pidfd before anything is awaited, so that its number cannot become
 * another's, and starts the guard, which is then written to and read from over one pipe, in lines:
 *
 *   guard to host   ready <held>       pin, pidfd or members: by what it holds the group
 *                   refused <why>      instead of ready: it cannot hold it
 *                   ending             before its first signal
 *                   leftover <pid> <name>, survivor <pid> <name>
 *                   cut-off            what the leader left was still writing to its pipes
 *                   <outcome> <reason> <microseconds> <leftovers>     the last line
 *   host to guard   end <signal> <milliseconds to SIGKILL>, release; the end of the pipe is the host's death
 *
 * A guard that leaves without its last line has died, and another one takes its place. When that cannot be, no process
 * watches the group any more, and the report has `unconfirmed`. It has that as well when the lost guard had begun the
 * end: its first signal may have taken the parents by which it had found what left the group, and the next guard does
 * not find that.
 */
import { AsyncResource } from 'node:async_hooks'
import type { EndOptions, EndReport, Guard, ProcessInfo } from '../../index'
import type { GuardHandle, GuardStart, LeaderHandle } from '../native/addon'
import { type HelperFile, verified } from '../native/load'
import { environment, keepLoopAlive, letLoopEnd, native, open } from '../native/reactor'
import { clearTimeout, clock, setTimeout } from '../native/timers'
import { type Abortable, abortSignal, unwatchSignal, watchSignal } from '../options/abort'
import { ladderOf, OWN } from '../options/end'
import { GUARD, optionsOf } from '../options/names'
import { SIGTERM } from '../options/signals'
import { GRACE, oneOf } from '../options/values'
import { lent, Pipe, type PipeCall, Reader, type Sink, Writer } from '../pipe/pipe'
import { debug } from '../report/debug'
import {
  abortError,
  guardError,
  guardWithoutHelper,
  type HoldfastError,
  invalidType,
  invalidValue,
  noDescriptor,
  outOfRange,
  systemCode,
} from '../report/errors'
import * as messages from '../report/messages'
import { notices } from '../report/notices'

const MOST_PID = 2 ** 31 - 1
/** A guard is ready within milliseconds; one that is not by then is stopped, or is not a guard. */
const READY_WITHIN = 5000
/** Guards lost in a row before they were ready. */
const MOST_UNREADY = 2
/** Guards lost in a row, each within a second of its start: they are not killed, they die of themselves. */
const MOST_SHORT = 32
const SHORT = 1000
const REAP_AGAIN = 20
/** No guard sends a longer line. */
const LONGEST_LINE = 4096

const READY = /^ready (pin|pidfd|members)$/
const REFUSED = /^refused (\S+)$/
const PROCESS = /^(leftover|survivor) (\d+) (.*)$/
const ENDING = 'ending'
const CUT_OFF = 'cut-off'
const LAST = /^(ended|unconfirmed|survivors|refused|released) (exit|end|release|host-gone) (\d+) (\d+)$/

/**
 * @see the declaration in index.d.ts. What is thrown in here rejects; nothing is awaited before the guard is started.
 */
export async function guard(target: unknown, options?: unknown): Promise<Guard> {
  const pid = pidOf(target)
  const { signal: given, background } = optionsOf(options, GUARD)
  const signal = abortSignal(given)
  const endOnExit = oneOf('background', background, ['end', 'keep']) !== 'keep'
  if (signal?.aborted) throw abortError(signal, undefined, true)

  const helper = helperFor(pid)
  const start = native.guard(environment, helper, pid, endOnExit, GRACE)
  if (start.problem !== '') throw refusal(pid, start)
  return new Promise((resolve, reject) => {
    new GuardedGroup(start, { pid, helper, endOnExit, signal }, { resolve, reject })
  })
}

function pidOf(target: unknown): number {
  const isNumber = typeof target === 'number'
  if (!isNumber && (typeof target !== 'object' || target === null)) {
    throw invalidType('target', 'a child process or a pid', target)
  }
  const name = isNumber ? 'target' : 'target.pid'
  const pid = isNumber ? target : (target as { pid?: unknown }).pid
  if (pid === undefined) throw invalidValue(name, 'is not set: the process was not started', pid)
  if (typeof pid !== 'number') throw invalidType(name, 'of type number', pid)
  // 0, 1 and negative ones name groups, or all processes.
  if (!Number.isInteger(pid) || pid <= 1 || pid > MOST_PID) {
    throw outOfRange(name, `an integer from 2 to ${MOST_PID}`, pid)
  }
  if (pid === process.pid) throw invalidValue(name, 'is this process itself', pid)
  // Its number is free, and may be another child's.
  if (!isNumber && hasExited(target as Exit)) throw guardError(pid, 'dead', 0)
  return pid
}

interface Exit {
  readonly exitCode?: unknown
  readonly signalCode?: unknown
}

const hasExited = ({ exitCode, signalCode }: Exit) => typeof exitCode === 'number' || typeof signalCode === 'string'

/** Once: a guard says nothing of its version before it holds the group. */
let known: HelperFile | undefined

/** The path of the helper. @throws HoldfastError when there is none */
function helperFor(pid: number): string {
  let problem: string
  let errno: number | undefined
  try {
    known ??= verified(open())
    if (known.problem === '') return known.path
    problem = known.problem
    known = undefined
  } catch (error) {
    const why = error as HoldfastError
    problem = why.message
    if (why.errno !== undefined) errno = -why.errno
  }
  tellUnguarded(pid)
  throw guardWithoutHelper(pid, problem, errno)
}

let hasTold = false

/** Once: a host that goes on without is not to be filled with this. */
function tellUnguarded(pid: number): void {
  if (!hasTold) debug(messages.debugUnguarded(pid))
  hasTold = true
}

function refusal(pid: number, { problem, errno }: GuardStart): HoldfastError {
  return messages.isGuardReason(problem)
    ? guardError(pid, problem, errno)
    : guardWithoutHelper(pid, messages.GUARD_LOST.start(systemCode(errno), noDescriptor(errno)), errno)
}

interface Wishes {
  readonly pid: number
  readonly helper: string
  readonly endOnExit: boolean
  readonly signal: AbortSignal | undefined
}
interface Settle {
  resolve(guard: Guard): void
  reject(error: unknown): void
}
/** The ladder, as it was asked for. */
interface Ending {
  readonly by: 'end' | 'abort'
  readonly signal: number
  /** Time by clock(). */
  readonly killAt: number
}

class GuardedGroup extends AsyncResource implements PipeCall, Abortable {
  readonly begun = true
  private phase: 'starting' | 'held' | 'over' = 'starting'
  private readonly group: number
  private readonly leader: LeaderHandle
  private guard: GuardProcess
  /** Guards that left before they were ready, in a row. */
  private unready = 0
  /** Guards that left soon after their start, in a row. */
  private short = 0
  private ending: Ending | undefined
  private wantsRelease = false
  /** A guard was lost that had begun the end, and with it what it had found. */
  private hasLostFound = false
  private keepsAlive = false
  private settle!: (report: EndReport) => void
  private readonly settled = new Promise<EndReport>((resolve) => {
    this.settle = resolve
  })

  constructor(
    start: GuardStart,
    private readonly wishes: Wishes,
    private readonly outcome: Settle,
  ) {
    super('HOLDFAST', { requireManualDestroy: true })
    this.group = start.group
    this.leader = start.leader
    if (wishes.signal !== undefined) watchSignal(wishes.signal, this)
    this.keepAlive()
    this.guard = new GuardProcess(start, this)
    this.guard.listen()
  }

  // ---- what its guard sends
  onReady(held: string): void {
    debug(messages.debugGuardReady(this.group, held))
    if (this.phase !== 'starting') return
    this.phase = 'held'
    this.letLoopEnd()
    this.outcome.resolve(this.handle())
  }

  onRefused(why: string): void {
    if (messages.isGuardReason(why)) this.giveUp(guardError(this.wishes.pid, why, 0))
    else this.onLost()
  }

  onReport(report: EndReport): void {
    if (report.reason === 'end' && this.ending?.by === 'abort') report.reason = 'abort'
    if (this.hasLostFound) {
      if (report.outcome === 'ended') report.outcome = 'unconfirmed'
      // The leader may have ended by the lost guard's first signal.
      if (report.reason === 'exit') report.reason = this.ending?.by ?? 'exit'
    }
    this.over(report)
  }

  /** It left without its last line, or has sent something that no guard sends. */
  onLost(): void {
    this.unready = this.guard.isReady ? 0 : this.unready + 1
    this.short = this.guard.age > SHORT ? 0 : this.short + 1
    if (this.unready === MOST_UNREADY || this.short === MOST_SHORT) {
      this.giveUp(guardWithoutHelper(this.wishes.pid, messages.GUARD_LOST.silent))
      return
    }
    if (this.guard.isEnding) this.hasLostFound = true
    debug(messages.debugGuardLost(this.group))
    const { pid, helper, endOnExit } = this.wishes
    const start = native.guardAgain(environment, helper, this.leader, endOnExit, GRACE)
    if (start.problem !== '') {
      this.giveUp(refusal(pid, start))
      return
    }
    this.guard = new GuardProcess(start, this)
    // A request to the guard before it may have been lost with that one.
    this.sendEnd()
    if (this.isReleasing) this.guard.send('release')
    this.guard.listen()
  }

  private giveUp(error: HoldfastError): void {
    if (this.phase !== 'starting') {
      this.over(lostReport())
      return
    }
    this.leave()
    this.outcome.reject(error)
  }

  private over(report: EndReport): void {
    this.leave()
    const notice = this.noticeOf(report)
    this.settle(notice === undefined ? report : { ...report, notice })
  }

  private noticeOf({ outcome }: EndReport): string | undefined {
    if (this.wantsRelease && outcome !== 'released') return notices.release
    return outcome === 'ended' || outcome === 'released' ? undefined : notices.end
  }

  private leave(): void {
    this.phase = 'over'
    this.guard.close()
    native.forgetLeader(this.leader)
    if (this.wishes.signal !== undefined) unwatchSignal(this.wishes.signal, this)
    this.letLoopEnd()
    this.emitDestroy()
  }

  // ---- what can be asked of it
  private handle(): Guard {
    const self = this
    return {
      group: this.group,
      get ended() {
        return self.ended
      },
      end: (options) => this.end(options),
      release: () => this.release(),
      [Symbol.asyncDispose]: async () => {
        await this.end()
      },
    }
  }

  /** The loop is kept alive for it; the child, which was to do that, may be gone by now. */
  private get ended(): Promise<EndReport> {
    this.keepAlive()
    return this.settled
  }

  private end(options?: EndOptions): Promise<EndReport> {
    const { signal, grace } = ladderOf(options)
    this.begin('end', signal, grace)
    return this.ended
  }

  abort(): void {
    this.begin('abort', OWN, OWN)
  }

  /** The ladder is climbed once; a later call with options of its own may shorten it. */
  private begin(by: Ending['by'], signal: number, grace: number): void {
    if (this.phase === 'over' || this.isReleasing) return
    const isPlain = signal === OWN && grace === OWN
    if (this.ending !== undefined && isPlain) return
    const killAt = clock() + (grace === OWN ? GRACE : grace)
    this.ending = {
      by: this.ending?.by ?? by,
      signal: signal === OWN ? SIGTERM : signal,
      killAt: Math.min(killAt, this.ending?.killAt ?? killAt),
    }
    this.sendEnd()
  }

  private sendEnd(): void {
    if (this.ending === undefined) return
    const { signal, killAt } = this.ending
    this.guard.send(`end ${signal} ${Math.ceil(Math.max(0, killAt - clock()))}`)
  }

  private release(): Promise<EndReport> {
    if (this.phase !== 'over' && !this.wantsRelease) {
      this.wantsRelease = true
      if (this.isReleasing) this.guard.send('release')
    }
    return this.ended
  }

  /** Once the end has begun, release() has no effect. */
  private get isReleasing(): boolean {
    return this.wantsRelease && this.ending === undefined
  }

  /** Keeps the loop alive: until it is ready, and while its end is awaited. */
  private keepAlive(): void {
    if (this.keepsAlive || this.phase === 'over') return
    this.keepsAlive = true
    keepLoopAlive()
  }

  private letLoopEnd(): void {
    if (!this.keepsAlive) return
    this.keepsAlive = false
    letLoopEnd()
  }
}

/** One guard: its lines. It reports one end to its group, once. */
class GuardProcess implements Sink {
  isReady = false
  isEnding = false
  private readonly startedAt = clock()
  private isOpen = true
  private readonly pipe: Pipe
  private readonly reader: Reader
  private readonly writer: Writer
  private readonly timer: NodeJS.Timeout
  private text = ''
  private unsent = ''
  private isSending = false
  private readonly leftovers: ProcessInfo[] = []
  private readonly survivors: ProcessInfo[] = []
  private isCutOff = false

  constructor(
    private readonly start: GuardStart,
    private readonly group: GuardedGroup,
  ) {
    this.pipe = new Pipe(start.pipe, group)
    this.reader = new Reader(this.pipe, this)
    this.writer = new Writer(this.pipe)
    this.timer = setTimeout(() => this.late(), READY_WITHIN).unref()
  }

  get age(): number {
    return clock() - this.startedAt
  }

  listen(): void {
    this.reader.more()
  }

  // ---- to it
  send(line: string): void {
    this.unsent += `${line}\n`
    this.write()
    // It may have been stopped.
    native.wakeGuard(this.start.guard)
  }

  /** That it does not read any more is noticed by the end of its lines. */
  private write(): void {
    if (this.isSending || this.unsent === '') return
    const bytes = Buffer.from(this.unsent)
    this.unsent = ''
    this.isSending = true
    this.writer.write(bytes, () => {
      this.isSending = false
      this.write()
    })
  }

  close(): void {
    this.isOpen = false
    clearTimeout(this.timer)
    this.pipe.close()
    reap(this.start.guard)
  }

  // ---- from it
  received(length: number): boolean {
    // One character a byte, so that a name may be cut anywhere.
    const lines = (this.text + lent(length).toString('latin1')).split('\n')
    this.text = lines.pop() as string
    for (const line of lines) if (this.isOpen) this.receive(line)
    if (this.isOpen && this.text.length > LONGEST_LINE) this.lose()
    return this.isOpen
  }

  private receive(line: string): void {
    const [, held] = READY.exec(line) ?? []
    const [, why] = REFUSED.exec(line) ?? []
    const [, kind, pid, name] = PROCESS.exec(line) ?? []
    const [, outcome, reason, proof, count] = LAST.exec(line) ?? []
    if (held !== undefined && !this.isReady) {
      this.isReady = true
      clearTimeout(this.timer)
      this.group.onReady(held)
    } else if (why !== undefined && !this.isReady) {
      this.close()
      this.group.onRefused(why)
    } else if (line === ENDING && this.isReady) {
      this.isEnding = true
    } else if (line === CUT_OFF && this.isReady) {
      this.isCutOff = true
    } else if (name !== undefined && this.isReady) {
      const list = kind === 'survivor' ? this.survivors : this.leftovers
      list.push({ pid: Number(pid), name: Buffer.from(name, 'latin1').toString() })
    } else if (outcome !== undefined && this.isReady) {
      this.close()
      this.group.onReport({
        outcome: outcome as EndReport['outcome'],
        mechanism: 'group',
        by: 'guard',
        reason: reason as EndReport['reason'],
        leftovers: this.leftovers,
        leftoverCount: Number(count),
        released: [],
        survivors: this.survivors,
        proofTime: Number(proof) / 1000,
        ...(this.isCutOff && { notice: notices.background }),
      })
    } else {
      this.lose()
    }
  }

  finished(): void {
    if (this.isOpen) this.lose()
  }

  /** It is not ready in time. */
  private late(): void {
    // Its line may have come while the loop was blocked.
    this.reader.ready()
    if (this.isOpen && !this.isReady) this.lose()
  }

  private lose(): void {
    // If it lives after all, the end of the pipe would have it end the group.
    this.send('release')
    this.close()
    this.group.onLost()
  }
}

/** Reaps a guard, also where its end cannot be watched. */
function reap(guard: GuardHandle): void {
  if (!native.reapGuard(guard)) setTimeout(reap, REAP_AGAIN, guard).unref()
}

const lostReport = (): EndReport => ({
  outcome: 'unconfirmed',
  mechanism: 'group',
  by: 'host',
  reason: 'guard-gone',
  leftovers: [],
  leftoverCount: 0,
  released: [],
  survivors: [],
  proofTime: 0,
})
