/**
 * Reads ahead of what is to become a stream. The stream is made when this is over and begins with what was read, without
 * the acknowledgement. So it is untouched when its user has it, whatever is done with it first.
 */
import { clearTimeout, setImmediate, setTimeout } from '../native/timers'
import { type Head, kept } from '../pipe/pipe'

/** Whether an output begins with a certain line, which is taken out of it. */
export class Acknowledgement implements Head {
  /** What came behind the line, or instead of it. */
  head: Buffer = Buffer.alloc(0)
  private readonly line: Buffer
  private timer: NodeJS.Timeout | undefined
  private isDecided = false
  private resolve!: (came: boolean) => void
  private readonly came = new Promise<boolean>((resolve) => {
    this.resolve = resolve
  })

  /** @param limit milliseconds of silence, before the line and within it */
  constructor(
    ack: string,
    private readonly limit: number,
  ) {
    this.line = Buffer.from(`${ack}\n`)
  }

  /** The line is waited for from the first question on. */
  isThere(): Promise<boolean> {
    // What came while the loop was blocked is read first.
    const late = () => setImmediate(() => this.decide(false))
    if (!this.isDecided) this.timer ??= setTimeout(late, this.limit)
    return this.came
  }

  /** The rest stays in the pipe as soon as it is decided. */
  received(length: number): boolean {
    const bytes = Buffer.concat([this.head, kept(length)])
    this.head = bytes
    if (this.isDecided) return false
    const { line } = this
    const compared = Math.min(bytes.length, line.length)
    if (!bytes.subarray(0, compared).equals(line.subarray(0, compared))) {
      this.decide(false)
    } else if (compared === line.length) {
      this.head = bytes.subarray(compared)
      this.decide(true)
    } else {
      this.timer?.refresh()
    }
    return !this.isDecided
  }

  finished(): void {
    this.decide(false)
  }

  decide(came: boolean): void {
    if (this.isDecided) return
    this.isDecided = true
    clearTimeout(this.timer)
    this.resolve(came)
  }
}

/** Keeps what comes, so that its writer is not held up. */
export class ReadAhead implements Head {
  private readonly chunks: Buffer[] = []
  private isOver = false

  /** What has come. */
  get head(): Buffer {
    return Buffer.concat(this.chunks)
  }

  /** The rest stays in the pipe. */
  stop(): void {
    this.isOver = true
  }

  received(length: number): boolean {
    this.chunks.push(kept(length))
    return !this.isOver
  }

  finished(): void {}
}
