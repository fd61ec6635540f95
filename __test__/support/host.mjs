// A host of its own for tests that end it: a Node.js program, given as text, that imports holdfast. It reports with
// report(value) and is bounded by an alarm of 60 s.
import { spawn } from 'node:child_process'
import { chmodSync, cpSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { PYTHON } from './fixtures.mjs'

const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '')
export const HOLDFAST = join(isOpen(CHECKOUT) ? CHECKOUT : openCopy(), 'dist/index.js')
/** Of the same copy: two of them have a helper each. */
export const SESSION = join(dirname(HOLDFAST), 'session.js')

/** A host that drops to another user must still be able to read what it runs. */
function isOpen(path) {
  const forAll = 0o005
  return (statSync(path).mode & forAll) === forAll && (path === '/' || isOpen(dirname(path)))
}

function openCopy() {
  const copy = mkdtempSync(join(tmpdir(), 'holdfast-copy-'))
  chmodSync(copy, 0o755)
  process.on('exit', () => rmSync(copy, { recursive: true, force: true }))
  for (const part of ['dist', 'npm', 'package.json']) {
    cpSync(join(CHECKOUT, part), join(copy, part), { recursive: true })
  }
  return copy
}

const PRELUDE = `
  const holdfast = require(${JSON.stringify(HOLDFAST)})
  const { spawn, run, running, endAll } = holdfast
  const PYTHON = ${JSON.stringify(PYTHON)}
  const report = (value) => process.stdout.write(JSON.stringify(value ?? null) + '\\n')
  setTimeout(() => process.exit(99), 60_000).unref()
`

/** Starts the host. `next()` is its next report; `exited` its { code, signal }. */
export function startHost(body, { env = {}, command = [process.execPath], options = {} } = {}) {
  const text = `${PRELUDE};(async () => {${body}\n})().catch((error) => { console.error(error); process.exit(98) })`
  const [file, ...args] = [...command, '-e', text]
  const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...env }, ...options })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const exited = new Promise((resolve) => child.on('exit', (code, signal) => resolve({ code, signal })))
  return {
    child,
    pid: child.pid,
    exited,
    async next() {
      const { value, done } = await lines.next()
      if (done) throw new Error('the host ended without a further report')
      return JSON.parse(value)
    },
    /** By the handle of a child that is not reaped before 'exit'. */
    kill: (signal = 'SIGKILL') => child.kill(signal),
  }
}
