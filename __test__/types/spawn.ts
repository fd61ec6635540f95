import type { ChildProcess, ChildProcessByStdio, ChildProcessWithoutNullStreams } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { type ContainedProcess, type EndReport, type HoldfastError, type notices, spawn } from '../../index'
import { holds, type Same } from './assert'

const piped = spawn('cat')
holds<Same<typeof piped, ContainedProcess<Writable, Readable, Readable>>>()
holds<Same<typeof piped.stdin, Writable>>()
holds<Same<typeof piped.pid, number | undefined>>()

// ---- which places are streams
const some = spawn('cat', [], { stdio: ['ignore', 'pipe', 'inherit'] })
holds<Same<typeof some.stdin, null>>()
holds<Same<typeof some.stdout, Readable>>()
holds<Same<typeof some.stderr, null>>()
const without = spawn('cat', { stdio: ['ignore', 'pipe', 'inherit'] })
holds<Same<typeof without.stdin, null>>()
holds<Same<typeof without.stdout, Readable>>()
const merged = spawn('cat', [], { stdio: ['pipe', 'pipe', 'stdout'] })
holds<Same<typeof merged.stderr, null>>()
const more = spawn('cat', [], { stdio: ['pipe', 'pipe', 'pipe', 'pipe', 5] })
holds<Same<typeof more.stdin, Writable>>()
const unknownPlaces = spawn('cat', [], { stdio: 'inherit' })
holds<Same<typeof unknownPlaces.stdout, Readable | null>>()
const terminal = spawn('cat', [], { pty: { cols: 80, rows: 24 } })
holds<Same<typeof terminal.stderr, null>>()

// ---- where a ChildProcess is asked for
export const asChild: ChildProcess = piped
export const asPiped: ChildProcessWithoutNullStreams = piped
export const asByStdio: ChildProcessByStdio<null, Readable, null> = some
export const anyShape = (child: ContainedProcess): ChildProcess => child

// ---- its events
piped.on('ended', (report) => holds<Same<typeof report, EndReport>>())
piped.once('error', (error) => holds<Same<typeof error, HoldfastError>>())
piped.on('exit', (code, signal) => [code?.toFixed(), signal?.toLowerCase()])
piped.on('some other', (..._args) => {})
export const report = (): Promise<EndReport> => piped.end({ signal: 'SIGINT', grace: 0 })

export async function scoped(): Promise<void> {
  await using child = spawn('cat', { cwd: new URL('file:///'), env: { A: undefined } })
  child.kill('SIGHUP')
}

// @ts-expect-error a pseudo-terminal excludes stdio
spawn('cat', [], { pty: { cols: 80, rows: 24 }, stdio: 'pipe' })
// @ts-expect-error no such background
spawn('cat', { background: 'forever' })
// @ts-expect-error no such option
spawn('cat', [], { maxBuffer: 1 })

// ---- what is left when the command exits
spawn('cat', { background: 'end', backgroundGrace: 0, backgroundSettle: 0, detached: true })
spawn('cat', { backgroundGrace: undefined, backgroundSettle: undefined, detached: undefined })
holds<Same<typeof notices.background, string>>()
// @ts-expect-error milliseconds, and 0 for not at all
spawn('cat', { backgroundSettle: false })
// @ts-expect-error a boolean
spawn('cat', { detached: 1 })

// ---- options of child_process that are without effect
spawn('cat', { windowsHide: true, windowsVerbatimArguments: true, serialization: 'json' })
spawn('cat', { cwd: Buffer.from('/') })
