/** One listener for each AbortSignal, however many calls share it; none when no call is left. */
export interface Abortable {
  abort(): void
}

const watched = new WeakMap<AbortSignal, Set<Abortable>>()

export function watchSignal(signal: AbortSignal, call: Abortable): void {
  const calls = watched.get(signal)
  if (calls !== undefined) {
    calls.add(call)
    return
  }
  watched.set(signal, new Set([call]))
  signal.addEventListener('abort', onAbort, { once: true })
}

export function unwatchSignal(signal: AbortSignal, call: Abortable): void {
  const calls = watched.get(signal)
  if (!calls?.delete(call) || calls.size > 0) return
  watched.delete(signal)
  signal.removeEventListener('abort', onAbort)
}

function onAbort(event: Event): void {
  const signal = event.target as AbortSignal
  const calls = watched.get(signal)
  watched.delete(signal)
  for (const call of calls ?? []) call.abort()
}
