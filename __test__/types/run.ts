import { Readable } from 'node:stream'
import { HoldfastError, type KeptCall, type RunOptions, type RunResult, run } from '../../index'
import { holds, type Same } from './assert'

export async function results(options: RunOptions, encoding: BufferEncoding | 'buffer'): Promise<void> {
  const text = await run('cat', ['x'])
  holds<Same<typeof text, RunResult>>()
  holds<Same<typeof text.stdout, string>>()
  const short = await run('cat', { timeout: 100, backgroundSettle: 250, backgroundGrace: 400, detached: false })
  holds<Same<typeof short.stdout, string>>()
  const bytes = await run('cat', [], { encoding: 'buffer' })
  holds<Same<typeof bytes.stdout, Uint8Array>>()
  const hex = await run('cat', { encoding: 'hex', input: Readable.from(['x']), signal: AbortSignal.timeout(1) })
  holds<Same<typeof hex.stderr, string>>()
  const either = await run('cat', [], { encoding })
  holds<Same<typeof either.stdout, string | Uint8Array>>()
  const unknown = await run('cat', [], options)
  holds<Same<typeof unknown.stdout, string | Uint8Array>>()
  holds<Same<typeof text.kept, KeptCall | undefined>>()
}

// Generic over the encoding alone, or an editor could neither complete the options nor show what they mean.
export const bytesOnly: (file: string) => Promise<RunResult<Uint8Array>> = run<'buffer'>

export async function failures(): Promise<string | undefined> {
  try {
    const chunks: Uint8Array[] = []
    await run('cat', { onOutput: ({ data }) => chunks.push(data) })
    await run('cat', { check: true, onOutput: async ({ stream, data }) => console.log(stream, data.byteLength) })
  } catch (error) {
    if (HoldfastError.is(error)) return error.result?.stderr.toString() ?? error.step
  }
  return undefined
}

// @ts-expect-error no such encoding
void run('cat', { encoding: 'utf9' })
// @ts-expect-error a pipe from somewhere is a Readable
void run('cat', { input: 5 })
// @ts-expect-error no such option
void run('cat', [], { encodign: 'buffer' })
