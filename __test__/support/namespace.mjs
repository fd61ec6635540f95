// A pid namespace of its own, in which a test can have any number reused, and a signal to everybody reaches nobody else.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { release } from 'node:os'
import { fixture, programOf } from './fixtures.mjs'

const PID_MAX = readFileSync('/proc/sys/kernel/pid_max', 'utf8').trim()
const FACTS = new URL('./facts.mjs', import.meta.url).href

/** The shell is process 1 in there, and reaps. */
const namespace = (options, before) => [
  ...['unshare', '--pid', '--fork', '--kill-child', ...options],
  ...['sh', '-c', `${before}"$@"; exit`, 'sh'],
]

export const NAMESPACE = namespace(['--mount', '--mount-proc'], '')
/** Where /proc is that of the namespace outside. It has as many numbers, where it has numbers of its own. */
export const FOREIGN = namespace(
  [],
  `[ "$(cat /proc/sys/kernel/pid_max)" = ${PID_MAX} ] || echo ${PID_MAX} > /proc/sys/kernel/pid_max; `,
)
/** Numbers are few, and come back soon. Those below 300 do not (pid_max is 301 at least, and 300 is kept back). */
export const FEW = 450
export const FEW_NUMBERS = namespace(['--mount', '--mount-proc'], `echo ${FEW} > /proc/sys/kernel/pid_max && `)

/** '' or why there is none. */
export const NO_NAMESPACE = (() => {
  const { status, error, stderr } = spawnSync(NAMESPACE[0], [...NAMESPACE.slice(1), 'true'], { encoding: 'utf8' })
  return status === 0 ? '' : `no pid namespace of its own can be made: ${error?.message ?? stderr.trim()}`
})()
const [major, minor] = release().split('.').map(Number)
/** The same, for one with few numbers. Of older kernels pid_max is everybody's. */
export const NO_FEW_NUMBERS =
  NO_NAMESPACE === '' && (major < 6 || (major === 6 && minor < 14))
    ? `pid_max is not the namespace's own before Linux 6.14; this is ${release()}`
    : NO_NAMESPACE

/**
 * For the text of an orderedHost() in there. `strangers(...numbers)`: others that have these numbers, or come and go;
 * `leave()` ends them, and is "unharmed" or what became of them. `stop(pid)` resolves when it has stopped; by `wake(pid)`
 * it may have gone on, and ended, already.
 */
export const STRANGERS = programOf('strangers', { FACTS, strangers: fixture('strangers.py') })
