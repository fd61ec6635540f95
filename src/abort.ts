/** One listener for each AbortSignal, however many calls share it; none when no call is left. */
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
