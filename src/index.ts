/** The public surface. index.d.ts at the root declares it; scripts/api.check.ts holds the two together. */
import type * as api from '../index'
import { spawn as spawnContained } from './call/contained-process'
import { endAll as endEvery, running as runningCalls } from './call/registry'
import { run as runContained } from './call/run'
import { guard as guardGroup } from './guard/guard'
import { native, open } from './native/reactor'

export { capabilities, probe } from './native/capabilities'
export { describe } from './report/describe'
export { HoldfastError } from './report/errors'
export { notices } from './report/notices'

// All of it is loaded now and not by the first call, which may find no free descriptor to read a file with.

// The types of options and result depend on one another in ways that only the declaration can say.
export const spawn = spawnContained as unknown as typeof api.spawn
export const run = runContained as unknown as typeof api.run

export const running: typeof api.running = runningCalls
export const endAll: typeof api.endAll = endEvery

export const resetHelper: typeof api.resetHelper = () => {
  open()
  native.resetHelper()
}

export const guard: typeof api.guard = guardGroup
