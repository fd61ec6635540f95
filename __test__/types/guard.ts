/** What guard() takes, and what it gives. */
import type { ChildProcess } from 'node:child_process'
import { type EndReport, type Guard, guard } from '../../index'
import { holds, type Same } from './assert'

declare const child: ChildProcess
/** node-pty, tinyexec: something with a pid. */
declare const terminal: { readonly pid: number }
declare const lazy: { readonly pid: number | undefined; readonly exitCode: number | undefined }

export async function guards(signal: AbortSignal): Promise<EndReport> {
  await using group = await guard(child, { signal, background: 'keep' })
  holds<Same<typeof group, Guard>>()
  for (const other of [guard(terminal), guard(lazy, { background: undefined }), guard(1234, {})])
    await (await other).release()
  holds<Same<typeof group.group, number>>()
  await group.end()
  await group.end({ signal: 'SIGINT', grace: 100 })
  return group.ended
}

// @ts-expect-error what is released is let go by release()
void guard(child, { background: 'release' })
// @ts-expect-error no text
void guard('1234')
