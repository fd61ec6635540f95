// Where the fixtures are; those in C are compiled when a test asks for them.
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const fixture = (name) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url))

let folder

/** The path of the executable (or what else the options of cc make of it); undefined, with the reason on the log, where there is no C compiler. */
export function compiled(t, name, options = []) {
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-fixtures-'))
    // Other users run them, too.
    chmodSync(folder, 0o755)
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  }
  const path = join(folder, name)
  try {
    execFileSync('cc', ['-O1', '-pthread', ...options, '-o', path, fixture(`${name}.c`)], { stdio: 'pipe' })
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
    t.log(`skipped: there is no cc to compile ${name}.c with`)
    t.pass()
    return undefined
  }
  return path
}

/** For `sh -c … sh FILE`: leaves a process that makes FILE when it gets SIGTERM, and exits with 3 when that is ready. */
export const TIDIES = `
  (trap 'echo tidied > "$1"; exit' TERM; : > "$1.ready"; sleep 60 & wait) &
  until [ -e "$1.ready" ]; do sleep 0.01; done
  exit 3`
