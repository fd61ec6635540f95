// What can be seen of a child by whoever started it: for scenarios that run through two functions called spawn().
import { text } from 'node:stream/consumers'
import { within } from './command-line.mjs'

/** What comes with the next event of this name; unlike once() it does not mind an `error`. */
export const next = (emitter, event) =>
  within(new Promise((resolve) => emitter.once(event, (...args) => resolve(args))), event)

/** `error` and `close` of a child that is expected to end: { code, signal, stdout, stderr, error }. */
export async function ended(child) {
  let error
  child.on('error', (thrown) => {
    error = thrown
  })
  const outputs = [child.stdout, child.stderr].map((stream) => (stream ? text(stream).catch(() => '') : ''))
  const [code, signal] = await within(
    new Promise((resolve) => {
      child.once('close', (...status) => resolve(status))
      // What was aborted before its start is never closed.
      child.once('error', () => setTimeout(resolve, 1000, [null, null]).unref())
    }),
    'close',
  )
  const [stdout, stderr] = await Promise.all(outputs)
  return { code, signal, stdout, stderr, error }
}

export const output = async (child) => (await ended(child)).stdout
export const status = async (child) => {
  const { code, signal } = await ended(child)
  return [code, signal]
}

/** The events of a child in their order, each once; 'data' and 'end' are those of stdout. Until `last`. */
export async function events(child, last = 'close', names = ['spawn', 'error', 'exit', 'close']) {
  const seen = []
  const note = (event) => () => {
    if (!seen.includes(event)) seen.push(event)
  }
  for (const event of names) {
    const emitter = ['data', 'end'].includes(event) ? child.stdout : child
    emitter.on(event, note(event))
  }
  await within(new Promise((resolve) => child.once(last, resolve)), last)
  return seen
}

/** Which way a start is refused: 'throws <name> <code>', 'emits <code>', or 'starts'. */
export async function refusal(start) {
  let child
  try {
    child = start()
  } catch (error) {
    return `throws ${error.name} ${error.code}`
  }
  const { error } = await ended(child)
  return error === undefined ? 'starts' : `emits ${error.code}`
}

/**
 * Of two events of a child: 'the same turn', or 'a later turn', when what awaited the first one has gone on by then.
 * `first` undefined: from this call on.
 */
export async function turnsBetween(child, first, second) {
  let hasGoneOn = false
  const begin = () =>
    process.nextTick(() =>
      queueMicrotask(() => {
        hasGoneOn = true
      }),
    )
  if (first === undefined) begin()
  else child.once(first, begin)
  const seen = new Promise((resolve) => child.once(second, () => resolve(hasGoneOn ? 'a later turn' : 'the same turn')))
  return within(seen, second)
}
