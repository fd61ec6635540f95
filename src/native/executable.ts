/** What the head of an executable shows: for which processor it is, and which libc loads it (elf(5)). */
import { closeSync, fstatSync, openSync, readlinkSync, readSync, statSync } from 'node:fs'

export interface Elf {
  /** As `process.arch`; another name where it is none of ours. */
  readonly cpu: string
  /** The program that loads it; '' for a library, or a static program. */
  readonly interpreter: string
  /** The file is shorter than its own tables have it. Loaded, its missing pages are a SIGBUS. */
  readonly isCut: boolean
}

const HEADER = 64
const MACHINES: { readonly [machine: number]: string } = {
  3: 'ia32',
  40: 'arm',
  62: 'x64',
  183: 'arm64',
  243: 'riscv64',
}
const INTERPRETER = 3
/** No executable has a longer table of segments, or a longer name. */
const LONGEST = 4096

/**
 * undefined: it is no 64-bit little-endian ELF file.
 * @throws Error where it cannot be read
 */
export function readElf(path: string): Elf | undefined {
  // To open a named pipe would wait for its other end.
  if (!statSync(path).isFile()) return undefined
  const fd = openSync(path, 'r')
  const read = (position: number, length: number) => {
    const bytes = Buffer.alloc(Math.min(length, LONGEST))
    return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, position))
  }
  try {
    const header = read(0, HEADER)
    if (header.length < HEADER || header.readUInt32BE(0) !== 0x7f454c46 || header.readUInt16BE(4) !== 0x0201) {
      return undefined
    }
    const machine = header.readUInt16LE(18)
    const size = header.readUInt16LE(54)
    const segments = read(Number(header.readBigUInt64LE(32)), size * header.readUInt16LE(56))
    const bytes = fstatSync(fd).size
    const sections = Number(header.readBigUInt64LE(40)) + header.readUInt16LE(58) * header.readUInt16LE(60)
    let isCut = sections > bytes || segments.length < size * header.readUInt16LE(56)
    let interpreter = ''
    for (let at = 0; size >= 56 && at + size <= segments.length; at += size) {
      const [offset, length] = [segments.readBigUInt64LE(at + 8), segments.readBigUInt64LE(at + 32)].map(Number) as [
        number,
        number,
      ]
      if (offset + length > bytes) isCut = true
      if (segments.readUInt32LE(at) !== INTERPRETER) continue
      const name = read(offset, length)
      interpreter = name.toString('utf8').replace(/\0.*$/s, '')
    }
    return { cpu: MACHINES[machine] ?? `machine ${machine}`, interpreter, isCut }
  } finally {
    closeSync(fd)
  }
}

/**
 * Which libc this process has, by its loader, which is what will load the addon as well. Not by a report of Node.js,
 * nor by what is installed: a system can have both.
 * @param executables the first that shows its loader is taken
 * @returns undefined: not known
 */
export function libcOfProcess(
  executables: readonly string[] = ['/proc/self/exe', process.execPath],
): 'glibc' | 'musl' | undefined {
  for (const path of executables) {
    try {
      const elf = readElf(path)
      // Started by way of the loader (`ld.so node`), the executable is the loader.
      const loader = elf?.interpreter || (elf && nameOf(path))
      if (loader === undefined) continue
      if (/musl/.test(loader)) return 'musl'
      if (/(^|\/)ld-?(linux|\d|64|\.so)[^/]*$/.test(loader)) return 'glibc'
    } catch {
      // Without /proc, or without permission.
    }
  }
  return undefined
}

function nameOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return path
  }
}
