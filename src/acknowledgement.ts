/**
 * Whether a stream begins with a certain line. The line is taken out of it; of anything else every byte is put back, so
 * that the stream is as its writer meant it.
 *
 * While there is a listener for `readable` nothing flows: neither what is looked at, nor what comes behind it before
 * whoever is to have the stream has had the time to listen.
 */
import type { Readable } from 'node:stream'
import { clearTimeout, setImmediate, setTimeout } from './globals'

export class Acknowledgement {
  private readonly line: Buffer
  private matched = 0
  private timer: NodeJS.Timeout | undefined
  private isDecided = false
  private resolve!: (came: boolean) => void
  private readonly came = new Promise<boolean>((resolve) => {
    this.resolve = resolve
  })

  /** @param patience milliseconds of silence, before the line and within it */
  constructor(
    private readonly stream: Readable,
    ack: string,
    private readonly patience: number,
  ) {
    this.line = Buffer.from(`${ack}\n`)
    stream.on('readable', this.look)
  }

  /** The line is waited for from the first question on. */
  isThere(): Promise<boolean> {
    if (!this.isDecided) this.timer ??= setTimeout(late, this.patience, this)
    return this.came
  }

  private readonly look = (): void => {
    if (this.isDecided) return
    // `readable` with nothing to read is the end.
    if (this.stream.readableLength === 0) this.decide(false)
    while (!this.isDecided && this.stream.readableLength > 0) this.take()
  }

  /** Never more than the rest of the line: what is read by its length does not end the stream. */
  private take(): void {
    const rest = this.line.subarray(this.matched)
    const bytes = this.stream.read(Math.min(this.stream.readableLength, rest.length)) as Buffer
    if (!rest.subarray(0, bytes.length).equals(bytes)) {
      this.stream.unshift(bytes)
      this.decide(false)
    } else if (bytes.length === rest.length) {
      this.matched = 0
      this.decide(true)
    } else {
      this.matched += bytes.length
      this.timer?.refresh()
    }
  }

  /** Called by giveUp() alone. */
  giveUp(): void {
    if (!this.isDecided) this.decide(false)
  }

  private decide(came: boolean): void {
    this.isDecided = true
    clearTimeout(this.timer)
    if (this.matched > 0) this.stream.unshift(this.line.subarray(0, this.matched))
    this.resolve(came)
  }

  /** The stream may flow. */
  release(): void {
    letFlow(this.stream, this.look)
  }
}

/** Holds a stream back, but not its writer: what comes is kept, and put back. */
export class HeldBack {
  private readonly chunks: Buffer[] = []

  constructor(private readonly stream: Readable) {
    stream.on('readable', this.take)
  }

  /** What has come. */
  get text(): string {
    return String(Buffer.concat(this.chunks))
  }

  /** Whoever reads it from here on has all of it. */
  putBack(): void {
    this.stream.on('readable', hold)
    this.stream.off('readable', this.take)
    if (this.chunks.length > 0 && !this.stream.readableEnded) this.stream.unshift(Buffer.concat(this.chunks))
  }

  /** The stream may flow. */
  release(): void {
    letFlow(this.stream, hold)
  }

  /** By its length: read() alone would end the stream. */
  private readonly take = (): void => {
    while (this.stream.readableLength > 0) this.chunks.push(this.stream.read(this.stream.readableLength))
  }
}

function hold(): void {}

/** Takes away the listener that held the stream back. */
function letFlow(stream: Readable, holdsBack: () => void): void {
  stream.off('readable', holdsBack)
  // Of two listeners only the first makes the stream tell what is there already.
  if (stream.listenerCount('readable') > 0 && !stream.readableEnded) stream.emit('readable')
}

/** It may have come while the loop was blocked: that is read first. */
function late(acknowledgement: Acknowledgement): void {
  setImmediate(giveUp, acknowledgement)
}

function giveUp(acknowledgement: Acknowledgement): void {
  acknowledgement.giveUp()
}
