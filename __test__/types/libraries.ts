/** What libraries ask of a child, in the words of their own declarations. */
import type { ChildProcess } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import treeKill from 'tree-kill'
import { spawn } from '../../index'

const child = spawn('server', ['--stdio'])

// tree-kill, pidtree, pidusage: a number.
if (child.pid !== undefined) treeKill(child.pid, 'SIGKILL')

// MCP transports: streams of a child that may have none.
interface StdioTransport {
  stdin: Writable | null
  stdout: Readable | null
  stderr?: Readable | null
}
export const transport: StdioTransport = child

// vscode-jsonrpc: StreamMessageReader and StreamMessageWriter take the streams of the global namespace.
declare function messageReader(readable: NodeJS.ReadableStream): void
declare function messageWriter(writable: NodeJS.WritableStream): void
messageReader(child.stdout)
messageWriter(child.stdin)

// vscode-languageclient: a ServerOptions function.
export const serverOptions: () => Promise<ChildProcess | { reader: NodeJS.ReadableStream }> = async () => child

// get-stream, split2, readline: an async iterable of chunks.
declare function getStream(stream: AsyncIterable<unknown>): Promise<string>
export const output = (): Promise<string> => getStream(child.stdout)

// wait-on-exit helpers, execa's and tinyexec's `process` member, p-event.
declare function exitCode(emitter: {
  once(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): unknown
  once(event: 'error', listener: (error: Error) => void): unknown
}): Promise<number>
export const code = (): Promise<number> => exitCode(child)
interface Result {
  process: ChildProcess | undefined
}
export const result: Result = { process: child }

// signal-exit, foreground-child, terminate: kill() with a name or a number.
export const killable: { kill(signal?: NodeJS.Signals | number): boolean; readonly killed: boolean } = child
