/**
 * What run() keeps of one stream: all of it up to a limit, beyond it head and tail, so that memory stays flat
 * however much comes. Bytes are copied into blocks: a stream of single bytes costs no more than its bytes.
 */
import { constants } from 'node:buffer'
import { notices } from '../report/notices'

const FIRST_BLOCK = 4 * 1024
const BLOCK = 64 * 1024

class Blocks {
  length = 0
  private readonly blocks: Buffer[] = []
  /** Bytes used of the last block. */
  private used = 0

  push(bytes: Buffer): void {
    let rest = bytes
    while (rest.length > 0) {
      let last = this.blocks.at(-1)
      if (last === undefined || this.used === last.length) {
        last = Buffer.allocUnsafeSlow(this.blocks.length === 0 ? Math.max(FIRST_BLOCK, rest.length) : BLOCK)
        this.blocks.push(last)
        this.used = 0
      }
      const copied = rest.copy(last, this.used)
      this.used += copied
      this.length += copied
      rest = rest.subarray(copied)
    }
  }

  /** Lets whole blocks go from the front, as long as `least` bytes stay. Returns how many bytes went. */
  trim(least: number): number {
    let gone = 0
    for (let first = this.blocks[0]; first && this.length - first.length >= least; first = this.blocks[0]) {
      this.blocks.shift()
      this.length -= first.length
      gone += first.length
    }
    return gone
  }

  bytes(): Buffer {
    return Buffer.concat(this.blocks, this.length)
  }
}

const EMPTY = Buffer.alloc(0)

export class Output {
  /** Bytes that were left out. */
  dropped = 0
  /** What belongs to a character that is not all there. */
  rest: Buffer = EMPTY
  private readonly head = new Blocks()
  private readonly tail = new Blocks()
  private readonly headLimit: number
  private readonly tailLimit: number

  constructor(limit: number) {
    this.headLimit = Math.ceil(limit / 2)
    this.tailLimit = Math.floor(limit / 2)
  }

  add(bytes: Buffer): void {
    const room = this.headLimit - this.head.length
    if (room > 0) this.head.push(bytes.subarray(0, room))
    if (bytes.length <= room) return
    this.tail.push(bytes.subarray(room))
    this.dropped += this.tail.trim(this.tailLimit)
  }

  /**
   * Once, after the last add(). Settles `dropped`.
   * @param more of the stream comes later, in another one: bytes that cannot be decoded without it are the `rest`
   */
  result(encoding: BufferEncoding | 'buffer', more = false): string | Buffer {
    let head = this.head.bytes()
    let tail = this.tail.bytes()
    const over = tail.length - this.tailLimit
    if (over <= 0 && this.dropped === 0) {
      let all = tail.length === 0 ? head : Buffer.concat([head, tail])
      if (more) all = this.withoutRest(all, encoding)
      return encoding === 'buffer' ? all : all.toString(encoding)
    }
    if (more) tail = this.withoutRest(tail, encoding)
    tail = tail.subarray(Math.max(over, 0))
    this.dropped += Math.max(over, 0)
    if (encoding === 'utf8' || encoding === 'utf-8') {
      const before = head.length + tail.length
      head = wholeEnd(head)
      tail = wholeStart(tail)
      this.dropped += before - head.length - tail.length
    }
    const marker = `\n${notices.cut}\n`
    if (encoding === 'buffer') return Buffer.concat([head, Buffer.from(marker), tail])
    return head.toString(encoding) + marker + tail.toString(encoding)
  }

  private withoutRest(bytes: Buffer, encoding: BufferEncoding | 'buffer'): Buffer {
    const all = whole(bytes, encoding)
    this.rest = bytes.subarray(all.length)
    return all
  }
}

/** Bytes of a unit, in encodings where each is by itself. */
const UNITS: { readonly [encoding: string]: number } = {
  utf16le: 2,
  'utf-16le': 2,
  ucs2: 2,
  'ucs-2': 2,
  base64: 3,
  base64url: 3,
}

/** Without a last character, or a last unit, that is not all there. */
function whole(bytes: Buffer, encoding: BufferEncoding | 'buffer'): Buffer {
  if (encoding === 'utf8' || encoding === 'utf-8') return wholeEnd(bytes)
  return bytes.subarray(0, bytes.length - (bytes.length % (UNITS[encoding] ?? 1)))
}

const isContinuation = (byte: number | undefined) => byte !== undefined && (byte & 0xc0) === 0x80

/** Without the last character of UTF-8, if that is not all there. */
function wholeEnd(bytes: Buffer): Buffer {
  let start = bytes.length - 1
  while (start > bytes.length - 4 && isContinuation(bytes[start])) start--
  const lead = bytes[start] ?? 0
  const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1
  return start + length > bytes.length ? bytes.subarray(0, start) : bytes
}

/** Without the rest of a character of UTF-8 that began before. */
function wholeStart(bytes: Buffer): Buffer {
  let start = 0
  while (start < 3 && isContinuation(bytes[start])) start++
  return bytes.subarray(start)
}

/** The most that can become a string of that encoding. */
export function longestOutput(encoding: BufferEncoding | 'buffer'): number {
  if (encoding === 'buffer') return constants.MAX_LENGTH - 1024
  const charactersForByte = encoding === 'hex' || encoding.startsWith('base64') ? 2 : 1
  return Math.floor((constants.MAX_STRING_LENGTH - 1024) / charactersForByte)
}
