/**
 * What this process was given and Node keeps to itself: a program that takes its place must get it all the same.
 * Without a /proc the descriptors are not known, and nothing is passed on beyond 0 to 2.
 */
import { constants, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'

const FOLDER = '/proc/self/fd'
const { S_IRUSR: READS, S_IWUSR: WRITES } = constants

/** `NAME=value` of the IPC channel, for a process started by fork(): Node took them out of `process.env`. */
export function channelVariables(): string[] {
  if (process.channel === undefined) return []
  try {
    const pairs = readFileSync('/proc/self/environ', 'utf8').split('\0')
    return pairs.filter((pair) => pair.startsWith('NODE_CHANNEL_'))
  } catch {
    return []
  }
}

interface Descriptor {
  readonly fd: number
  readonly target: string
  readonly mode: number
}

/**
 * The descriptors from 3 on. Node set close-on-exec on them, so that only by their kind they differ from its own:
 * anonymous inodes, pipes of which it holds both ends, /dev/null for reading, and the inspector's sockets.
 */
export function inheritedDescriptors(): number[] {
  const all = openDescriptors()
  const inspector = inspectorSockets()
  const isHeld = (pipe: string, end: number) => all.some(({ target, mode }) => target === pipe && (mode & end) !== 0)
  const isOwn = ({ target, mode }: Descriptor) =>
    target.startsWith('anon_inode:') ||
    (target.startsWith('pipe:') && isHeld(target, READS) && isHeld(target, WRITES)) ||
    (target === '/dev/null' && (mode & WRITES) === 0) ||
    inspector.has(target)
  return all.filter((one) => one.fd > 2 && !isOwn(one)).map(({ fd }) => fd)
}

function openDescriptors(): Descriptor[] {
  let names: string[] = []
  try {
    names = readdirSync(FOLDER)
  } catch {}
  return names.flatMap((name) => {
    const path = `${FOLDER}/${name}`
    try {
      return [{ fd: Number(name), target: readlinkSync(path), mode: lstatSync(path).mode }]
    } catch {
      // That was the listing's own.
      return []
    }
  })
}

/** The sockets of `node --inspect`: the program that takes our place opens that port anew. */
function inspectorSockets(): Set<string> {
  const sockets = new Set<string>()
  try {
    const url = (require('node:inspector') as typeof import('node:inspector')).url()
    if (url === undefined) return sockets
    const port = Number(new URL(url).port)
    for (const table of ['tcp', 'tcp6']) {
      for (const line of readFileSync(`/proc/self/net/${table}`, 'latin1').split('\n').slice(1)) {
        const [, local = '', , , , , , , , inode] = line.trim().split(/\s+/)
        if (Number.parseInt(local.split(':')[1] ?? '', 16) === port) sockets.add(`socket:[${inode}]`)
      }
    }
  } catch {
    // A Node.js without inspector, or a system without IPv6.
  }
  return sockets
}
