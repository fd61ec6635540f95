// Where the fixtures are; those in C are compiled when a test asks for them.
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const fixture = (name) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url))

/**
 * For the text of a host: what fixtures/<name>.mjs does there, which finds `given`, and what startHost() says. Where it
 * has a function answer(), what that returns is the value (of `do()`).
 */
export function programOf(name, given = {}) {
  const text = readFileSync(fixture(`${name}.mjs`), 'utf8')
  const answer = /^async function answer\(/m.test(text) ? '\nreturn answer()' : ''
  return `Object.assign((globalThis.given ??= {}), ${JSON.stringify(given)});${text}${answer}`
}

/** The interpreter itself: what stands in PATH may be a shell script that looks for one (pyenv). */
export const PYTHON =
  spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout?.trim() || 'python3'

/** Options of cc for what a host loads. */
export const SHARED = ['-shared', '-fPIC']

let folder
const built = new Map()

/**
 * The path of fixtures/<name>.c as an executable, or as what these options of cc make of it. It is built once in each
 * file of tests. undefined, with the reason on the log, where there is no C compiler.
 */
export function compiled(t, name, options = []) {
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-fixtures-'))
    // Other users run them, too.
    chmodSync(folder, 0o755)
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  }
  const key = [name, ...options].join(' ')
  if (built.has(key)) return built.get(key)
  const path = join(folder, options === SHARED ? `${name}.so` : name)
  try {
    execFileSync('cc', ['-O1', '-pthread', ...options, '-o', path, fixture(`${name}.c`)], { stdio: 'pipe' })
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
    t.log(`skipped: there is no cc to compile ${name}.c with`)
    t.pass()
    return undefined
  }
  built.set(key, path)
  return path
}

/**
 * For the text of a host: native code in the middle of its life, by a constructor that does one thing. (Node.js resets
 * dispositions and mask at its start, so that a shim in front of it would change nothing.) The library registers no
 * module, which dlopen reports after its constructor has run.
 */
export const loadNative = (library) => `try { process.dlopen({ exports: {} }, ${JSON.stringify(library)}) } catch {}`

/** For `sh -c … sh FILE`: leaves a process that makes FILE when it gets SIGTERM, and exits with 3 when that is ready. */
export const TIDIES = `
  (trap 'echo tidied > "$1"; exit' TERM; : > "$1.ready"; sleep 60 & wait) &
  until [ -e "$1.ready" ]; do sleep 0.01; done
  exit 3`
