/**
 * Timers and clocks, taken when the package is loaded. Tests replace the globals, and the functions of `node:timers`,
 * by fakes that only go on when a test advances them: a call that waited for one of those would never end.
 */
import { performance } from 'node:perf_hooks'
import timers from 'node:timers'

export const { clearTimeout, setImmediate, setInterval, setTimeout } = timers
export const { nextTick } = process
export const dateNow = Date.now
/** Milliseconds of a clock that never goes back. */
export const clock = performance.now.bind(performance)
