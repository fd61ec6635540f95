/** run(): one call, its whole output, one result. It reads the pipes itself, without streams in between. */
import { finished, type Readable } from 'node:stream'
import type { EndOptions, EndReport, RunOptions, RunResult } from '../../index'
import { Place } from '../native/addon'
import { clearTimeout, clock, setTimeout } from '../native/timers'
import { watchSignal } from '../options/abort'
import { RUN } from '../options/names'
import { integer } from '../options/values'
import { AFTER_THE_END, HELD_BY_KERNEL, lent, type Pipe, Reader, type Sink, Writer } from '../pipe/pipe'
import { PipeWritable } from '../pipe/streams'
import { abortError, codes, HoldfastError, invalidType, invalidValue, outOfRange } from '../report/errors'
import * as messages from '../report/messages'
import { notices } from '../report/notices'
import { Call } from './call'
import { type Command, commandOf, splitArguments } from './command'
import { givenOf } from './given'
import { keptViewOf } from './kept'
import { longestOutput, Output } from './output'
import { placesOf } from './places'

const MAX_OUTPUT = 64 * 1024 * 1024
/** Bytes; of which a message has less. */
const ERROR_TAIL = 4096
const ENCODINGS =
  "must be one of: 'utf8', 'utf16le', 'latin1', 'ascii', 'hex', 'base64', 'base64url', 'buffer', or another name of one of them"

type Result = RunResult<string | Uint8Array>
type Consumer = NonNullable<RunOptions['onOutput']>
interface Wishes {
  readonly input: string | Uint8Array | Readable | undefined
  readonly encoding: BufferEncoding | 'buffer'
  /** undefined: the default, and more than that is not ok. */
  readonly maxOutput: number | undefined
  readonly check: boolean
  readonly onOutput: Consumer | undefined
  readonly yieldAfter: number
}

/** @see the declaration in index.d.ts */
export function run(file: string, second?: unknown, third?: unknown): Promise<Result> {
  // What is thrown in here rejects.
  return new Promise((resolve, reject) => {
    const { args, options } = splitArguments(second, third, RUN)
    const wishes = wishesOf(options as RunOptions)
    const places = runPlaces(options.stdio, wishes)
    const given = givenOf(options.stdio, places)
    const call = new RunCall(commandOf(file, args, options, places), wishes, { resolve, reject })
    given?.take(call)
  })
}

function wishesOf(options: RunOptions): Wishes {
  const { input, encoding = 'utf8', maxOutput, check = false, onOutput } = options
  if (input !== undefined && typeof input !== 'string' && !ArrayBuffer.isView(input) && !isReadable(input)) {
    throw invalidType('options.input', 'a string, a Uint8Array or a Readable', input)
  }
  if (encoding !== 'buffer' && !Buffer.isEncoding(encoding)) {
    throw invalidValue('options.encoding', ENCODINGS, encoding)
  }
  if (maxOutput !== undefined && typeof maxOutput !== 'number') {
    throw invalidType('options.maxOutput', 'of type number', maxOutput)
  }
  if (maxOutput !== undefined && !(maxOutput >= 0)) throw outOfRange('options.maxOutput', 'at least 0', maxOutput)
  if (onOutput !== undefined && typeof onOutput !== 'function') {
    throw invalidType('options.onOutput', 'a function', onOutput)
  }
  const yieldAfter = integer('yieldAfter', options.yieldAfter, 0)
  return { input, encoding: encoding.toLowerCase() as typeof encoding, maxOutput, check, onOutput, yieldAfter }
}

/** A consumer may return something that is no promise (`chunks.push(data)`), which is ignored. */
function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as Partial<PromiseLike<unknown>> | null | undefined)?.then === 'function'
}

/** The bytes of any view, of any realm. */
const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) => Buffer.from(buffer, byteOffset, byteLength)

function isReadable(value: unknown): value is Readable {
  return typeof (value as Partial<Readable> | null)?.pipe === 'function'
}

/** stdin is a pipe with `input` only: without it the pipe would be neither written to nor ended. */
function runPlaces(stdio: unknown, { input, onOutput }: Wishes): number[] {
  const places = placesOf(stdio)
  if (input === undefined) {
    if (places[0] === Place.pipe) places[0] = Place.ignore
  } else if (places[0] !== Place.pipe) {
    throw invalidValue('options.stdio', "must have 'pipe' in the first place for the option 'input'", stdio)
  }
  const further = places.indexOf(Place.pipe, 3)
  if (further >= 0) {
    const reason = "cannot be 'pipe', since a result has no place for its output; spawn() gives the stream"
    throw invalidValue(`options.stdio[${further}]`, reason, 'pipe')
  }
  if (onOutput !== undefined && places[1] !== Place.pipe && places[2] !== Place.pipe) {
    throw invalidValue('options.onOutput', "needs 'pipe' in the second or third place of options.stdio", onOutput)
  }
  return places
}

interface Settle {
  resolve(result: Result): void
  reject(error: unknown): void
}

export class RunCall extends Call {
  private readonly began = clock()
  private readonly collectors: Collector[] = []
  private stopInput: (() => void) | undefined
  private exitCode: number | null = null
  private exitSignal: NodeJS.Signals | null = null
  /** What made it a call that goes on; undefined: its result is that of its end. */
  private keptBy: 'exit' | 'yield' | undefined
  private hasAskedToKeep = false
  private isSettled = false
  private lastReport: EndReport | undefined
  private consumerError: HoldfastError | undefined
  /** What ended the wait for consumers after the command itself had ended. */
  private cutOffBy: 'timeout' | 'abort' | 'idle' | 'end' | undefined
  private limit: NodeJS.Timeout | undefined
  private yieldTimer: NodeJS.Timeout | undefined
  private readonly exited = deferred<Exit>()

  constructor(
    command: Command,
    readonly wishes: Wishes,
    private readonly outcome: Settle,
  ) {
    super(command)
    // For good: it may fail after the command has left, or when none was started.
    if (isReadable(wishes.input)) wishes.input.on('error', () => {})
    this.start()
    for (const place of this.piped) {
      const pipe = this.pipe(place)
      if (pipe === undefined) continue
      if (place > 0) this.collectors.push(new Collector(this, pipe, place))
      else if (wishes.input !== undefined) this.feed(pipe)
    }
  }

  // ---- what happens
  protected onStarted(): void {
    this.begin()
    const { yieldAfter } = this.wishes
    if (yieldAfter === 0) return
    const left = Math.max(1, yieldAfter - (clock() - this.began))
    this.yieldTimer = setTimeout(() => this.goOnKept('yield'), left)
  }

  protected onFailed(): void {
    this.stopInput?.()
  }

  protected onExited(code: number | null, signal: NodeJS.Signals | null): void {
    this.exitCode = code
    this.exitSignal = signal
    this.stopInput?.()
    this.exited.resolve({ exitCode: code, signal })
    clearTimeout(this.yieldTimer)
    if (this.commandOf().background === 'keep') this.goOnKept('exit')
  }

  /** The result is made now, and the call goes on. With `yieldAfter` it does not wait for a consumer. */
  private goOnKept(by: 'exit' | 'yield'): void {
    if (this.keptBy !== undefined || this.lastReport !== undefined) return
    this.keptBy = by
    this.conclude(HELD_BY_KERNEL, by === 'yield')
    this.limitConsumers()
  }

  protected onTaken(mechanism: EndReport['mechanism']): void {
    // Before the result there is no handle to unref(), and a kept call must not keep the event loop alive.
    this.unref()
    this.finish(keptReport(mechanism, this.keptBy ?? 'exit'))
    for (const collector of this.collectors) collector.keep()
  }

  protected onEnded(report: EndReport): void {
    this.lastReport = report
    clearTimeout(this.yieldTimer)
    this.exited.resolve({ exitCode: this.exitCode, signal: this.exitSignal })
    // It may have printed more before it was known to go on.
    if (this.keptBy !== undefined) for (const collector of this.collectors) collector.again()
    // A limit, an abort and end() win over a consumer that does not answer; a command that exits by itself waits for
    // it.
    const unasked = report.reason !== 'exit' || this.isSettled
    this.conclude(report.outcome === 'ended' ? AFTER_THE_END : HELD_BY_KERNEL, unasked)
    // It may have exited by itself just before it was ended.
    if (this.endedBy !== undefined) this.cutOff(this.endedBy)
    if (this.isSettled) return
    this.setWaiting(true)
    const { signal } = this.commandOf()
    if (signal !== undefined) watchSignal(signal, this)
    this.limitConsumers()
  }

  /** The keeper kept the time as long as the command ran. */
  private limitConsumers(): void {
    const { timeout } = this.commandOf()
    if (timeout === 0 || this.hasAskedToKeep || this.limit !== undefined) return
    const left = Math.max(1, timeout - (clock() - this.began))
    this.limit = setTimeout(() => this.cutOff('timeout'), left)
  }

  override abort(): void {
    if (this.lastReport === undefined) super.abort()
    else this.cutOff('abort')
  }

  override end(options?: EndOptions): Promise<EndReport> {
    const ended = super.end(options)
    if (this.lastReport !== undefined) this.cutOff('end')
    return ended
  }

  /** The result has what they were not given. */
  private cutOff(by: 'timeout' | 'abort' | 'idle' | 'end'): void {
    if (this.isSettled) return
    this.cutOffBy = by
    this.conclude(this.lastReport?.outcome === 'ended' ? AFTER_THE_END : HELD_BY_KERNEL, true)
  }

  // ---- what follows from it
  /** @param unasked what consumers have not asked for, too */
  private conclude(most: number, unasked = false): void {
    for (const collector of this.collectors) collector.reader.conclude(most, unasked)
    this.collected()
  }

  /** Called whenever a collector is done; goes on when all of them are, and the command is. */
  collected(): void {
    if (!this.collectors.every((collector) => collector.isDone)) return
    if (this.lastReport !== undefined) {
      this.closePipes()
      this.settle(this.lastReport)
      this.finish(this.lastReport)
    } else if (this.keptBy !== undefined && !this.hasAskedToKeep) {
      this.hasAskedToKeep = true
      this.keepRunning()
    }
  }

  private finish(report: EndReport): void {
    if (this.isSettled) return
    this.isSettled = true
    clearTimeout(this.limit)
    clearTimeout(this.yieldTimer)
    this.setWaiting(false)
    this.forgetSignal()
    try {
      this.outcome.resolve(this.resultOrThrow(report))
    } catch (error) {
      this.outcome.reject(error)
    }
  }

  private resultOrThrow(report: EndReport): Result {
    if (this.error !== undefined) throw this.error
    const result = this.resultWith(report)
    if (this.consumerError !== undefined) throw Object.assign(this.consumerError, { result })
    if (result.ok || !this.wishes.check || report.reason === 'yield') return result
    throw result.aborted ? abortError(this.commandOf().signal, result) : this.checkError(result)
  }

  private resultWith(report: EndReport): Result {
    const { maxOutput } = this.wishes
    const [stdout, stderr] = this.collect(report.outcome === 'kept')
    const isCut = stdout.dropped + stderr.dropped > 0
    // Where the report has a worse one, that of the output is beside it.
    const texts = new Set([report.notice])
    if (this.isIncomplete) texts.add(notices.background)
    if (isCut) texts.add(notices.cut)
    const reason = this.cutOffBy ?? report.reason
    return {
      exitCode: this.exitCode,
      signal: this.exitSignal,
      stdout: stdout.text,
      stderr: stderr.text,
      dropped: { stdout: stdout.dropped, stderr: stderr.dropped },
      ok: this.exitCode === 0 && reason === 'exit' && !this.isIncomplete && !(isCut && maxOutput === undefined),
      timedOut: reason === 'timeout',
      idleTimedOut: reason === 'idle',
      aborted: reason === 'abort',
      duration: clock() - this.began,
      usage: this.usage,
      report,
      ...(report.outcome === 'kept' && { kept: keptViewOf(this) }),
      notices: [...texts].filter((text) => text !== undefined),
    }
  }

  /** What has been read since it was last asked for. @param more there may be more to come */
  private collect(more: boolean): [Collected, Collected] {
    return [1, 2].map((place) => {
      const collector = this.collectors.find((one) => one.place === place)
      return collector?.take(more) ?? { text: new Output(0).result(this.wishes.encoding), dropped: 0 }
    }) as [Collected, Collected]
  }

  // ---- once it is kept
  read(): { stdout: string | Uint8Array; stderr: string | Uint8Array; dropped: Result['dropped'] } {
    const [stdout, stderr] = this.collect(this.lastReport === undefined)
    return { stdout: stdout.text, stderr: stderr.text, dropped: { stdout: stdout.dropped, stderr: stderr.dropped } }
  }

  exitedPromise(): Promise<Exit> {
    return this.exited.promise
  }

  private checkError(result: Result): HoldfastError {
    const { file, argv, timeout, idleTimeout, stdio, backgroundSettle } = this.commandOf()
    let reason: string
    if (result.timedOut) reason = messages.CHECK.timeout(timeout)
    else if (result.idleTimedOut) reason = messages.CHECK.idle(idleTimeout)
    else if (result.signal !== null) reason = messages.CHECK.signal(result.signal)
    else if (result.exitCode === null) reason = messages.CHECK.unknown()
    else if (result.exitCode !== 0) reason = messages.CHECK.exit(result.exitCode)
    else if (result.report.reason !== 'exit') reason = messages.CHECK.ended()
    else if (this.isIncomplete) reason = messages.CHECK.background(backgroundSettle)
    else reason = messages.CHECK.cut(MAX_OUTPUT)
    const stderr = this.textOf(stdio[2] === Place.stdout ? result.stdout : result.stderr)
    const message = messages.checkFailed(file, argv.slice(1), reason, stderr)
    return new HoldfastError(message, { code: codes.check, ran: true, result })
  }

  /** Output as text, also where `encoding` is another one. */
  private textOf(output: string | Uint8Array): string {
    const { encoding } = this.wishes
    if (typeof output !== 'string') return Buffer.from(output.subarray(-ERROR_TAIL)).toString()
    const isEncoded = encoding === 'hex' || encoding.startsWith('base64')
    return isEncoded ? Buffer.from(output, encoding as BufferEncoding).toString() : output
  }

  /** `input` or `onOutput` failed: no consumer is left for the rest. */
  consumerFailed(what: 'input' | 'onOutput', cause: unknown): void {
    if (this.consumerError !== undefined) return
    const message = messages.consumerFailed(this.commandOf().file, what, cause)
    this.consumerError = new HoldfastError(message, { code: codes.consumer, cause, ran: true })
    // `ended` never rejects; what comes of it is this call's result.
    void this.end()
  }

  get hasFailed(): boolean {
    return this.consumerError !== undefined
  }

  // ---- input
  /** A command that leaves without reading it all (EPIPE) is no error. */
  private feed(pipe: Pipe): void {
    const { input } = this.wishes
    if (isReadable(input)) {
      this.feedFrom(input, new PipeWritable(pipe, { streamed() {}, streamClosed() {} }))
    } else {
      const bytes = typeof input === 'string' ? Buffer.from(input) : bytesOf(input as ArrayBufferView)
      this.stopInput = () => pipe.close()
      new Writer(pipe).write(bytes, this.stopInput)
    }
  }

  fedStdin(): PipeWritable {
    const stdin = new PipeWritable(this.pipe(0), { streamed() {}, streamClosed() {} })
    this.stopInput = () => stdin.destroy()
    return stdin
  }

  private feedFrom(input: Readable, stdin: PipeWritable): void {
    stdin.on('error', () => {})
    // Not pipe(): what a Readable of objects holds need not be writable, and that error could not be caught.
    const write = (chunk: unknown) => {
      try {
        if (!stdin.write(chunk)) input.pause()
      } catch (error) {
        this.consumerFailed('input', error)
        this.stopInput?.()
      }
    }
    stdin.on('drain', () => input.resume())
    const forget = finished(input, { writable: false }, (error) => {
      if (error) this.consumerFailed('input', error)
      else stdin.end()
    })
    this.stopInput = () => {
      forget()
      input.off('data', write).pause()
      stdin.destroy()
    }
    input.on('data', write)
  }
}

interface Collected {
  readonly text: string | Uint8Array
  readonly dropped: number
}

interface Exit {
  readonly exitCode: number | null
  readonly signal: NodeJS.Signals | null
}

function deferred<T>(): { readonly promise: Promise<T>; resolve(value: T): void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

/** What runs on is held, and has proven nothing yet. */
const keptReport = (mechanism: EndReport['mechanism'], reason: 'exit' | 'yield'): EndReport => ({
  outcome: 'kept',
  mechanism,
  by: 'keeper',
  reason,
  leftovers: [],
  leftoverCount: 0,
  released: [],
  survivors: [],
  proofTime: 0,
})

/** Reads one pipe for run(). */
class Collector implements Sink {
  isDone = false
  /**
   * What `onOutput` returned is not settled: what comes meanwhile, once that is waited for no more, is for the result
   * alone.
   */
  private isConsuming = false
  /** The call is kept: output is collected for `kept.read()`. */
  private isKept = false
  reader: Reader
  private output: Output

  constructor(
    private readonly call: RunCall,
    private readonly pipe: Pipe,
    readonly place: number,
  ) {
    this.output = this.newOutput()
    this.reader = new Reader(pipe, this)
    this.reader.more()
  }

  private newOutput(): Output {
    const { maxOutput = MAX_OUTPUT, encoding } = this.call.wishes
    return new Output(Math.min(maxOutput, longestOutput(encoding)))
  }

  take(more: boolean): Collected {
    const { output } = this
    const isMore = more && this.pipe.open
    const text = output.result(this.call.wishes.encoding, isMore)
    this.output = this.newOutput()
    this.output.add(output.rest)
    return { text, dropped: output.dropped }
  }

  /** Reads on, after what the kernel held was taken for the end. */
  again(): void {
    if (!this.isDone || !this.pipe.open) return
    this.isDone = false
    this.reader = new Reader(this.pipe, this)
  }

  keep(): void {
    this.isKept = true
    this.again()
    this.reader.more()
  }

  received(length: number): boolean {
    const bytes = lent(length)
    this.output.add(bytes)
    if (this.isKept) {
      // A block in a millisecond: one that prints without pause must not keep the host busy.
      setTimeout(() => this.reader.more(), 1).unref()
      return false
    }
    const { onOutput } = this.call.wishes
    if (onOutput === undefined || this.call.hasFailed || this.isConsuming) return true
    try {
      const consumed: unknown = onOutput({ stream: this.place === 1 ? 'stdout' : 'stderr', data: Buffer.from(bytes) })
      if (!isThenable(consumed)) return true
      this.isConsuming = true
      consumed.then(
        () => this.goOn(),
        (error) => this.failed(error),
      )
      return false
    } catch (error) {
      this.failed(error)
      return true
    }
  }

  private failed(error: unknown): void {
    this.call.consumerFailed('onOutput', error)
    this.goOn()
  }

  private goOn(): void {
    this.isConsuming = false
    this.reader.more()
  }

  finished(): void {
    this.isDone = true
    this.call.collected()
  }
}
