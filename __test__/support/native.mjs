// Native code in a host: a small C file whose constructor does one thing, loaded by process.dlopen in the middle of the
// host's life. Node itself resets dispositions and mask at its start, so a shim in front of it would change nothing.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const FIXTURES = fileURLToPath(new URL('../fixtures/', import.meta.url))

export const hasCompiler = spawnSync('cc', ['--version']).status === 0

/** The built library, or undefined with the reason in the log. */
export function buildNative(t, name, into) {
  if (!hasCompiler) {
    t.log(`skipped: there is no C compiler (cc) to build fixtures/${name}.c`)
    t.pass()
    return undefined
  }
  const library = join(into, `${name}.so`)
  const built = spawnSync('cc', ['-shared', '-fPIC', '-o', library, join(FIXTURES, `${name}.c`)], { encoding: 'utf8' })
  if (built.status !== 0) throw new Error(built.stderr)
  return library
}

/** For the text of a host. The library registers no module, which dlopen reports after its constructor has run. */
export const loadNative = (library) => `try { process.dlopen({ exports: {} }, ${JSON.stringify(library)}) } catch {}`
