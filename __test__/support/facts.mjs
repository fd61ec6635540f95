// Facts about processes, for tests: read from the system, awaited with a deadline, never slept for.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'

/** { state, ppid, pgrp, session, threads } of a process, or undefined where there is none. */
export function stat(pid) {
  let text
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return undefined
  }
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const [state, ppid, pgrp, session] = fields
  return { state, ppid: Number(ppid), pgrp: Number(pgrp), session: Number(session), threads: Number(fields[17]) }
}

/** A zombie with further threads is alive: only its first thread has left. */
export function isAlive(pid) {
  const found = stat(pid)
  return found !== undefined && !('ZX'.includes(found.state) && found.threads <= 1)
}

/** Every pid that the process table holds. */
export function allPids() {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
}

/** The live processes whose environment holds this mark. Fixtures are started with MARK=<unique>. */
export function marked(mark) {
  return allPids().filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`).includes(`MARK=${mark}\0`) && isAlive(pid)
    } catch {
      return false
    }
  })
}

let serial = 0
/** A mark of its own for one test. */
export const newMark = () => `m${process.pid}-${Date.now()}-${++serial}`

export const childrenOf = (pid) => allPids().filter((other) => stat(other)?.ppid === pid)

/** Open descriptors of a process: number -> what it is. */
export function descriptors(pid) {
  const list = new Map()
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      list.set(Number(fd), readlinkSync(`/proc/${pid}/fd/${fd}`))
    } catch {}
  }
  return list
}

/** Holds the event loop for so long, without holding a processor. */
export const holdLoop = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)

/** The pid of a call, while the loop stands: of a keeper that is starved it is not known in the 20 ms that `pid` waits. */
export function pidOf(child, deadline = 10_000) {
  for (const end = Date.now() + deadline; child.pid === undefined; holdLoop(1)) {
    if (Date.now() > end) throw new Error(`no pid within ${deadline} ms`)
  }
  return child.pid
}

/** Resolves with the first truthy value of `fact()`; rejects when `deadline` ms have passed without one. */
export async function until(fact, what, deadline = 10_000) {
  const end = Date.now() + deadline
  for (;;) {
    const value = await fact()
    if (value) return value
    if (Date.now() > end) throw new Error(`not within ${deadline} ms: ${what}`)
    await setTimeout(2)
  }
}

export const gone = (pids, deadline) => until(() => pids.every((pid) => !isAlive(pid)), `end of ${pids}`, deadline)
export const noneMarked = (mark, deadline) =>
  until(() => marked(mark).length === 0, `end of all with ${mark}`, deadline)

/** The helper of a host, and its keepers. */
export const helpersOf = (host) => childrenOf(host).filter((pid) => comm(pid) === 'holdfast-helper')
export const keepersOf = (helper) => childrenOf(helper).filter((pid) => comm(pid) === 'holdfast-helper')

/** The children of a keeper but the one zombie that holds the group of its call, or of the next one. */
export function childrenBesidePin(keeper) {
  const all = childrenOf(keeper)
  const pin = all.find((pid) => stat(pid)?.state === 'Z' && stat(pid).pgrp === pid)
  return all.filter((pid) => pid !== pin)
}

/** The live guards of a host. */
export const guardsOf = (host) => helpersOf(host).filter((pid) => isAlive(pid) && argsOf(pid)[1] === '__group-guard')

/** The command line; empty of a zombie. */
export function argsOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1)
  } catch {
    return []
  }
}

export function comm(pid) {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
  } catch {
    return undefined
  }
}

/** An argument of `sleep` that nobody else has: it names a process that has neither environment nor parent. */
export const newWord = () => `59.${String(process.pid).padStart(8, '0')}${String(++serial).padStart(4, '0')}`

/** The live processes that have this word as an argument. */
export function withWord(word) {
  return allPids().filter((pid) => {
    try {
      return isAlive(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(word)
    } catch {
      return false
    }
  })
}

export const noneWithWord = (word, deadline) =>
  until(() => withWord(word).length === 0, `end of all with ${word}`, deadline)

/** The live processes that any mark or word of this test file is on: pid and name. */
export function leftByUs() {
  const word = newWord().slice(0, -4)
  return allPids()
    .filter((pid) => {
      try {
        if (!isAlive(pid)) return false
        if (readFileSync(`/proc/${pid}/environ`).includes(`MARK=m${process.pid}-`)) return true
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`\0${word}`)
      } catch {
        return false
      }
    })
    .map((pid) => `${pid} ${comm(pid)}`)
}

/** Everything below a process, zombies included. */
export function descendantsOf(pid) {
  const parents = new Map(allPids().map((other) => [other, stat(other)?.ppid]))
  const found = []
  for (let level = [pid]; level.length > 0; found.push(...level)) {
    const above = level
    level = [...parents].filter(([, parent]) => above.includes(parent)).map(([other]) => other)
  }
  return found
}

/** One line of /proc/<pid>/status, without its name. */
export function statusOf(pid, name) {
  try {
    return new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  } catch {
    return undefined
  }
}
