/**
 * The host's end of one place of a command's stdio. The addon owns the descriptor; here it is a handle that
 * is read and written without blocking, and closed once.
 *
 * Reads go into one buffer for the whole environment: what is kept of it is copied, unless most of it is used.
 */
import type { AsyncResource } from 'node:async_hooks'
import { constants } from 'node:os'
import { type PipeHandle, Ready } from '../native/addon'
import { enter, native, throwLater, unwatch, type Watcher, watch } from '../native/reactor'
import { clock, setImmediate, setTimeout } from '../native/timers'
import { systemError } from '../report/errors'
import { stdinClosed } from '../report/messages'

const { EAGAIN, EPIPE } = constants.errno

const SIZE = 64 * 1024
/** A writer that is faster than its reader must not monopolise the loop; libuv stops after 32 reads, too. */
const READS_IN_A_TURN = 32
/** `fs.pipe-max-size`: more than this a pipe of an ordinary user does not hold. */
export const HELD_BY_KERNEL = 1024 * 1024
/** After the end no process of the call can write; the limit is for a daemon that was handed the descriptor. */
export const AFTER_THE_END = 64 * 1024 * 1024

let scratch = Buffer.allocUnsafeSlow(SIZE)

/** The bytes of the last read, lent until the next. */
export const lent = (length: number): Buffer => scratch.subarray(0, length)

/** The bytes of the last read, to keep. */
export function kept(length: number): Buffer {
  const bytes = lent(length)
  if (length < SIZE / 2) return Buffer.from(bytes)
  scratch = Buffer.allocUnsafeSlow(SIZE)
  return bytes
}

/** The call that a pipe belongs to. Until it has begun, nothing is read: `spawn` comes before data. */
export interface PipeCall extends AsyncResource {
  readonly begun: boolean
}

export class Pipe implements Watcher {
  open = true
  /** Given to the keeper, which has not taken it yet: the addon closes it. */
  handedOver = false
  reader: Reader | undefined
  writer: Writer | undefined
  /** Whether `lastRead` is kept. */
  isTimed = false
  /** When bytes last came, by clock(). */
  lastRead = 0
  /** When bytes last came that were written after the exit of the command. */
  lastAfterExit = 0
  private phase: 'running' | 'exited' | 'drained' = 'running'

  constructor(
    readonly handle: PipeHandle,
    readonly scope: PipeCall,
  ) {
    watch(handle, this)
  }

  ready(bits: number): void {
    if (bits & Ready.readable) this.reader?.ready()
    if (bits & Ready.writable) this.writer?.ready()
  }

  /** The command has started. */
  begin(): void {
    this.reader?.ready()
    this.writer?.ready()
  }

  close(): void {
    if (this.open && !this.handedOver) {
      this.forget()
      native.close(this.handle)
    }
  }

  /** The command has exited: what comes once the pipe is empty was written by what it left. */
  exited(): void {
    this.phase = this.pending === 0 ? 'drained' : 'exited'
  }

  came(): void {
    if (this.isTimed) this.lastRead = clock()
    if (this.phase === 'drained') this.lastAfterExit = clock()
  }

  isEmpty(): void {
    if (this.phase === 'exited') this.phase = 'drained'
  }

  /** Bytes that the kernel holds for it. */
  get pending(): number {
    return this.open ? native.pending(this.handle) : 0
  }

  /** The writing side of a duplex place. */
  finishWriting(): void {
    if (this.open) native.finish(this.handle)
  }

  /** Closed by the addon. */
  forget(): void {
    this.open = false
    unwatch(this.handle)
  }
}

/** What takes the bytes that are read from a pipe. */
export interface Sink {
  /** `length` bytes were read: lent(), or kept(). False: no more until Reader.more(). */
  received(length: number): boolean
  /** The end of the file, or of what was to be read. errno 0, or what read(2) failed with. Once. */
  finished(errno: number): void
}

/** What was read of a pipe before there was a stream. */
export interface Head extends Sink {
  readonly head: Buffer
}

export class Reader {
  private wanting = false
  private pulling = false
  private over = false
  /** Since the loop last had its turn. */
  private reads = 0
  private deferred = false
  /** With conclude(): bytes that may still be read, and nothing is waited for. */
  private most = Number.POSITIVE_INFINITY
  private unasked = false

  constructor(
    private readonly pipe: Pipe,
    private readonly sink: Sink,
  ) {
    pipe.reader = this
  }

  get scope(): AsyncResource {
    return this.pipe.scope
  }

  /** The sink wants more. */
  more(): void {
    this.wanting = true
    this.pull()
  }

  /** The command has started, the pipe is readable, or a deferred turn has come. */
  ready(): void {
    this.reads = 0
    this.pull()
  }

  /**
   * Reads what the kernel holds, at most `most` bytes, and calls that the end.
   * @param unasked also what the sink does not want now; else it goes on with more()
   */
  conclude(most: number, unasked: boolean): void {
    this.most = most
    this.unasked = unasked
    this.pull()
  }

  /** Another one reads from here on. */
  leave(): void {
    this.over = true
  }

  private get concluding(): boolean {
    return this.most !== Number.POSITIVE_INFINITY
  }

  private pull(): void {
    if (!this.pipe.scope.begun && !this.concluding) return
    // A sink that asks from within received() goes on in the loop below, so that chunks stay in order.
    if (this.pulling) return
    this.pulling = true
    while (!this.over && (this.wanting || this.unasked)) {
      if (!this.pipe.open || this.most <= 0) {
        this.finish(0)
      } else if (this.reads >= READS_IN_A_TURN && !this.concluding) {
        this.defer()
        break
      } else {
        this.reads++
        const length = native.read(this.pipe.handle, scratch, 0, SIZE)
        if (length > 0) {
          this.most -= length
          this.pipe.came()
          this.hand(length)
        } else if (length !== -EAGAIN) {
          if (this.pipe.writer === undefined) this.pipe.close()
          this.finish(-length)
        } else {
          this.pipe.isEmpty()
          if (!this.concluding) break // A readiness word will follow.
          this.finish(0)
        }
      }
    }
    this.pulling = false
  }

  private hand(length: number): void {
    this.wanting = false
    try {
      if (this.sink.received(length)) this.wanting = true
    } catch (error) {
      throwLater(error)
      this.wanting = true
    }
  }

  private finish(errno: number): void {
    this.over = true
    this.sink.finished(errno)
  }

  private defer(): void {
    if (this.deferred) return
    this.deferred = true
    setImmediate(() => {
      this.deferred = false
      enter(this, this.ready)
    })
  }
}

/**
 * Reads a pipe of a kept command for as long as this process lives, and drops what it reads: a block in a millisecond.
 * It does not keep the loop alive. (By an immediate without a reference the loop would not be woken.)
 */
export function discard(pipe: Pipe, onEnd: () => void): void {
  const more = () => reader.more()
  const reader = new Reader(pipe, {
    received() {
      setTimeout(more, 1).unref()
      return false
    },
    finished: onEnd,
  })
  more()
}

type Done = (error?: Error | null) => void

export class Writer {
  private chunk: Uint8Array | undefined
  private offset = 0
  private done: Done | undefined
  private stopped = false

  constructor(private readonly pipe: Pipe) {
    pipe.writer = this
  }

  /** Writes all of it; one chunk at a time. */
  write(chunk: Uint8Array, done: Done): void {
    this.chunk = chunk
    this.offset = 0
    this.done = done
    if (this.stopped || chunk.length === 0) this.finish(null)
    else this.ready()
  }

  ready(): void {
    while (this.chunk !== undefined) {
      const left = this.chunk.length - this.offset
      const isOpen = this.pipe.open
      const length = isOpen ? native.write(this.pipe.handle, this.chunk, this.offset, left) : -EPIPE
      if (length === -EAGAIN) return
      // The start may have failed, and then that is the error. Tried again when the command has begun.
      if (length === -EPIPE && isOpen && !this.pipe.scope.begun) return
      this.offset += Math.max(length, 0)
      if (length < 0) this.finish(systemError('write', -length))
      else if (length === left) this.finish(null)
    }
  }

  /** The stream is destroyed: what is under way fails. */
  abandon(error: Error | null): void {
    if (this.done !== undefined) this.finish(error ?? new Error(stdinClosed))
  }

  /** There is no reader left, which is not an error of the stream's user. */
  stop(): void {
    this.stopped = true
    this.finish(null)
  }

  private finish(error: Error | null): void {
    const { done } = this
    this.chunk = undefined
    this.done = undefined
    done?.(error)
  }
}
