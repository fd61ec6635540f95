/**
 * Streams of the host that are given to a command as its stdio. The command gets the descriptor; two that read one pipe
 * would each get a part of what comes. So the host's side must not read.
 *
 *   another call's stream    is the command's for good: the host's end is closed, as in a shell's pipeline
 *   any other                is lent: it is paused, and its handle stopped, as node:child_process does, until the call
 *                            has ended. A resume() in between (child_process resumes the output of a child that has
 *                            exited) comes into effect then.
 *
 * What the stream holds, since the host has read it already, is not in the pipe any more: then the command's stdin is
 * fed from the stream.
 */
import type { Readable } from 'node:stream'
import { Place } from '../native/addon'
import { native } from '../native/reactor'
import { hostEndOf, type PipeStream, type PipeWritable } from '../pipe/streams'

const MOST = 2 ** 31 - 1

interface Handle {
  readonly fd?: unknown
  reading?: boolean
  readStop?(): unknown
}
interface State {
  reading?: boolean
}
/** What of a stream is looked at, whatever it is. */
type HostStream = Readable & {
  readonly fd?: unknown
  readonly _handle?: Handle | null
  readonly _readableState?: State
  readableFlowing: boolean | null
}

/** undefined: the value has none, or none any more. */
export function descriptorOf(value: unknown): number | undefined {
  if (typeof value === 'number') return isDescriptor(value) ? value : undefined
  if (!isObject(value)) return undefined
  const own = hostEndOf(value)
  if (own !== undefined) {
    const fd = own.open ? native.descriptor(own.handle) : -1
    return isDescriptor(fd) ? fd : undefined
  }
  const { fd, _handle } = value as Partial<HostStream>
  if (isDescriptor(fd)) return fd
  return isDescriptor(_handle?.fd) ? _handle.fd : undefined
}

function isDescriptor(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MOST
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

export const isStream = (value: unknown): boolean =>
  isObject(value) && (typeof (value as Readable).pipe === 'function' || 'writable' in value)

/** What of a call is needed for them. */
interface Taking {
  readonly ended: Promise<unknown>
  /** stdin, for the code that feeds it from a stream of the host; the user does not get it. */
  fedStdin(): PipeWritable
}

export class Given {
  private readonly lent: HostStream[] = []
  private readonly own: PipeStream[] = []
  private fed: HostStream | undefined

  /** @param places what is asked of the addon: a pipe where the command is fed */
  constructor(stdio: readonly unknown[], places: number[]) {
    for (const value of new Set(stdio.filter(isObject)) as Set<HostStream>) {
      if (stdio[0] === value && holdsData(value)) {
        places[0] = Place.pipe
        this.fed = value
      } else if (hostEndOf(value) !== undefined) {
        this.own.push(value as unknown as PipeStream)
      } else if (value.readable && typeof value.pause === 'function') {
        this.lent.push(value)
      }
    }
  }

  /** The call has been started. */
  take(call: Taking): void {
    for (const stream of this.own) giveAway(stream)
    for (const stream of this.lent) lend(stream, call.ended)
    if (this.fed !== undefined) feed(this.fed, call.fedStdin())
  }
}

/** undefined: no stream is given. */
export function givenOf(stdio: unknown, places: number[]): Given | undefined {
  return Array.isArray(stdio) && stdio.some(isObject) ? new Given(stdio, places) : undefined
}

/** A read of a file that is under way has moved the offset, which the command shares, or is about to. */
function holdsData(stream: HostStream): boolean {
  const isFile = typeof stream.fd === 'number' && !stream._handle && stream._readableState?.reading === true
  return stream.readable && (stream.readableLength > 0 || isFile)
}

function feed(stream: HostStream, stdin: PipeWritable): void {
  // A command that leaves without reading it all (EPIPE) is no error.
  stdin.on('error', () => {})
  stream.once('close', () => stdin.end())
  // What writes to it is to have SIGPIPE then, as in a shell's pipeline.
  if (hostEndOf(stream) !== undefined) stdin.once('close', () => stream.destroy())
  stream.pipe(stdin)
}

function giveAway(stream: PipeStream): void {
  // What was written before is written first.
  if ('writableLength' in stream && stream.writableLength > 0) stream.end()
  else stream.destroy()
}

function lend(stream: HostStream, ended: Promise<unknown>): void {
  const { readableFlowing, _handle, _readableState } = stream
  if (_handle) {
    _handle.reading = false
    _handle.readStop?.()
  }
  stream.pause()
  if (_readableState) _readableState.reading = false
  let isWanted = readableFlowing === true
  const resume = () => {
    isWanted = true
    return stream
  }
  Object.defineProperty(stream, 'resume', { value: resume, configurable: true, writable: true })
  const giveBack = () => {
    if (stream.resume === resume) Reflect.deleteProperty(stream, 'resume')
    if (stream.readableFlowing !== false) return
    if (isWanted || (readableFlowing === null && stream.listenerCount('data') > 0)) stream.resume()
    else stream.readableFlowing = readableFlowing
  }
  void ended.then(giveBack)
}
