// Reads a package as npm packs it: a gzipped tar (ustar, with pax headers for long names) below package/.
import { gunzipSync } from 'node:zlib'

const BLOCK = 512

/**
 * @param {Buffer} packed
 * @returns {Map<string, { mode: number, bytes: Buffer }>} by the path below package/
 * @throws Error where it is no such file
 */
export function readTarball(packed) {
  const tar = gunzipSync(packed)
  const files = new Map()
  let longName
  for (let at = 0; at + BLOCK <= tar.length && tar[at] !== 0; ) {
    const header = tar.subarray(at, at + BLOCK)
    const size = octal(header, 124, 12)
    const bytes = tar.subarray(at + BLOCK, at + BLOCK + size)
    if (bytes.length < size) throw new Error('it is cut')
    const type = String.fromCharCode(header[156] || 48)
    const prefix = field(header, 345, 155)
    const name = longName ?? (prefix === '' ? field(header, 0, 100) : `${prefix}/${field(header, 0, 100)}`)
    longName = undefined
    if (type === 'x') longName = /^\d+ path=(.*)$/m.exec(bytes.toString('utf8'))?.[1]
    else if (type === '0') files.set(name.replace(/^[^/]*\//, ''), { mode: octal(header, 100, 8) & 0o7777, bytes })
    else if (type !== '5' && type !== 'g') files.set(name.replace(/^[^/]*\//, ''), { mode: -1, bytes })
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK
  }
  return files
}

const field = (header, at, length) => header.toString('utf8', at, at + length).replace(/\0.*$/s, '')
const octal = (header, at, length) => Number.parseInt(field(header, at, length).trim() || '0', 8)
