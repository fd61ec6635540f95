/** Node streams over pipes. */
import { constants } from 'node:os'
import { Duplex, Readable, Writable } from 'node:stream'
import { nextTick } from '../native/timers'
import { systemError } from '../report/errors'
import { kept, type Pipe, Reader, type Sink, Writer } from './pipe'

const { ECONNRESET } = constants.errno
const SIZE = 64 * 1024

/** The call that shows the stream to its user. */
export interface StreamOwner {
  /** Data or the end came, for which there may be listeners. */
  streamed(): void
  /** A stream over a pipe has closed it. */
  streamClosed(stream: PipeStream): void
}

export type PipeStream = PipeReadable | PipeWritable | PipeDuplex

type Done = (error?: Error | null) => void

/** Beside the streams: nothing that prints or serialises one gets there. */
const hostEnds = new WeakMap<object, Pipe>()

/** undefined: it is no stream of a call, or has had no pipe. */
export const hostEndOf = (stream: object): Pipe | undefined => hostEnds.get(stream)

/**
 * `pipe` undefined: of a call that has ended, or never started. What leads to the call is in #names: nothing that
 * prints or serialises a stream gets there.
 */
export class PipeReadable extends Readable implements Sink {
  readonly #reader: Reader | undefined
  readonly #owner: StreamOwner

  /** @param head what was read of the pipe already */
  constructor(pipe: Pipe | undefined, owner: StreamOwner, head?: Buffer) {
    super({ highWaterMark: SIZE })
    if (pipe !== undefined) hostEnds.set(this, pipe)
    this.#owner = owner
    if (head !== undefined && head.length > 0) this.push(head)
    if (pipe === undefined) this.push(null)
    else this.#reader = new Reader(pipe, this)
  }

  override _read(): void {
    this.#reader?.more()
  }

  received(length: number): boolean {
    this.#owner.streamed()
    return this.push(kept(length))
  }

  finished(errno: number): void {
    this.#owner.streamed()
    endOrFail(this, errno)
  }

  /** Takes what the kernel holds, wanted or not; a paused stream holds it. */
  conclude(most: number): void {
    this.#reader?.conclude(most, true)
  }

  override _destroy(error: Error | null, done: Done): void {
    closed(this, this.#owner, error, done)
  }

  /** The call keeps the loop alive, its streams do not. */
  ref(): this {
    return this
  }

  unref(): this {
    return this
  }
}

export class PipeWritable extends Writable {
  readonly #writer: Writer | undefined
  readonly #owner: StreamOwner

  constructor(pipe: Pipe | undefined, owner: StreamOwner) {
    super()
    if (pipe !== undefined) hostEnds.set(this, pipe)
    this.#owner = owner
    if (pipe === undefined) this.destroy()
    else this.#writer = new Writer(pipe)
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#writer?.write(chunk, done)
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#writer?.write(Buffer.concat(chunks.map(({ chunk }) => chunk)), done)
  }

  override _final(done: Done): void {
    hostEndOf(this)?.close()
    done()
  }

  /** There is no reader any more. */
  conclude(): void {
    this.destroy()
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#writer?.abandon(error)
    closed(this, this.#owner, error, done)
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }
}

/** Places from 3 on. */
export class PipeDuplex extends Duplex implements Sink {
  readonly #reader: Reader | undefined
  readonly #writer: Writer | undefined
  readonly #owner: StreamOwner

  constructor(pipe: Pipe | undefined, owner: StreamOwner) {
    super({ highWaterMark: SIZE, allowHalfOpen: false })
    if (pipe !== undefined) hostEnds.set(this, pipe)
    this.#owner = owner
    if (pipe === undefined) {
      this.push(null)
    } else {
      this.#reader = new Reader(pipe, this)
      this.#writer = new Writer(pipe)
    }
  }

  override _read(): void {
    this.#reader?.more()
  }

  received(length: number): boolean {
    this.#owner.streamed()
    return this.push(kept(length))
  }

  finished(errno: number): void {
    this.#owner.streamed()
    endOrFail(this, errno)
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#writer === undefined) done()
    else this.#writer.write(chunk, done)
  }

  override _final(done: Done): void {
    hostEndOf(this)?.finishWriting()
    done()
  }

  conclude(most: number): void {
    this.#reader?.conclude(most, true)
    this.#writer?.stop()
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#writer?.abandon(error)
    closed(this, this.#owner, error, done)
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }
}

function endOrFail(stream: Pick<PipeReadable | PipeDuplex, 'push' | 'destroy'>, errno: number): void {
  // A reset is the end of a socket pair that had unread bytes in the other direction.
  if (errno === 0 || errno === ECONNRESET) stream.push(null)
  else stream.destroy(systemError('read', errno))
}

function closed(stream: PipeStream, owner: StreamOwner, error: Error | null, done: Done): void {
  const pipe = hostEndOf(stream)
  pipe?.close()
  done(error)
  // After the stream's own `close`, which done() put into this queue.
  if (pipe !== undefined) nextTick(() => owner.streamClosed(stream))
}
