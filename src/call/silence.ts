/** idleTimeout: how long stdout and stderr of a call have been silent. */
import { clearTimeout, clock, setTimeout } from '../native/timers'
import type { Pipe } from '../pipe/pipe'

export class Silence {
  private timer: NodeJS.Timeout | undefined
  private last = clock()
  private pending: number[] = []

  /** @param limit in milliseconds */
  constructor(
    private readonly limit: number,
    private readonly pipes: () => readonly Pipe[],
    private readonly onSilent: () => void,
  ) {
    for (const pipe of pipes()) pipe.isTimed = true
    this.wait(limit)
  }

  stop(): void {
    clearTimeout(this.timer)
  }

  /** The call itself keeps the loop alive. */
  private wait(time: number): void {
    this.timer = setTimeout(() => this.look(), Math.max(1, Math.ceil(time))).unref()
  }

  /** The loop may have been blocked: what has come meanwhile is read first. */
  private look(): void {
    const pipes = this.pipes()
    for (const pipe of pipes) pipe.reader?.ready()
    // Of a stream that is not read it is only known that more has come since the last look.
    const pending = pipes.map((pipe) => pipe.pending)
    if (pending.some((bytes, index) => bytes !== (this.pending[index] ?? 0))) this.last = clock()
    this.pending = pending
    this.last = Math.max(this.last, ...pipes.map((pipe) => pipe.lastRead))
    const left = this.last + this.limit - clock()
    if (left > 0) this.wait(left)
    else this.onSilent()
  }
}
