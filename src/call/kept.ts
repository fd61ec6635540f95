/** What the user of run() sees of a call that goes on: what it prints from now on, and how it ends. */
import type { KeptCall } from '../../index'
import type { Call } from './call'
import { viewOf } from './registry'

type Kept = KeptCall<string | Uint8Array>
interface ReadCall extends Call {
  read(): ReturnType<Kept['read']>
  exitedPromise(): Kept['exited']
}

export function keptViewOf(call: ReadCall): Kept {
  return Object.defineProperties(viewOf(call), {
    read: { value: () => call.read(), enumerable: true },
    exited: { get: () => call.exitedPromise(), enumerable: true },
    ended: { get: () => call.ended, enumerable: true },
    ref: { value: () => call.ref(), enumerable: true },
    unref: { value: () => call.unref(), enumerable: true },
  }) as Kept
}
