/** All calls: what running() lists and endAll() ends. */
import { AsyncResource } from 'node:async_hooks'
import { inspect } from 'node:util'
import type { EndOptions, EndReport, RunningCall } from '../../index'
import type { CallHandle } from '../native/addon'
import { environment, keepLoopAlive, letLoopEnd, native, open, unwatch, type Watcher, watch } from '../native/reactor'
import { ladderOfValues } from '../options/end'
import { END_ALL, optionsOf } from '../options/names'
import { oneOf } from '../options/values'
import { type Call, calls, waiting } from './call'
import { reportOf } from './reports'

/**
 * What others may know and ask of a call. Its pid is NaN while it is not known: a 0 would name the host's own group to
 * kill(2).
 */
export function viewOf(call: Call): RunningCall {
  const view: RunningCall = {
    get id() {
      return call.id
    },
    get pid() {
      return call.pid ?? Number.NaN
    },
    file: call.namedOf().file,
    startedAt: call.startedAt,
    end: (options) => call.end(options),
    release: () => call.release(),
  }
  return Object.defineProperty(view, inspect.custom, { value: () => call.facts() })
}

/** The calls of this thread that have not ended, kept ones included. */
export function running(): RunningCall[] {
  return Array.from(calls, viewOf)
}

/** Ends the calls of this thread: all are signalled before any is waited for. */
export async function endAll(options?: EndOptions & { scope?: 'thread' | 'process' }): Promise<EndReport[]> {
  const given = optionsOf(options, END_ALL)
  const scope = oneOf('scope', given.scope, ['thread', 'process'])
  const { signal, grace } = ladderOfValues(given)
  const own = [...calls, ...waiting].map((call) => call.end({ signal: given.signal, grace: given.grace } as EndOptions))
  if (scope !== 'process') return Promise.all(own)
  open()
  const others = native.endOthers(environment, signal, grace).map((handle) => new Observer(handle).ended)
  return Promise.all([...own, ...others])
}

/** Another thread's call: only its end is reported here. */
class Observer extends AsyncResource implements Watcher {
  readonly ended: Promise<EndReport>
  private resolve: ((report: EndReport) => void) | undefined

  constructor(private readonly handle: CallHandle) {
    super('HOLDFAST')
    this.ended = new Promise((resolve) => {
      this.resolve = resolve
    })
    watch(handle, this)
    keepLoopAlive()
  }

  get scope(): this {
    return this
  }

  ready(): void {
    for (const event of native.receive(this.handle)) {
      if (event.kind !== 'ended') continue
      unwatch(this.handle)
      letLoopEnd()
      this.resolve?.(reportOf(event))
    }
  }
}
