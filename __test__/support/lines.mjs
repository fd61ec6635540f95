// The lines of a stream, one by one.
import { createInterface } from 'node:readline'

/** `next()` resolves with the next line, undefined at the end. Nothing is lost between two questions. */
export function linesOf(stream) {
  const lines = createInterface({ input: stream })[Symbol.asyncIterator]()
  return { next: async () => (await lines.next()).value }
}
