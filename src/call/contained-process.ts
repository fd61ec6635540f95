/** spawn(): a call in the shape of a ChildProcess. */
import { ChildProcess } from 'node:child_process'
import { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import { type InspectOptions, inspect } from 'node:util'
import type * as api from '../../index'
import { Place } from '../native/addon'
import { enter, setHeard, wasHeard } from '../native/reactor'
import { nextTick } from '../native/timers'
import { SPAWN } from '../options/names'
import { SIGTERM, signalNumber } from '../options/signals'
import { AFTER_THE_END, HELD_BY_KERNEL, type Head, Reader } from '../pipe/pipe'
import { PipeDuplex, PipeReadable, type PipeStream, PipeWritable, type StreamOwner } from '../pipe/streams'
import { codes, type HoldfastError, notSupported } from '../report/errors'
import { Call } from './call'
import { type Command, commandOf, splitArguments } from './command'
import { givenOf } from './given'
import { placesOf } from './places'

/** @see the declaration in index.d.ts */
export function spawn(file: string, second?: unknown, third?: unknown): ContainedProcess {
  const { args, options } = splitArguments(second, third, SPAWN)
  const places = placesOf(options.stdio)
  const given = givenOf(options.stdio, places)
  const child = new ContainedProcess(commandOf(file, args, options, places))
  given?.take(callOf(child))
  return child
}

/** The call behind it: a symbol and not a #name, so that it is found through a proxy as well. */
const behind = Symbol('holdfast.call')

/** But for `stdio` (as long as there are places) and the listeners' types, which only a declaration can have. */
type Shape = Omit<api.ContainedProcess, 'stdio' | keyof EventEmitter>

export class ContainedProcess extends EventEmitter implements Shape {
  readonly spawnfile: string
  readonly spawnargs: string[]
  readonly connected = false
  exitCode: number | null = null
  signalCode: NodeJS.Signals | null = null
  killed = false
  declare readonly [behind]: ContainedCall

  constructor(command: Command) {
    super()
    this.spawnfile = command.file
    this.spawnargs = command.argv as string[]
    // Not enumerable: what prints a ChildProcess prints all that it finds.
    Object.defineProperty(this, behind, { value: new ContainedCall(command, this) })
  }

  get pid(): number | undefined {
    return this[behind].pid
  }
  get id(): string {
    return this[behind].id
  }
  get stdin(): Writable | null {
    return this[behind].stream(0) as Writable | null
  }
  get stdout(): Readable | null {
    return this[behind].stream(1) as Readable | null
  }
  get stderr(): Readable | null {
    return this[behind].stream(2) as Readable | null
  }
  get stdio(): (PipeStream | null)[] {
    return this[behind].commandOf().stdio.map((_, place) => this[behind].stream(place))
  }
  get ended(): Promise<api.EndReport> {
    return this[behind].ended
  }

  kill(signal: NodeJS.Signals | number = SIGTERM): boolean {
    const number = signal === 0 ? 0 : signalNumber(signal)
    const handed = this[behind].signal(number, false)
    if (handed) this.killed = true
    return handed
  }
  killGroup(signal: NodeJS.Signals | number = SIGTERM): boolean {
    return this[behind].signal(signal === 0 ? 0 : signalNumber(signal), true)
  }
  end(options?: api.EndOptions): Promise<api.EndReport> {
    return this[behind].end(options)
  }
  release(): Promise<api.EndReport> {
    return this[behind].release()
  }
  resize(): void {
    throw notSupported('resize()')
  }
  ref(): void {
    this[behind].ref()
  }
  unref(): void {
    this[behind].unref()
  }
  send(): boolean {
    throw notSupported("send() (the stdio value 'ipc')")
  }
  disconnect(): void {
    throw notSupported("disconnect() (the stdio value 'ipc')")
  }
  [inspect.custom](_depth: number, options: InspectOptions): string {
    return `ContainedProcess ${inspect(this[behind].facts(), options)}`
  }
  [Symbol.dispose](): void {
    if (!this.killed) this.kill()
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.end()
  }
}

// For `instanceof ChildProcess`. Every member of it is our own; its constructor, which makes a handle, is
// never called.
Object.setPrototypeOf(ContainedProcess.prototype, ChildProcess.prototype)

export const callOf = (child: ContainedProcess): ContainedCall => child[behind]

/**
 * What the user of a ContainedProcess sees of its call, and in which order.
 *
 * What an event makes its listeners do is done before the next one: code that awaits `spawn` and then listens for data
 * gets all of it, and code that reads stdout to its end and then awaits `close` is not too late. child_process has that
 * from libuv, where each event is a callback of its own. Here they may arrive in one message, so a turn of the loop is
 * put between them where the one before had a listener.
 */
class ContainedCall extends Call implements StreamOwner {
  private readonly streams: (PipeStream | undefined)[] = []
  /** What was read of a place before it became a stream. */
  private readonly heads: (Head | undefined)[] = []
  private readonly finished: boolean[] = []
  /** Places with a pipe that has not been closed. */
  private openPlaces: number
  /** Between handOver() and its answer. */
  private isHandingOver = false
  /** Its stdin is fed from a stream of the host: `child.stdin` is null, as for one that is inherited. */
  private isFed = false
  /** Something was emitted since the last turn. */
  private hasEmitted = false
  /** `exit`, if there is one, was emitted. */
  private mayClose = false
  private isClosed = false
  private isFinished = false
  private lastReport: api.EndReport | undefined

  constructor(
    command: Command,
    private readonly child: ContainedProcess,
  ) {
    super(command)
    this.openPlaces = this.piped.length
    this.start()
  }

  /** Made at the first access: most programs never touch stdin, and many no stream at all. */
  stream(place: number): PipeStream | null {
    if (this.commandOf().stdio[place] !== Place.pipe || (place === 0 && this.isFed)) return null
    this.streams[place] ??= this.makeStream(place)
    return this.streams[place]
  }

  fedStdin(): PipeWritable {
    const stdin = this.stream(0) as PipeWritable
    this.isFed = true
    return stdin
  }

  private makeStream(place: number): PipeStream {
    const head = this.heads[place]?.head
    const pipe = this.pipe(place)
    if (pipe === undefined) this.finishPlace(place)
    pipe?.reader?.leave()
    if (place === 0) return new PipeWritable(pipe, this)
    return place < 3 ? new PipeReadable(pipe, this, head) : new PipeDuplex(pipe, this)
  }

  /** Reads a place before it becomes a stream. */
  readAhead(place: number, into: Head): void {
    this.heads[place] = into
    const pipe = this.pipe(place)
    if (pipe !== undefined) new Reader(pipe, into).more()
  }

  // ---- what happens
  protected onStarted(): void {
    this.announce('spawn')
    this.whenHeard(this.begin)
  }

  protected onFailed(error: HoldfastError): void {
    // Aborted before the start: there is nothing to close.
    if (error.code === codes.aborted) this.isClosed = true
    else this.child.exitCode = error.errno ?? null
    this.closeStdin()
    this.announce('error', error)
    nextTick(() => this.resumeUnread())
  }

  protected onExited(code: number | null, signal: NodeJS.Signals | null): void {
    this.whenHeard(() => {
      this.child.exitCode = code
      this.child.signalCode = signal
      this.closeStdin()
      this.announce('exit', code, signal)
      this.whenHeard(this.afterExit)
    })
  }

  private afterExit(): void {
    this.mayClose = true
    if (this.commandOf().background === 'keep') {
      this.conclude(HELD_BY_KERNEL)
      this.isHandingOver = true
      this.handOver()
    }
    nextTick(() => this.resumeUnread())
    this.closeIfDone()
  }

  protected onTaken(): void {
    this.isHandingOver = false
    this.dropUntouched()
    this.closeIfDone()
  }

  protected onEnded(report: api.EndReport): void {
    this.lastReport = report
    this.mayClose = true
    this.isHandingOver = false
    // The keeper's own signal, which is known from here on.
    if (report.reason === 'timeout') this.child.killed = true
    this.conclude(report.outcome === 'ended' ? AFTER_THE_END : HELD_BY_KERNEL)
    this.dropUntouched()
    this.closePipes()
    if (this.openPlaces === 0) this.closeIfDone()
    // A flowing stream emits what it holds, and closes, in ticks: before this. One that is paused is not waited for.
    else this.later(this.finish)
  }

  // ---- what is asked of it
  override end(options?: api.EndOptions): Promise<api.EndReport> {
    const isLive = this.isLive
    const ended = super.end(options)
    if (isLive) this.child.killed = true
    return ended
  }

  override abort(): void {
    if (this.isLive) this.child.killed = true
    super.abort()
  }

  protected override idle(): void {
    if (this.isLive) this.child.killed = true
    super.idle()
  }

  // ---- what follows from it
  private closeStdin(): void {
    if (this.commandOf().stdio[0] !== Place.pipe) return
    const stdin = this.streams[0]
    if (stdin === undefined) this.drop(0)
    else stdin.destroy()
  }

  /** Streams take what the kernel holds; then it is their end. */
  private conclude(most: number): void {
    for (const stream of this.streams) stream?.conclude(most)
  }

  private dropUntouched(): void {
    for (const place of this.piped) if (this.streams[place] === undefined) this.drop(place)
  }

  private drop(place: number): void {
    this.pipe(place)?.close()
    this.finishPlace(place)
  }

  /** A stream without a reader would keep `close` back, and what is left of the call busy writing. */
  private resumeUnread(): void {
    for (const place of this.piped) {
      // What was handed over, or has ended, needs no reader.
      const stream =
        this.commandOf().background === 'keep' || this.phase !== 'exited' ? this.streams[place] : this.stream(place)
      if (stream && 'readableFlowing' in stream && stream.readableFlowing === null) stream.resume()
    }
  }

  streamClosed(stream: PipeStream): void {
    this.streamed()
    this.finishPlace(this.streams.indexOf(stream))
    this.closeIfDone()
  }

  private finishPlace(place: number): void {
    if (this.finished[place]) return
    this.finished[place] = true
    this.openPlaces--
  }

  private closeIfDone(): void {
    if (!this.mayClose || this.isHandingOver || this.openPlaces > 0) return
    this.whenHeard(this.finish)
  }

  private close(): void {
    if (this.isClosed) return
    this.isClosed = true
    this.announce('close', this.child.exitCode, this.child.signalCode)
  }

  /** The order is kept, whichever way it ends: close, ended, and only then the promise. */
  private finish(): void {
    this.close()
    const report = this.lastReport
    if (report === undefined || this.isFinished) return
    this.isFinished = true
    this.whenHeard(() => {
      this.announce('ended', report)
      this.settle(report)
    })
  }

  // ---- events and turns
  streamed(): void {
    this.hasEmitted = true
    setHeard(true)
  }

  private announce(event: string, ...args: unknown[]): void {
    enter(this, this.emit, event, ...args)
  }

  private emit(event: string, ...args: unknown[]): void {
    if (this.child.listenerCount(event) > 0) this.streamed()
    this.child.emit(event, ...args)
  }

  /** At once, or a turn later if events were emitted just now. */
  private whenHeard(step: (this: ContainedCall) => void): void {
    if (this.hasEmitted || wasHeard()) this.later(step)
    else step.call(this)
  }

  private later(step: (this: ContainedCall) => void): void {
    this.inTurn(() => {
      this.hasEmitted = false
      step.call(this)
    })
  }
}
