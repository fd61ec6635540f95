// Writes a package as npm packs it, so that a test can pack what npm never would.
import { gzipSync } from 'node:zlib'

const BLOCK = 512

/** @param files as scripts/release/tarball.mjs reads them */
export function packed(files) {
  const blocks = [...files].flatMap(([name, { mode, bytes }]) => [
    header(`package/${name}`, mode, bytes.length),
    padded(bytes),
  ])
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)]), { level: 1 })
}

function header(name, mode, size) {
  const block = Buffer.alloc(BLOCK)
  const octal = (value, at, length) => block.write(value.toString(8).padStart(length - 1, '0'), at)
  block.write(name, 0)
  octal(mode, 100, 8)
  octal(size, 124, 12)
  block.write('0', 156)
  block.write('ustar\x0000', 257)
  block.write(' '.repeat(8), 148)
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    8,
  )
  return block
}

const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)])
