/**
 * The public surface. index.d.ts at the root declares it; scripts/api.check.ts holds the two together.
 *
 * An import is to cost next to nothing in a program that makes no call: what makes calls is loaded by the first one.
 * The timers are taken now (see native/timers.ts), and the class of errors is there for `instanceof`.
 */
import type * as api from '../index'
import './native/timers'

export { HoldfastError } from './report/holdfast-error'
export { notices } from './report/notices'

let loaded: typeof import('./surface') | undefined
function surface(): typeof import('./surface') {
  loaded ??= require('./surface') as typeof import('./surface')
  return loaded
}

/** Named as what it stands for. */
function late<Name extends keyof typeof import('./surface')>(name: Name) {
  const call = (...args: unknown[]): unknown => (surface()[name] as (...all: unknown[]) => unknown)(...args)
  return Object.defineProperty(call, 'name', { value: name }) as unknown as typeof import('./surface')[Name]
}

export const spawn: typeof api.spawn = late('spawn')
export const run: typeof api.run = late('run')
export const guard: typeof api.guard = late('guard')
export const running: typeof api.running = late('running')
export const endAll: typeof api.endAll = late('endAll')
export const resetHelper: typeof api.resetHelper = late('resetHelper')
export const capabilities: typeof api.capabilities = late('capabilities')
export const probe: typeof api.probe = late('probe')
export const describe: typeof api.describe = late('describe')
