/**
 * One contained command, seen from the host: what the addon reports of it, in order, and what can be asked of
 * it. What its user sees of that is decided by ContainedCall (spawn) and RunCall (run).
 *
 *   starting ── started ──> running ── exited ──> exited ── ended ──> over
 *       └────── failed or refused ────────────────────────── ended ──> over
 */
import { AsyncResource } from 'node:async_hooks'
import { inspect } from 'node:util'
import { threadId } from 'node:worker_threads'
import type { EndOptions, EndReport } from '../../index'
import { Background, type CallEvent, type CallHandle, type PipeHandle, Place } from '../native/addon'
import {
  enter,
  environment,
  keepLoopAlive,
  letLoopEnd,
  native,
  open,
  setHeard,
  unwatch,
  type Watcher,
  watch,
} from '../native/reactor'
import { clock, dateNow, nextTick, setImmediate } from '../native/timers'
import { unwatchSignal, watchSignal } from '../options/abort'
import { ladderOf, OWN } from '../options/end'
import { signalName } from '../options/signals'
import { discard, Pipe } from '../pipe/pipe'
import type { PipeWritable } from '../pipe/streams'
import { debug } from '../report/debug'
import {
  abortError,
  type HoldfastError,
  noHelper,
  notStarted,
  notSupported,
  refusedError,
  startError,
  tooLong,
} from '../report/errors'
import { debugUncontained } from '../report/messages'
import { notices } from '../report/notices'
import type { Command } from './command'
import { type Event, NOT_STARTED, reportOf, type Usage, usageOf } from './reports'
import { Silence } from './silence'

/** Every call that has not ended, in the order of their starts: also one whose handle was dropped. */
export const calls = new Set<Call>()
/** Calls that have ended, and whose result waits for a consumer. */
export const waiting = new Set<Call>()
/**
 * Before the bound of `backgroundSettle`: a process that wrote within this time counts as still writing. The keeper has
 * the same.
 */
const LATELY = 25
let serial = 0
let hasToldUncontained = false

export abstract class Call extends AsyncResource implements Watcher {
  readonly startedAt = dateNow()
  phase: 'starting' | 'running' | 'exited' | 'over' = 'starting'
  /** Since the start, of everything that was reaped so far. */
  usage: Usage = { userTime: 0, systemTime: 0, maxRss: 0 }
  /** Its pipes may be read: `spawn` comes before data. */
  begun = false
  protected error: HoldfastError | undefined
  /** What was left still wrote to its pipes when `backgroundSettle` was over. */
  protected isIncomplete = false

  /** Places with a pipe. */
  protected readonly piped: readonly number[]

  /** A #name: it has the environment, which is for no log. */
  readonly #command: Command
  private readonly serial = ++serial
  private readonly arrived: CallEvent[] = []
  /** While there are any, what has arrived is kept. */
  private waits = 0
  /** undefined: not started, or ended. */
  private handle: CallHandle | undefined
  private handles: readonly (PipeHandle | null)[] = []
  private readonly pipes: (Pipe | undefined)[] = []
  private knownPid = 0
  private askedForPid = false
  protected endedBy: 'end' | 'abort' | 'idle' | undefined
  private silence: Silence | undefined
  private held = false
  /** Time by clock(). */
  private exitedAt = 0
  private report: EndReport | undefined
  private promise: Promise<EndReport> | undefined
  private resolve: ((report: EndReport) => void) | undefined

  protected constructor(command: Command) {
    super('HOLDFAST', { requireManualDestroy: true })
    this.#command = command
    const piped: number[] = []
    for (let place = 0; place < command.stdio.length; place++)
      if (command.stdio[place] === Place.pipe) piped.push(place)
    this.piped = piped
  }

  // ---- what happens to it
  protected abstract onStarted(): void
  protected abstract onFailed(error: HoldfastError): void
  protected abstract onExited(code: number | null, signal: NodeJS.Signals | null): void
  /** The keeper drains the pipes from here on (background 'keep'). */
  protected abstract onTaken(mechanism: EndReport['mechanism']): void
  /** The last one. settle() is to follow, when all data was delivered. */
  protected abstract onEnded(report: EndReport): void

  get scope(): this {
    return this
  }

  /** No accessor: util.inspect() with `getters` would show the environment. */
  commandOf(): Command {
    return this.#command
  }

  /** The command that errors and running() name. */
  namedOf(): Command {
    return this.commandOf().named ?? this.commandOf()
  }

  /** Starts it. Does not throw: what goes wrong is reported on a later tick. */
  protected start(): void {
    const refusal = this.startOrRefuse()
    if (refusal !== undefined) nextTick(enter, this, this.refused, refusal)
  }

  private startOrRefuse(): HoldfastError | undefined {
    const command = this.commandOf()
    if (command.signal?.aborted) return abortError(command.signal)
    const refusal = tooLong(command.file, command.argv, command.env)
    if (refusal !== undefined) return startError(this.namedOf(), command, refusal)
    try {
      const helper = open()
      // Without a helper the addon can still run it uncontained, and reports that.
      if (helper.problem !== '' && !command.bestEffort) return noHelper(this.namedOf(), helper.problem)
      this.startWith(helper.path)
      return undefined
    } catch (error) {
      return notStarted(this.namedOf(), command, error)
    }
  }

  private startWith(helper: string): void {
    const command = this.commandOf()
    // First: a failure after the start would be reported as if nothing had run.
    if (command.signal !== undefined) watchSignal(command.signal, this)
    const [call, ...pipes] = native.start(
      environment,
      helper,
      command.file,
      command.argv.join('\0'),
      command.env,
      command.cwd,
      command.stdio,
      command.timeout,
      command.killSignal,
      command.grace,
      Background[command.background],
      command.backgroundGrace,
      command.backgroundSettle,
      command.uid,
      command.gid,
      command.detached,
      command.bestEffort,
    )
    this.handle = call
    this.handles = pipes
    watch(call, this)
    calls.add(this)
    this.ref()
  }

  private refused(error: HoldfastError): void {
    this.fail(error)
    this.arrived.push(NOT_STARTED)
    this.deliver()
  }

  ready(): void {
    const { handle } = this
    if (handle === undefined) return
    for (const event of native.receive(handle)) {
      if (event.kind === 'started') this.knownPid = event.pid
      // The handle is free from here on, and may become another call's before this event is delivered.
      if (event.kind === 'ended') {
        unwatch(handle)
        this.handle = undefined
      }
      this.arrived.push(event)
    }
    this.deliver()
  }

  private deliver(): void {
    while (this.waits === 0) {
      const event = this.arrived.shift()
      if (event === undefined) return
      this.received(event)
    }
  }

  /** What has arrived is kept until goOn(). */
  wait(): void {
    this.waits++
  }

  goOn(): void {
    this.waits--
    this.deliver()
  }

  /**
   * Takes `step`, and what follows, when the loop has come round: what was awaited by promises has gone on by then, and
   * so has what was put off by one setImmediate().
   */
  inTurn(step: () => void): void {
    this.wait()
    const take = () => {
      setHeard(false)
      try {
        step()
      } finally {
        this.goOn()
      }
    }
    // One round for what the listener's own setImmediate() came behind, and one for what it asked for.
    setImmediate(() => setImmediate(enter, this, take))
  }

  private received(event: CallEvent): void {
    switch (event.kind) {
      case 'started':
        this.phase = 'running'
        this.watchSilence()
        this.onStarted()
        break
      case 'failed':
        this.fail(startError(this.namedOf(), this.commandOf(), event))
        break
      case 'refused':
        this.fail(refusedError(this.namedOf(), event))
        break
      case 'exited':
        this.phase = 'exited'
        this.silence?.stop()
        this.usage = usageOf(event)
        this.exitedAt = clock()
        // Where nothing is left the end is here, too.
        if (this.arrived.length === 0) for (const place of this.piped) if (place > 0) this.pipe(place)?.exited()
        this.onExited(event.code < 0 ? null : event.code, event.signal < 0 ? null : signalName(event.signal))
        break
      case 'taken':
        for (const pipe of this.pipes) {
          if (!pipe?.handedOver) continue
          if (event.pipes) this.closeHandedOver(pipe)
          else discard(pipe, () => this.closeHandedOver(pipe))
        }
        // What was kept runs until end() or the host's death.
        this.forgetSignal()
        if (event.mechanism === 'none') this.tellUncontained()
        this.onTaken(event.mechanism)
        break
      case 'ended':
        // What is among the survivors has not exited; of what a lost keeper had the status is unknown.
        if (event.reason === 'keeper-gone' && this.phase !== 'exited' && this.error === undefined) {
          this.phase = 'exited'
          this.arrived.unshift(event)
          this.onExited(null, null)
          break
        }
        this.usage = usageOf(event)
        this.isIncomplete = event.settle === 'writing' || (event.settle === 'at-work' && this.hasWrittenLately())
        this.over(this.reportOf(event))
    }
  }

  /** What is read as soon as it comes never fills a pipe, by which the keeper sees that something writes. */
  private hasWrittenLately(): boolean {
    const since = this.exitedAt + this.commandOf().backgroundSettle - LATELY
    return this.pipes.some((pipe) => pipe !== undefined && pipe.lastAfterExit >= since)
  }

  /** The pipes may be read. */
  protected begin(): void {
    this.begun = true
    for (const pipe of this.pipes) pipe?.begin()
  }

  private fail(error: HoldfastError): void {
    this.knownPid = 0
    this.error = error
    this.onFailed(error)
  }

  private over(report: EndReport): void {
    this.phase = 'over'
    this.silence?.stop()
    calls.delete(this)
    this.unref()
    this.forgetSignal()
    this.onEnded(report)
  }

  private tellUncontained(): void {
    if (!hasToldUncontained) debug(debugUncontained(this.commandOf().file))
    hasToldUncontained = true
  }

  private reportOf(event: Event<'ended'>): EndReport {
    const report = reportOf(event, this.isIncomplete)
    if (report.notice === notices.helper) this.tellUncontained()
    // The keeper knows one `end`; what asked for it is known here.
    if (report.reason === 'end' && this.endedBy !== undefined) report.reason = this.endedBy
    if (this.error !== undefined) {
      report.error = this.error
      if (this.error.notice !== undefined) report.notice = this.error.notice
    }
    return report
  }

  // ---- its pipes
  /** The host's end of a place; undefined where there is none, and when it was closed. */
  protected pipe(place: number): Pipe | undefined {
    const known = this.pipes[place]
    if (known !== undefined) return known.open ? known : undefined
    const handle = this.handles[place] ?? undefined
    if (handle === undefined) return undefined
    const pipe = new Pipe(handle, this)
    this.pipes[place] = pipe
    return pipe
  }

  /** Gives what is open of places 1 and up to the keeper; onTaken() or onEnded() follows. */
  protected handOver(): void {
    const handle = this.live()
    if (handle === undefined) return
    const handed: PipeHandle[] = []
    for (const place of this.piped) {
      const pipe = this.pipe(place)
      if (place === 0 || pipe === undefined) continue
      pipe.handedOver = true
      handed.push(pipe.handle)
    }
    native.handOver(handle, handed)
  }

  /** What is left runs on, its pipes are the host's still: onTaken() follows, or onEnded() where nothing is left. */
  protected keepRunning(): void {
    const handle = this.live()
    // A plain child has no keeper, and goes on.
    if (handle !== undefined && !native.handOver(handle, []) && this.phase === 'running') this.onTaken('none')
  }

  private closeHandedOver(pipe: Pipe): void {
    pipe.handedOver = false
    pipe.close()
  }

  /** Everything that is still open, whether or not the keeper was to have it. */
  protected closePipes(): void {
    for (const place of this.piped) {
      const pipe = this.pipe(place)
      if (pipe !== undefined) this.closeHandedOver(pipe)
    }
  }

  /** stdin, for the code that feeds it from a stream of the host; the user does not get it. */
  abstract fedStdin(): PipeWritable

  // ---- what can be asked of it
  get id(): string {
    return `${process.pid}-${threadId}-${this.serial}`
  }

  /** The first read waits for the keeper's message, at most 20 ms. */
  get pid(): number | undefined {
    if (this.knownPid === 0 && this.phase === 'starting' && this.handle !== undefined && this.error === undefined) {
      this.knownPid = native.pid(this.handle, !this.askedForPid)
      this.askedForPid = true
    }
    return this.knownPid === 0 ? undefined : this.knownPid
  }

  get ended(): Promise<EndReport> {
    this.promise ??=
      this.report === undefined
        ? new Promise((resolve) => {
            this.resolve = resolve
          })
        : Promise.resolve(this.report)
    return this.promise
  }

  /** Whether endAll() is to end the wait for a consumer, where nothing of the call runs any more. */
  protected setWaiting(isWaiting: boolean): void {
    if (isWaiting) waiting.add(this)
    else waiting.delete(this)
  }

  /** All was delivered. */
  protected settle(report: EndReport): void {
    if (this.report !== undefined) return
    this.report = report
    this.resolve?.(report)
    this.emitDestroy()
  }

  signal(signal: number, group: boolean): boolean {
    // After `exit` its first process is no more, whatever of the call lives on.
    if (!group && this.phase === 'exited') return false
    const handle = this.live()
    return handle !== undefined && native.signal(handle, signal, group)
  }

  /** @throws TypeError or RangeError for wrong options */
  end(options?: EndOptions): Promise<EndReport> {
    const { signal, grace } = ladderOf(options)
    // The ladder is climbed once; a later call with options of its own may shorten it.
    const handle = this.live()
    if (handle !== undefined && (this.endedBy === undefined || signal !== OWN || grace !== OWN)) {
      this.endedBy ??= 'end'
      native.end(handle, signal, grace)
    }
    // It is awaited, also where the call itself was not to keep the loop alive.
    this.ref()
    return this.ended
  }

  abort(): void {
    this.endBy('abort')
  }

  /** The limit of silence. */
  protected idle(): void {
    this.endBy('idle')
  }

  private endBy(what: 'abort' | 'idle'): void {
    const handle = this.live()
    if (handle === undefined || this.endedBy !== undefined) return
    this.endedBy = what
    native.end(handle, OWN, OWN)
  }

  private watchSilence(): void {
    const { idleTimeout } = this.commandOf()
    if (idleTimeout === 0) return
    const outputs = () => [1, 2].map((place) => this.pipe(place)).filter((pipe) => pipe !== undefined)
    this.silence = new Silence(idleTimeout, outputs, () => this.idle())
  }

  /** The first process passes on what it is sent (a session's starter). */
  setStarter(): void {
    const handle = this.live()
    if (handle !== undefined) native.setStarter(handle)
  }

  protected get isLive(): boolean {
    return this.live() !== undefined
  }

  /** undefined: there is nothing to ask any more. */
  private live(): CallHandle | undefined {
    return this.phase === 'over' ? undefined : this.handle
  }

  async release(): Promise<EndReport> {
    throw notSupported('release()')
  }

  /** For a log: what identifies the call, without its environment. */
  facts(): object {
    return {
      id: this.id,
      pid: this.pid,
      file: this.namedOf().file,
      state: this.phase === 'over' ? 'ended' : this.phase,
    }
  }

  toJSON(): object {
    return this.facts()
  }

  [inspect.custom](): object {
    return this.facts()
  }

  /** An abort no longer concerns it. */
  protected forgetSignal(): void {
    const { signal } = this.commandOf()
    if (signal !== undefined) unwatchSignal(signal, this)
  }

  ref(): void {
    if (this.held || !this.isLive) return
    this.held = true
    keepLoopAlive()
  }

  unref(): void {
    if (!this.held) return
    this.held = false
    letLoopEnd()
  }
}
