/**
 * This environment's side of the addon's reactor. The addon reports which calls and pipes are worth looking at
 * (readiness words); the watcher of that handle looks. A call is armed by its start, a pipe by a read or write that
 * found nothing to do.
 */
import type { AsyncResource } from 'node:async_hooks'
import { notOpened } from '../report/errors'
import { type CallHandle, type EnvironmentId, handleIn, type Native, type PipeHandle, readyIn } from './addon'
import { type HelperFile, type Loaded, load } from './load'
import { nextTick, setInterval } from './timers'

export interface Watcher {
  /** What it calls runs in here (AsyncLocalStorage). */
  readonly scope: AsyncResource
  ready(bits: number): void
}

const watchers: (Watcher | undefined)[] = []
let loaded: Loaded | undefined
/** Set by the first open(); whatever has a handle has it. */
export let native: Native
/** Whose words take() gives, and whose calls start() makes. */
export let environment: EnvironmentId

/** @throws HoldfastError when there is no addon, or no reactor */
export function open(): HelperFile {
  if (loaded === undefined) {
    try {
      const found = load()
      native = found.native
      environment = native.attach(wake)
      loaded = found
    } catch (error) {
      throw notOpened(error)
    }
  }
  return loaded.helper
}

export function watch(handle: CallHandle | PipeHandle, watcher: Watcher): void {
  watchers[handle] = watcher
}

export function unwatch(handle: CallHandle | PipeHandle): void {
  watchers[handle] = undefined
}

function wake(): void {
  isHeard = false
  for (const word of native.take(environment)) {
    const watcher = watchers[handleIn(word)]
    // A readiness word may outlive its pipe or call, and reach the next one with that handle: looking once too often is harmless.
    if (watcher !== undefined) enter(watcher, watcher.ready, readyIn(word))
  }
}

let isHeard = false

/** A listener was called in this turn of ours: what awaits it goes on when the turn is over. */
export const wasHeard = (): boolean => isHeard

export function setHeard(value: boolean): void {
  isHeard = value
}

/** Calls back in the call's scope. What a listener throws is uncaught, and stops no other listener. */
export function enter<W extends { readonly scope: AsyncResource }, A extends unknown[]>(
  watcher: W,
  callback: (this: W, ...args: A) => unknown,
  ...args: A
): void {
  try {
    watcher.scope.runInAsyncScope(callback, watcher, ...args)
  } catch (error) {
    throwLater(error)
  }
}

/** To `uncaughtException`, as if thrown by a callback of its own. */
export function throwLater(error: unknown): void {
  nextTick(() => {
    throw error
  })
}

// The loop is kept alive by one timer for all calls. Made here, so that it belongs to no call's async context.
const keepAlive = setInterval(() => {}, 2 ** 31 - 1).unref()
let references = 0

export function keepLoopAlive(): void {
  if (references++ === 0) keepAlive.ref()
}

export function letLoopEnd(): void {
  if (--references === 0) keepAlive.unref()
}
