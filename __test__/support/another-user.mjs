// A host that is not root, and set-uid programs that it can start: what they start as root it cannot signal.
import { chmodSync, chownSync, copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { compiled } from './fixtures.mjs'
import { startHost } from './host.mjs'
import { folder, has } from './suite.mjs'

export const USER = 65534
const NOT_ROOT = process.getuid() === 0 ? '' : 'a set-uid program can be made by root only'

/** Becomes that user, in a host. */
export const DROP = `process.setgroups([]); process.setgid(${USER}); process.setuid(${USER}); process.chdir('/')
`

/** The path of a fixture as a set-uid program of this owner. `undefined`: skipped. */
export function setUid(t, name, owner = 0) {
  if (!has(t, NOT_ROOT)) return undefined
  const path = compiled(t, name)
  if (path === undefined) return undefined
  const place = folder(t)
  chmodSync(place, 0o755)
  const program = join(place, name)
  copyFileSync(path, program)
  chownSync(program, owner, owner)
  chmodSync(program, 0o4755)
  return program
}

/**
 * A host of that user. In `body` `program` is the set-uid program, and `started(script, options)` a call of bash with it
 * as $0, as soon as something has been written to standard error. `undefined`: skipped.
 */
export function hostOfAnother(t, fixture, body, { before = '', ...options } = {}) {
  const program = setUid(t, fixture)
  if (program === undefined) return undefined
  const host = startHost(
    `${before}${DROP}
     const { once } = require('node:events')
     const program = ${JSON.stringify(program)}
     const started = async (script, options) => {
       const child = spawn('bash', ['-c', script, program], { stdio: ['pipe', 'ignore', 'pipe'], ...options })
       await once(child.stderr, 'data')
       return child
     }
     ${body}`,
    options,
  )
  t.teardown(() => host.kill())
  return host
}
