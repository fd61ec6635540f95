import type { Readable, Writable } from 'node:stream'
import type { EndReport } from '../../index'
import { type containRequestedSession, type Session, type SessionOptions, startSession } from '../../session'
import { holds, type Same } from './assert'
import '../../engine'

export async function session(options: SessionOptions): Promise<EndReport> {
  await using started = await startSession('engine', ['serve'], { via: 'request', signal: AbortSignal.timeout(1) })
  holds<Same<typeof started, Session>>()
  holds<Same<typeof started.stdin, Writable>>()
  holds<Same<typeof started.stdout, Readable>>()
  holds<Same<typeof started.pid, number>>()
  const { exitCode, signal } = await started.exited
  holds<Same<typeof exitCode, number | null>>()
  holds<Same<typeof signal, NodeJS.Signals | null>>()
  await startSession('engine', [], options)
  return started.end({ signal: 'SIGINT', grace: 0 })
}

holds<Same<ReturnType<typeof containRequestedSession>, boolean>>()

// @ts-expect-error both or none
void startSession('engine', [], { protocol: { env: 'X' } })
// @ts-expect-error no such way
void startSession('engine', [], { via: 'magic' })
