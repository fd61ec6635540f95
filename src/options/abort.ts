/** The option `signal`: an AbortSignal. One listener for each, however many calls share it; none when no call is left. */
import { invalidType } from '../report/errors'

export function abortSignal(value: unknown): AbortSignal | undefined {
  if (value === undefined) return undefined
  if (
    value === null ||
    typeof value !== 'object' ||
    !('aborted' in value) ||
    typeof (value as AbortSignal).addEventListener !== 'function' ||
    typeof (value as AbortSignal).removeEventListener !== 'function'
  ) {
    throw invalidType('options.signal', 'an AbortSignal', value)
  }
  return value as AbortSignal
}

export interface Abortable {
  abort(): void
}

interface Watched {
  readonly calls: Set<Abortable>
  readonly onAbort: () => void
}

const watched = new WeakMap<AbortSignal, Watched>()

export function watchSignal(signal: AbortSignal, call: Abortable): void {
  const known = watched.get(signal)
  if (known !== undefined) {
    known.calls.add(call)
    return
  }
  const calls = new Set([call])
  // The event is not looked at: a signal of another realm or library has its own.
  const onAbort = () => {
    watched.delete(signal)
    for (const one of calls) one.abort()
  }
  watched.set(signal, { calls, onAbort })
  signal.addEventListener('abort', onAbort, { once: true })
}

export function unwatchSignal(signal: AbortSignal, call: Abortable): void {
  const known = watched.get(signal)
  if (!known?.calls.delete(call) || known.calls.size > 0) return
  watched.delete(signal)
  signal.removeEventListener('abort', known.onAbort)
}
