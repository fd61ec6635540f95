/**
 * The public API of holdfast: names, shapes and meaning, one reviewed file. scripts/api.check.ts fails to compile
 * when it and src/ disagree. Type-checked against @types/node 20 to 26 and TypeScript 5.4 to 7.
 * Times are milliseconds, sizes are bytes, unless a name says otherwise.
 *
 * "Not yet supported" (and @deprecated, so that an editor strikes it through) marks what a later version implements. Until
 * then it is refused by name (HoldfastError, ERR_HOLDFAST_NOT_SUPPORTED), never ignored.
 */
import type { ChildProcess } from 'node:child_process'
import type { Readable, Stream, Writable } from 'node:stream'

// ---------------------------------------------------------------- starting
/** What makes a pipe of a place of `stdio`. */
type PipeOption = 'pipe' | 'overlapped' | null | undefined
type StdinOf<Option> = Option extends PipeOption ? Writable : null
type OutputOf<Option> = Option extends PipeOption ? Readable : null
type PipedProcess = ContainedProcess<Writable, Readable, Readable>
/**
 * Starts `file` contained: what it starts is ended, and shown to be ended, when the call ends or the host dies.
 *
 * Throws only for arguments that are wrong in themselves (TypeError/RangeError, codes as in node:child_process:
 * ERR_INVALID_ARG_TYPE, ERR_INVALID_ARG_VALUE, ERR_OUT_OF_RANGE, ERR_UNKNOWN_SIGNAL), for an option that there is not
 * (TypeError ERR_HOLDFAST_UNKNOWN_OPTION; `option` is its name, `meant` the one that was probably meant), and for what is
 * not yet supported. Options whose value is undefined count as not given, as do inherited ones.
 * What the system refuses arrives as `error`. `pid` is set on return.
 */
export function spawn(
  file: string,
  options?: SpawnOptions & { stdio?: PipeOption | readonly [PipeOption?, PipeOption?, PipeOption?] },
): PipedProcess
export function spawn(
  file: string,
  args?: readonly string[],
  options?: SpawnOptions & { stdio?: PipeOption | readonly [PipeOption?, PipeOption?, PipeOption?] },
): PipedProcess
export function spawn<const S extends readonly [StdioOption, StdioOption, StdioOption, ...StdioOption[]]>(
  file: string,
  args: readonly string[],
  options: SpawnOptions & { stdio: S },
): ContainedProcess<StdinOf<S[0]>, OutputOf<S[1]>, OutputOf<S[2]>>
export function spawn(
  file: string,
  args: readonly string[],
  options: PtySpawnOptions,
): ContainedProcess<Writable, Readable, null>
export function spawn<const S extends readonly [StdioOption, StdioOption, StdioOption, ...StdioOption[]]>(
  file: string,
  options: SpawnOptions & { stdio: S },
): ContainedProcess<StdinOf<S[0]>, OutputOf<S[1]>, OutputOf<S[2]>>
export function spawn(file: string, options: SpawnOptions | PtySpawnOptions): ContainedProcess
export function spawn(
  file: string,
  args?: readonly string[],
  options?: SpawnOptions | PtySpawnOptions,
): ContainedProcess

/** Of `stdout` and `stderr` in a result. */
type OutputEncoding = BufferEncoding | 'buffer' | undefined
/** An encoding that is known only at run time (in a variable of type RunOptions) may give either. */
type ResultOf<E extends OutputEncoding> = 'buffer' extends E
  ? [E] extends ['buffer']
    ? RunResult<Uint8Array>
    : RunResult<string | Uint8Array>
  : RunResult
/**
 * Starts `file` contained, collects its output (encoding 'utf8' by default) and resolves after the end of everything it
 * started, whatever the exit code.
 *
 * Rejects with HoldfastError only when nothing ran, or when it cannot be known (ERR_HOLDFAST_UNCLEAR); with `check`
 * also when the result is not ok (ERR_HOLDFAST_CHECK, or AbortError); and when `input` or `onOutput` themselves fail
 * (ERR_HOLDFAST_CONSUMER, after the end, with `cause` and `result`). A signal that was aborted before the start
 * rejects with AbortError. Wrong arguments reject with what spawn() throws for them; run() never throws synchronously.
 */
export function run<E extends OutputEncoding = 'utf8'>(
  file: string,
  args?: readonly string[],
  options?: RunOptions<E>,
): Promise<ResultOf<E>>
export function run<E extends OutputEncoding = 'utf8'>(file: string, options?: RunOptions<E>): Promise<ResultOf<E>>

/**
 * A pseudo-terminal instead of pipes: excludes `stdio`.
 * @deprecated Not yet supported: refused with ERR_HOLDFAST_NOT_SUPPORTED.
 */
export interface PtySpawnOptions extends CallOptions {
  stdio?: undefined
  pty: PtySize
}
export interface PtySize {
  /** Columns of characters. */
  cols: number
  /** Rows of characters. */
  rows: number
  /** TERM in the command's environment. */
  name?: string | undefined
}
/** What spawn() and run() have in common. */
export interface CallOptions {
  /** Working directory, also as bytes of UTF-8. Relative or missing: resolved in the host at the call. */
  cwd?: string | URL | Uint8Array | undefined
  /**
   * Replaces the environment, as in node:child_process; undefined values are left out. PATH is looked up in it.
   * Default: process.env, as it is at the call.
   */
  env?: NodeJS.ProcessEnv | undefined
  /** argv[0] of the program. Default: `file`. */
  argv0?: string | undefined
  /**
   * `true`: /bin/sh (cmd.exe on Windows); a string names the shell. Default: none. As in node:child_process `file` and
   * `args` are joined by blanks and nothing is quoted: never pass what you do not trust.
   */
  shell?: boolean | string | undefined
  /**
   * Wall-clock limit in whole milliseconds (at most 2^31 - 1), enforced by the keeper, also while the host's event loop
   * is blocked. 0 or undefined: none.
   */
  timeout?: number | undefined
  /**
   * Limit in whole milliseconds (at most 2^31 - 1) on the silence of stdout and stderr together, until the command exits:
   * then the call is ended as by a timeout, with reason 'idle'. 0 or undefined: none. Watched by the host, so that it is
   * late while the event loop is blocked; pending output is read first. Of a stream that is not read, output counts as
   * long as its pipe takes more. Refused when neither stdout nor stderr is 'pipe'.
   */
  idleTimeout?: number | undefined
  /** Aborting it ends the call, by the same ladder as end(). Aborted already: nothing is started. */
  signal?: AbortSignal | undefined
  /** First signal of the ladder, to everything the call started. Default 'SIGTERM' (Windows: CTRL_BREAK). */
  killSignal?: NodeJS.Signals | number | undefined
  /**
   * Time in whole milliseconds from `killSignal` to SIGKILL on timeout, abort, end() and host death.
   * Default 2000; 0 goes to SIGKILL at once, but for set-uid programs (sudo) where the host is not root: these always have
   * the first signal and 500 ms, since SIGKILL would leave what they have started as another user.
   */
  grace?: number | undefined
  /**
   * What becomes of what is left when the command itself exits. 'end' (default): it is ended, after `backgroundSettle`,
   * by `killSignal`, `backgroundGrace` and SIGKILL. 'keep': it runs on, contained, until end() or the host's death.
   * 'release': it runs on for good; not yet: refused.
   */
  background?: 'end' | 'keep' | 'release' | undefined
  /**
   * With background 'end': time in whole milliseconds from `killSignal` to SIGKILL for what is left, at most: what heeds the
   * signal is not waited for any longer. Default 500; 0 goes to SIGKILL at once. The host's death has `grace`.
   */
  backgroundGrace?: number | undefined
  /**
   * With background 'end': the longest time in whole milliseconds for which what is left may go on working, without any
   * signal, before it is ended. It lasts while something of it is at work (runnable, or moving bytes through the call's
   * pipes), and is over as soon as all of it sleeps and the pipes are quiet; so a `tee` passes on what it was given.
   * Default 100; 0 turns it off. If it runs out while something still writes to the call's pipes, the report has the
   * notice `background`, and `ok` of run() is false.
   */
  backgroundSettle?: number | undefined
  /**
   * Programs that are released with their descendants instead of being ended: shared daemons such as tmux, gpg-agent,
   * adb. Matched against the executable's base name, the process name up to a colon, and argv[0]. Listed under
   * `released`; the proof is then the process table's.
   * @deprecated Not yet supported: refused with ERR_HOLDFAST_NOT_SUPPORTED.
   */
  spare?: readonly string[] | undefined
  /**
   * 'required' (default): refused when it cannot be contained (ERR_HOLDFAST_NO_HELPER). 'best-effort': runs as a plain
   * child then, with the notice `helper`: it leads a group, whose members get SIGKILL at once when it exits (without
   * `backgroundSettle`, `backgroundGrace` and `detached`).
   */
  containment?: 'required' | 'best-effort' | undefined
  /**
   * Set in the child, never ignored: what cannot be set fails the start. `userProcesses` is RLIMIT_NPROC (all of that
   * user's), `cpuTime` is in milliseconds.
   * @deprecated Not yet supported: refused with ERR_HOLDFAST_NOT_SUPPORTED.
   */
  limits?:
    | {
        memory?: number
        addressSpace?: number
        cpuTime?: number
        userProcesses?: number
        openFiles?: number
        fileSize?: number
      }
    | undefined
  /** User id of the command. Default: the host's, at the call. */
  uid?: number | undefined
  /** Group id of the command. Default: the host's, at the call. */
  gid?: number | undefined
  /**
   * true: the command leads a session and a process group of its own, as in node:child_process, so that kill(-pid) reaches
   * the group. It is contained all the same and not released: it ends with the call, and with the host. Default false.
   */
  detached?: boolean | undefined
  /** Without effect: there is never a window. */
  windowsHide?: boolean | undefined
  /** Without effect: arguments are never quoted. */
  windowsVerbatimArguments?: boolean | undefined
}
export interface SpawnOptions extends CallOptions {
  /** As in node:child_process. Default 'pipe' for places 0 to 2: real pipes. Further 'pipe's are duplex. 'ipc' is not yet: refused. */
  stdio?: StdioOptions | undefined
  /** For 'ipc'; without effect until that is supported. */
  serialization?: 'json' | 'advanced' | undefined
  pty?: undefined
}
/**
 * 'stdout' (third place only): the same pipe as stdout, so that the order of writes is kept. 'ipc' is not yet: refused.
 * A Stream needs an open descriptor. That of another call of holdfast is given away for good (`a | b`); any other is lent:
 * the host does not read it until the call has ended.
 */
export type StdioOption =
  | 'pipe'
  | 'overlapped'
  | 'ignore'
  | 'inherit'
  | 'ipc'
  | 'stdout'
  | number
  | Stream
  | null
  | undefined
export type StdioOptions = 'pipe' | 'overlapped' | 'ignore' | 'inherit' | readonly StdioOption[]

export interface RunOptions<E extends OutputEncoding = OutputEncoding> extends CallOptions {
  /**
   * As in node:child_process. Default 'pipe' for stdout and stderr, and for stdin 'ignore' (/dev/null) unless `input` is
   * given. Further 'pipe's are refused, since a result has no place for their output. 'ipc' is not yet: refused.
   */
  stdio?: StdioOptions | undefined
  /** @deprecated Not yet supported: refused with ERR_HOLDFAST_NOT_SUPPORTED. */
  pty?: PtySize | undefined
  /** Written to stdin, which is then closed. A command that does not read it all is no error. A string is UTF-8. */
  input?: string | Uint8Array | Readable | undefined
  /** Encoding of `stdout` and `stderr` in the result. Default 'utf8'; 'buffer' for bytes. */
  encoding?: E | undefined
  /**
   * Bytes per stream. Head and tail are kept, half each, with a marker line (`notices.cut`) at the cut; nothing is killed
   * for it. Default 64 MiB; cut without having been asked for: `ok` is false.
   */
  maxOutput?: number | undefined
  /**
   * Reject with HoldfastError (`.result` set) when not ok, after the end; AbortError when aborted. The message has the
   * command line and the end of stderr, cut short and without control characters. Default false.
   */
  check?: boolean | undefined
  /**
   * Called with each chunk as it comes. A promise that is returned holds up the reading of that stream until it resolves, or until the call
   * is ended by its limit, an abort, end() or endAll(): what was not passed on by then is in the result alone. When it throws
   * or rejects, the call is ended and run() rejects with ERR_HOLDFAST_CONSUMER. Refused when neither stdout nor stderr is
   * 'pipe'.
   */
  onOutput?: ((chunk: { stream: 'stdout' | 'stderr'; data: Uint8Array }) => unknown) | undefined
  /**
   * Time in whole milliseconds (at most 2^31 - 1) after which run() resolves with what there is so far, if the command has
   * not exited by then: `kept` is set, the reason is 'yield', `ok` is false, and nothing is checked. The command runs on,
   * contained; its `timeout`, `idleTimeout` and `background` hold as before, its `signal` does not concern it any more, and
   * what it prints is for `kept.read()` and not for `onOutput`. 0 or undefined: run() waits for the end.
   */
  yieldAfter?: number | undefined
}

export interface ContainedEvents {
  spawn: []
  error: [error: HoldfastError]
  exit: [code: number | null, signal: NodeJS.Signals | null]
  close: [code: number | null, signal: NodeJS.Signals | null]
  ended: [report: EndReport]
}
/**
 * A ChildProcess in shape (type and members), so that it fits where one is asked for.
 * `pid` is set when spawn() returns (undefined after a start that failed, as in node:child_process). With `detached` it
 * is also the group's id. Reading it for the first time may wait for the keeper, at most 20 ms.
 *
 * Order: spawn, (data), exit, close, ended. `ended` is always last and always comes, once. Each comes in a turn of its
 * own: a listener that is added after one of them was awaited, or in a setImmediate() after it, is called.
 * Before `ended` every pipe is read to its end: a flowing stream has emitted all its data, a paused one holds it; neither
 * `close` nor `ended` waits for a consumer that does not read.
 * As in node:child_process: at exit stdin is destroyed and a stream without a reader is resumed, so that `close` comes.
 * Refused start: error, close(errno, null), ended (reason 'not-started', error set). No exit. exitCode is the negative
 * errno.
 * Abort: no `error`; exit, close, ended (reason 'abort'). Aborted before the start: error AbortError (cause =
 * signal.reason), ended (reason 'not-started', error set).
 * Keeper lost and the status unknown: exit(null, null), the only case with both null. A command that is itself among the
 * survivors has no exit.
 * With survivors, keep and release no pipe is waited for: it is read until EAGAIN.
 *
 * send(), disconnect() and resize() are not yet: they throw HoldfastError.
 */
export interface ContainedProcess<
  I extends Writable | null = Writable | null,
  O extends Readable | null = Readable | null,
  E extends Readable | null = Readable | null,
> extends ChildProcess {
  stdin: I
  stdout: O
  stderr: E
  readonly stdio: [I, O, E, Readable | Writable | null | undefined, Readable | Writable | null | undefined]
  /** Stable for the life of the call. */
  readonly id: string
  /** The last report: resolves when `ended` was emitted, and never rejects. */
  readonly ended: Promise<EndReport>
  /**
   * Signals the command's first process, as ChildProcess does. True: handed to the keeper; false after `exit`.
   * Default 'SIGTERM'; 0 only asks. Throws TypeError ERR_UNKNOWN_SIGNAL. `killed` is true after kill(), end() and an abort,
   * and at the latest with `ended` after a timeout.
   */
  kill(signal?: NodeJS.Signals | number): boolean
  /**
   * Lets the host end before the call does; the call ends with it. It covers the streams, whether they are read or not:
   * under node:child_process an open pipe keeps the host until the stream is unref()ed as well. end() takes it back.
   */
  unref(): void
  /** Takes unref() back: the call keeps the host's event loop alive, as from its start. */
  ref(): void
  /** Signals the whole group; otherwise as kill(). */
  killGroup(signal?: NodeJS.Signals | number): boolean
  /**
   * Ends everything the call started. Idempotent, valid in every state; a later call with options can only shorten what
   * an earlier one began. Keeps the event loop alive until then. Defaults: the call's own `killSignal` and `grace`. Throws
   * only for wrong options.
   */
  end(options?: EndOptions): Promise<EndReport>
  /**
   * Lets everything the call started run on for good. (unref() does not release.)
   * @deprecated Not yet supported: rejects with ERR_HOLDFAST_NOT_SUPPORTED.
   */
  release(): Promise<EndReport>
  /**
   * Sets the size of the pseudo-terminal.
   * @deprecated Not yet supported: throws with ERR_HOLDFAST_NOT_SUPPORTED.
   */
  resize(size: { cols: number; rows: number }): void
  /** end(), for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
  on<K extends keyof ContainedEvents>(event: K, listener: (...args: ContainedEvents[K]) => void): this
  on(event: string | symbol, listener: (...args: any[]) => void): this
  once<K extends keyof ContainedEvents>(event: K, listener: (...args: ContainedEvents[K]) => void): this
  once(event: string | symbol, listener: (...args: any[]) => void): this
  off<K extends keyof ContainedEvents>(event: K, listener: (...args: ContainedEvents[K]) => void): this
  off(event: string | symbol, listener: (...args: any[]) => void): this
  addListener<K extends keyof ContainedEvents>(event: K, listener: (...args: ContainedEvents[K]) => void): this
  addListener(event: string | symbol, listener: (...args: any[]) => void): this
}

// ---------------------------------------------------------------- results
/** Of end(), of calls and guards. */
export interface EndOptions {
  /** First signal of the ladder. */
  signal?: NodeJS.Signals | number
  /** Time in whole milliseconds from `signal` to SIGKILL. 0 goes to SIGKILL at once. */
  grace?: number
}
export interface EndReport {
  /**
   * 'ended': shown to be ended. 'released': runs on for good, on purpose. 'unconfirmed': could not be shown.
   * 'survivors': some are left, by name. 'refused': holdfast could not show that signalling was safe, and did not.
   * 'kept': it runs on, contained, and nothing is proven yet (in a RunResult alone: background 'keep', `yieldAfter`).
   */
  outcome: 'ended' | 'released' | 'unconfirmed' | 'survivors' | 'refused' | 'kept'
  /** What the end was shown by; with 'kept', what holds the processes that run on. */
  mechanism: 'subreaper' | 'group' | 'job' | 'none'
  /** The process that reports it. */
  by: 'keeper' | 'helper' | 'guard' | 'host'
  /** What began the end. */
  reason:
    | 'exit'
    | 'yield'
    | 'timeout'
    | 'idle'
    | 'abort'
    | 'end'
    | 'release'
    | 'host-gone'
    | 'keeper-gone'
    | 'guard-gone'
    | 'not-started'
  /**
   * Everything but the command's first process, or the guarded child, that was alive when it exited or the end began
   * (after an `end()`, an abort, a timeout: all that was running), and has ended; of a call also what was found later. At
   * most 64 are named.
   */
  leftovers: ProcessInfo[]
  /** How many there were, also beyond 64. */
  leftoverCount: number
  released: ProcessInfo[]
  /**
   * What is still alive, the command's first process or the guarded child included. Of a call at most 64 are named, of
   * guard() every one.
   */
  survivors: ProcessInfo[]
  /** From the first SIGKILL to the proof, with fractions. 0 where none was needed. */
  proofTime: number
  /** Why nothing was started, or why that cannot be known. */
  error?: HoldfastError
  /** One of `notices`, when there is something to say. */
  notice?: string
}
export interface ProcessInfo {
  pid: number
  /** As the kernel keeps it: at most 15 bytes. Safe to print: U+FFFD for control characters and invalid UTF-8. */
  name: string
}
export interface RunResult<T extends string | Uint8Array = string> {
  /** null: ended by a signal, or unknown because the keeper was lost. */
  exitCode: number | null
  signal: NodeJS.Signals | null
  stdout: T
  /** Empty with 'stdout' in the third place of `stdio`. */
  stderr: T
  /** Bytes left out, because of `maxOutput`. */
  dropped: { stdout: number; stderr: number }
  /**
   * Exit code 0, by itself (report.reason 'exit'), and no output was left out unasked, nor cut off (notice `background`).
   * It says nothing else about what the command left behind; `report` and `notices` do.
   */
  ok: boolean
  timedOut: boolean
  idleTimedOut: boolean
  aborted: boolean
  /** From the start to the result, with fractions. */
  duration: number
  /** Used by everything the call started: times in milliseconds, the largest resident size in bytes. */
  usage: { userTime: number; systemTime: number; maxRss: number }
  report: EndReport
  /** The call that goes on (background: 'keep', `yieldAfter`); undefined otherwise. */
  kept?: KeptCall<T>
  /** Fixed texts (see `notices`), fit to be shown to a model. */
  notices: string[]
}
/**
 * `code` is the system's (ENOENT, EACCES, ENOTDIR, ENOEXEC, E2BIG, ...) when the system refused the start, else one of
 * - ERR_HOLDFAST_NO_HELPER: nothing ran: no addon or no helper is available; the message says what is wrong, and what to do
 * - ERR_ACCESS_DENIED: nothing ran: Node's permission model refuses children (node --permission)
 * - ERR_HOLDFAST_GUARD: guard() cannot hold what it was given; the message says why
 * - ERR_HOLDFAST_UNCLEAR: it cannot be known whether it ran
 * - ERR_HOLDFAST_NOT_SUPPORTED: part of this API, but not yet of this version
 * - ERR_HOLDFAST_CHECK: `check: true`, and the result is not ok
 * - ERR_HOLDFAST_CONSUMER: `input` or `onOutput` failed, and the call was ended for it
 * - ERR_HOLDFAST_NOT_CONTAINED: of startSession(), an Engine that did not acknowledge
 * - ABORT_ERR: aborted (name 'AbortError', `cause` is signal.reason)
 */
export declare class HoldfastError extends Error {
  /** Also true for errors of another copy of holdfast. */
  static is(value: unknown): value is HoldfastError
  readonly code: string
  /** Negative, as in node:child_process. */
  readonly errno?: number
  readonly syscall?: string
  /** What the step was about: the working directory, the program, its interpreter. */
  readonly path?: string
  readonly spawnargs?: string[]
  readonly step?:
    | 'cwd'
    | 'program'
    | 'interpreter'
    | 'arguments'
    | 'stdio'
    | 'limits'
    | 'credentials'
    | 'helper'
    | 'guard'
  /** Whether anything of the command ran; of guard(): true, since what it was given is not ours. */
  readonly ran: boolean | 'unclear'
  /** With `check: true`: what there is of the result. */
  readonly result?: RunResult<string | Uint8Array>
  readonly notice?: string
}

// ---------------------------------------------------------------- the rest
/**
 * Contains what other code has started: a child of this process that leads a process group of its own, by way of
 * child_process with `detached: true`, execa, tinyexec, a worker pool. Prefer spawn() or run() where there is a choice:
 * they see what leaves the group, too.
 *
 *     const child = child_process.spawn('npm', ['start'], { detached: true })
 *     await using group = await guard(child)
 *
 * A process of its own, the guard, watches from outside the group; it holds none of the child's pipes. It ends what is
 * in the group, and its descendants outside of it, as long as the chain of parents is intact:
 * - on end() and on dispose, and when `signal` is aborted: by `signal`, `grace` and SIGKILL;
 * - when the child exits, by whatever means, also while this process's event loop is blocked: what is left may go on
 *   working for 100 ms at most, then SIGTERM, 500 ms, SIGKILL. With background 'keep' it runs on, contained;
 * - when this process dies by whatever means, SIGKILL included, and when the worker thread that called guard() ends: by
 *   SIGTERM, 2 s, SIGKILL.
 * Not seen, and left alone: an orphan that left the group (a daemon by `setsid` or double fork).
 *
 * Resolves when the guard is ready; what happens before that is not covered. A guard that dies is replaced. It keeps
 * the event loop alive until it is ready, and from the moment that `ended`, end() or release() was asked for.
 * Call it as soon as the child is started, before anything is awaited: from then on it cannot be taken for another one.
 *
 * Rejects, and nothing was signalled, with
 * - TypeError or RangeError for arguments that are wrong in themselves, as a `pid` that is not set (the child was not
 *   started), 0, 1, a negative one, or this process's own;
 * - HoldfastError ERR_HOLDFAST_GUARD for what it cannot hold; the message says why: not a child of this process (as the
 *   processes of holdfast's own calls, which need no guard), in the group of this process, not the leader of its group,
 *   dead, or on a system that has no way to hold the group of another session;
 * - HoldfastError ERR_HOLDFAST_NO_HELPER when no guard could be started;
 * - AbortError when `signal` was aborted before the call. Aborted later, it resolves, and ends the group.
 * `ran` is true in them: the child was started before, and runs on.
 */
export function guard(
  target: Pick<ChildProcess, 'pid'> | number,
  options?: {
    /** Aborting it ends the group, as end() does; report.reason is 'abort'. */
    signal?: AbortSignal | undefined
    /** What becomes of what is left when the child itself exits. Default 'end'. */
    background?: 'end' | 'keep' | undefined
  },
): Promise<Guard>
/** Not a call: running() does not list it, and endAll() does not end it. It may be dropped: the guard goes on. */
export interface Guard {
  /** The number of the process group, which is the child's pid. */
  readonly group: number
  /**
   * The report (mechanism 'group', by 'guard'): when the group has ended, was released, or is given up. Never rejects. By
   * 'host' with outcome 'unconfirmed' and reason 'guard-gone': the guard died, and no other one could take its place.
   */
  readonly ended: Promise<EndReport>
  /**
   * Ends the group. Idempotent, valid in every state; a later call with options can only shorten what an earlier one
   * began. Defaults: 'SIGTERM', 2000 ms. Throws only for wrong options.
   */
  end(options?: EndOptions): Promise<EndReport>
  /**
   * Lets the group run on for good. Not after end(). The notice `release`, when the outcome is another one than
   * 'released'.
   */
  release(): Promise<EndReport>
  /** end(), for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
export interface RunningCall {
  readonly id: string
  /** NaN while it is not known (never 0, which kill(2) takes for the host's own group). */
  readonly pid: number
  readonly file: string
  /** Date.now() at the start. */
  readonly startedAt: number
  end(options?: EndOptions): Promise<EndReport>
  /** @deprecated Not yet supported: rejects with ERR_HOLDFAST_NOT_SUPPORTED. */
  release(): Promise<EndReport>
}
/**
 * A call that goes on after its result. Its output is read all the time, at most 64 KiB a millisecond of each stream, so
 * that it never waits for a reader; while it is silent it costs the event loop nothing. It does not keep the event loop
 * alive, and ends with the host, unless ref() or end() was called.
 */
export interface KeptCall<T extends string | Uint8Array = string> extends RunningCall {
  /**
   * What came since the last read, or since the result: of each stream head and tail within `maxOutput`, in the `encoding`
   * of the call; a character that is not all there comes with the next read. Also after the end: what had not been read.
   */
  read(): { stdout: T; stderr: T; dropped: { stdout: number; stderr: number } }
  /** How the command exited; both null when its keeper was lost, or when it is among the survivors. Never rejects. */
  readonly exited: Promise<{ exitCode: number | null; signal: NodeJS.Signals | null }>
  /** The last report, when nothing of the call is left. Never rejects. */
  readonly ended: Promise<EndReport>
  /** Keeps the event loop alive until the end. */
  ref(): void
  /** Takes ref() back. */
  unref(): void
}
/** The calls of this thread that have not ended, oldest first; also those whose handle was dropped. */
export function running(): RunningCall[]
/**
 * Ends all calls: every one is signalled before any is waited for. A run() that only waits for its `onOutput`
 * stops waiting. Default scope 'thread', the calls of this thread.
 * 'process': those of every thread of this process, and of every copy of this package in it.
 */
export function endAll(options?: EndOptions & { scope?: 'thread' | 'process' }): Promise<EndReport[]>
/**
 * Starts a new helper for the calls to come, after the host took on a root directory, namespaces, cgroups, filters,
 * `no_new_privs` or capabilities that the old one has not. To be called in the thread that took them on, and that makes
 * the next call: the new helper inherits from that thread. The old helper and its keepers start nothing more; calls that
 * run go on. Throws HoldfastError when there is no addon for this machine.
 */
export function resetHelper(): void

/** What this machine can do, from files alone; `probe()` also tries what only trying can tell. `holdfast doctor` prints both. */
export function capabilities(): Capabilities
/** Starts the helper, if none is running. Never rejects: what is wrong is in `helper.problem`. */
export function probe(): Promise<Capabilities>
export interface Capabilities {
  /** `${process.platform}-${process.arch}` */
  platform: string
  mechanism: EndReport['mechanism']
  /** What is ended when the host dies, by whatever means. */
  hostDeath: 'everything' | 'group' | 'none'
  /** What becomes of processes that left the call's group or session. */
  escapees: 'ended' | 'reported' | 'not-seen'
  /** What the end is shown by. */
  proof: 'kernel' | 'process-table' | 'none'
  /** `problem`: why nothing can be contained here, and what was tried. */
  helper: { path: string; version: string; probed: boolean; problem?: string }
}

/** Fixed texts, free of ids and times. */
/**
 * A few lines of plain English about a result, fit to be handed to a model: how the command ended, which limit struck,
 * what was left and ended, or runs on, what could not be ended, and how many bytes of the output were left out. The texts
 * are stable, but for exit codes, names, pids and counts. The output itself is not in it.
 */
export function describe(result: RunResult<string | Uint8Array>): string
export const notices: {
  readonly end: string
  readonly helper: string
  readonly unclear: string
  readonly release: string
  readonly background: string
  readonly cut: string
}
