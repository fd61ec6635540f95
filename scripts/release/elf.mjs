// What the release has to know of an ELF file (elf(5)): its machine, what loads it, what it needs, and which versions of
// the symbols of each library.

const MACHINES = { 62: 'x64', 183: 'arm64' }
const [PT_INTERP, SHT_DYNAMIC, SHT_VERNEED] = [3, 6, 0x6ffffffe]
const DT_NEEDED = 1n

/**
 * @param {Buffer} bytes
 * @returns {{ cpu: string, interpreter: string, needed: string[], versions: string[] }}
 * @throws Error that says why it is no 64-bit little-endian ELF file
 */
export function readElf(bytes) {
  if (bytes.length < 64 || bytes.readUInt32BE(0) !== 0x7f454c46) throw new Error('it is no ELF file')
  if (bytes[4] !== 2 || bytes[5] !== 1) throw new Error('it is no 64-bit little-endian ELF file')
  try {
    return read(bytes)
  } catch (error) {
    if (error instanceof RangeError) throw new Error('it is cut')
    throw error
  }
}

function read(bytes) {
  const word = (at) => Number(bytes.readBigUInt64LE(at))
  const text = (at) => {
    const end = bytes.indexOf(0, at)
    if (at >= bytes.length || end < 0) throw new RangeError()
    return bytes.toString('latin1', at, end)
  }
  const machine = bytes.readUInt16LE(18)
  const segments = table(word(32), bytes.readUInt16LE(54), bytes.readUInt16LE(56))
  const interpreter = segments.find((at) => bytes.readUInt32LE(at) === PT_INTERP)
  const sections = table(word(40), bytes.readUInt16LE(58), bytes.readUInt16LE(60))
  const offsetOf = (section) => word(section + 24)
  const stringsOf = (section) => offsetOf(sections[bytes.readUInt32LE(section + 40)])
  const ofType = (type) => sections.filter((at) => bytes.readUInt32LE(at + 4) === type)

  const needed = ofType(SHT_DYNAMIC).flatMap((section) => {
    const entries = table(offsetOf(section), 16, word(section + 32) / 16)
    const names = entries.filter((at) => bytes.readBigInt64LE(at) === DT_NEEDED)
    return names.map((at) => text(stringsOf(section) + word(at + 8)))
  })
  const versions = new Set()
  for (const section of ofType(SHT_VERNEED)) {
    for (let at = offsetOf(section), next = 1; next !== 0; at += next) {
      for (let aux = at + bytes.readUInt32LE(at + 8), step = 1; step !== 0; aux += step) {
        versions.add(text(stringsOf(section) + bytes.readUInt32LE(aux + 8)))
        step = bytes.readUInt32LE(aux + 12)
      }
      next = bytes.readUInt32LE(at + 12)
    }
  }
  return {
    cpu: MACHINES[machine] ?? `machine ${machine}`,
    interpreter: interpreter === undefined ? '' : text(word(interpreter + 8)),
    needed,
    versions: [...versions].sort(),
  }
}

const table = (start, size, count) => Array.from({ length: count }, (_, index) => start + index * size)
