/**
 * `holdfast/session`: the SDK's side of the session protocol, and the Engine's where `holdfast/engine` cannot be had.
 * scripts/api.check.ts fails to compile when this file and src/session.ts disagree.
 *
 * An Engine is a long-running program that an SDK starts, a session is one run of it. Contained, it has a starter: a
 * small process that stands outside of the Engine's group, ends everything the Engine started when the Engine exits, and
 * exits as the Engine did, never before. The starter says so in the first line on stdout, the acknowledgement.
 * Times are whole milliseconds.
 */
import type { Readable, Writable } from 'node:stream'
import type { EndOptions, EndReport } from './index'

/**
 * Starts an Engine contained. Resolves when the acknowledgement was read, or is known not to come.
 *
 * Rejects with HoldfastError
 * - ERR_HOLDFAST_NOT_CONTAINED: it did not acknowledge (`required`), and was ended
 * - ABORT_ERR (name 'AbortError', `cause` is signal.reason): `ran` is false when nothing was started; what was started is
 *   ended before
 * - with what spawn() emits as `error` when nothing could be started. That is of the starter, by default: a program that
 *   is missing is reported by the session, with exit code 127 (126: not executable) and a line on stderr.
 * Wrong arguments reject with what spawn() throws for them.
 */
export function startSession(program: string, args?: readonly string[], options?: SessionOptions): Promise<Session>
export interface SessionOptions {
  /** Working directory, also as bytes of UTF-8. Relative or missing: resolved in the host at the call. */
  cwd?: string | URL | Uint8Array | undefined
  /** Replaces the environment; PATH is looked up in it. Default: process.env, as it is at the call. */
  env?: NodeJS.ProcessEnv | undefined
  /**
   * 'starter' (default): holdfast-helper is started, and starts the Engine, which need not know of it. 'request': the
   * Engine's own binary is started, and asked by `protocol.env` to put a starter in its place (see `holdfast/engine`).
   */
  via?: 'starter' | 'request' | undefined
  /**
   * With 'request': the variable that asks (its value is '1'), and the line that acknowledges, without its end.
   * With 'starter' the variable is taken out of the Engine's environment.
   * Default LEAN_CTX_SESSION_CONTAINMENT and {"leanctx_session_containment":1}.
   */
  protocol?: { env: string; ack: string } | undefined
  /**
   * How long to wait for the acknowledgement's first byte, and then for each further one. What comes later is output.
   * Default 5000.
   */
  ackTimeout?: number | undefined
  /**
   * true (default): reject, after the end of all of it, when the Engine does not acknowledge. false: go on with
   * `contained: false`. It is a call of this host all the same: what spawn() promises holds.
   */
  required?: boolean | undefined
  /** Aborting it ends the session, by the same ladder as end(). Aborted already: nothing is started. */
  signal?: AbortSignal | undefined
  /**
   * First signal of the ladder, at end(), on abort, and at the host's death: once for each process. Default 'SIGTERM'.
   */
  killSignal?: NodeJS.Signals | number | undefined
  /** From the first signal to SIGKILL: with end(), on abort, and at the host's death. Default 2000. */
  grace?: number | undefined
}
/** Keeps the event loop alive until it has ended. Also listed by running(), and ended by endAll(). */
export interface Session {
  /** The pid of the process that was started: with a starter the starter's, and not the Engine's. */
  readonly pid: number
  /** The acknowledgement came: the Engine has a starter. */
  readonly contained: boolean
  readonly stdin: Writable
  /** stdout and stderr are new: nothing has listened to them, or made them flow. Without the acknowledgement; otherwise byte for byte. */
  readonly stdout: Readable
  readonly stderr: Readable
  /**
   * How the Engine ended; a signal is passed on. Both null: its keeper was lost. Never rejects. Stays pending where the process
   * itself is among the survivors that `ended` reports.
   */
  readonly exited: Promise<{ exitCode: number | null; signal: NodeJS.Signals | null }>
  /**
   * What was ended, and how that was shown. Never rejects. What a starter has ended itself is not among `leftovers`; its
   * own processes can be.
   */
  readonly ended: Promise<EndReport>
  /**
   * Ends everything: `signal` to the Engine and all it started, once each, and SIGKILL after `grace`. Idempotent, valid in
   * every state; a later call can only shorten what an earlier one began. Defaults: `killSignal` and `grace` of the
   * session. Throws only for wrong options.
   *
   * With SIGHUP, SIGINT, SIGQUIT and SIGTERM a starter ends all of it; any other signal to its pid it passes on to the
   * Engine.
   */
  end(options?: EndOptions): Promise<EndReport>
  /** end(), for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
/**
 * Answers the request for containment, as `import 'holdfast/engine'` does: for Engines that cannot use that entry.
 * Without a request it returns false, at once. Where the request was answered, it does not return: the process has become
 * the starter of its own command line, which begins anew. true: the request was there and could not be answered; no
 * acknowledgement was written. NODE_DEBUG=holdfast says why. Never throws.
 *
 * To be called before anything else: what the program did until then it does a second time, and what it has read of stdin
 * or of an IPC channel is gone.
 */
export function containRequestedSession(): boolean
