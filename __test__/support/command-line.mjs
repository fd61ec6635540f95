// `holdfast run` as a process of its own, by way of the package's bin file.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterEachTest } from './after-each.mjs'
import { childrenOf, comm, newMark, until } from './facts.mjs'

export const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url))

const started = new Set()
// A test that failed half-way leaves nothing that holds the suite.
afterEachTest.push(async () => {
  for (const [child, exited] of started) {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
  }
  started.clear()
})

/** A fact that does not come fails its test, and not the whole file by a time-out. */
export function within(promise, what, deadline = 20_000) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${deadline} ms: ${what}`)), deadline)
  })
  const first = Promise.race([promise, late]).finally(() => clearTimeout(timer))
  // Not every test asks.
  first.catch(() => {})
  return first
}

/** Starts `holdfast <args>`, marked. `out()` and `err()` are what it has printed so far. */
export function holdfast(args, { command = [process.execPath, CLI], env = {}, ...options } = {}) {
  const made = newMark()
  const child = spawn(command[0], [...command.slice(1), ...args], {
    env: { ...process.env, MARK: made, ...env },
    ...options,
  })
  const chunks = [[], []]
  child.stdout?.on('data', (chunk) => chunks[0].push(chunk))
  child.stderr?.on('data', (chunk) => chunks[1].push(chunk))
  const exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }))
  started.add([child, exited])
  const text = (place) => Buffer.concat(chunks[place]).toString()
  return {
    child,
    mark: made,
    out: () => text(0),
    err: () => text(1),
    /** Its wait status: { code, signal }. */
    exited: within(exited, `exit of ${args.join(' ')}`),
    /** The same, after the end of its output. */
    closed: within(
      once(child, 'close').then(([code, signal]) => ({ code, signal })),
      `end of the output of ${args.join(' ')}`,
    ),
    shows: (word) => until(() => text(0).includes(word), `"${word}" in: ${text(0)}${text(1)}`),
  }
}

export const run = (args, options) => holdfast(['run', ...args], options)

/** The whole of a run that ends by itself. */
export async function runToEnd(args, options) {
  const started = run(args, options)
  started.child.stdin?.end()
  const status = await started.closed
  return { ...status, out: started.out(), err: started.err(), mark: started.mark }
}

/** The keeper of a running `holdfast run`. */
export async function keeperOf(pid) {
  return until(() => childrenOf(pid).find((child) => comm(child) === 'holdfast-helper'), `a keeper below ${pid}`)
}
