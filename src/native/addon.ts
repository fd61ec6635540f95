/**
 * The addon's surface, as TypeScript sees it. The addon converts and holds no policy of its own: what a
 * value means is decided in crates/core, what the user sees of it in this folder.
 *
 * Calls and pipes are handles: small numbers, valid in the environment (main thread or worker) that got them.
 * Nothing here throws for what the system refuses; a refusal is an event of the call.
 */

import type { StartFailure, StartRefusal } from '../report/errors'

declare const kind: unique symbol
/** A number of one kind, which the compiler takes for no other. */
type Branded<Kind extends string> = number & { readonly [kind]: Kind }

export type EnvironmentId = Branded<'environment'>
/** Valid until the call's last event was received. */
export type CallHandle = Branded<'call'>
/** Valid until close(). */
export type PipeHandle = Branded<'pipe'>
/** Stands for the process that leads a guarded group; valid until forgetLeader(). */
export type LeaderHandle = Branded<'leader'>
/** Valid until reapGuard() was true. */
export type GuardHandle = Branded<'guard'>

/** One place of the command's stdio: a code below, or a descriptor of the host (0 or more) to be inherited. */
export const Place = { ignore: -1, pipe: -2, stdout: -3 } as const

/** Bits of a readiness word. */
export const Ready = { readable: 1, writable: 2 } as const
/** The call or pipe that a readiness word is about. */
export const handleIn = (word: number) => (word >> 2) as CallHandle | PipeHandle
export const readyIn = (word: number) => word & 3

/** What becomes of what is left when the command exits: a code of its own for each value of the option. */
export const Background = { end: 0, keep: 1 } as const
export type Background = keyof typeof Background

/** The call, and for each place its pipe; null where there is none. */
export type StartedCall = readonly [call: CallHandle, ...pipes: (PipeHandle | null)[]]

export interface NativeProcessInfo {
  pid: number
  name: string
}

export type CallEvent =
  /** The program was executed, as `pid` (0 when that got lost). */
  | { kind: 'started'; pid: number }
  | ({ kind: 'failed' } & StartFailure)
  | ({ kind: 'refused' } & StartRefusal)
  /**
   * The command's first process ended. Exactly one of code and signal is 0 or more; both are -1 when the
   * keeper was lost and the status is unknown. Times in milliseconds, maxRss in bytes.
   */
  | { kind: 'exited'; code: number; signal: number; userTime: number; systemTime: number; maxRss: number }
  /**
   * The answer to handOver(): `mechanism` holds what runs on. `pipes` true: the keeper drains the pipes, the host's are
   * to be closed. false: it could not take them, they are to be read here.
   */
  | { kind: 'taken'; mechanism: 'subreaper' | 'group' | 'none'; pipes: boolean }
  /** The last event of a call. The call's handle is free afterwards. */
  | {
      kind: 'ended'
      outcome: 'ended' | 'released' | 'unconfirmed' | 'survivors' | 'refused'
      mechanism: 'subreaper' | 'group' | 'none'
      by: 'keeper' | 'helper' | 'host'
      reason: 'exit' | 'timeout' | 'end' | 'release' | 'host-gone' | 'keeper-gone' | 'not-started'
      leftovers: NativeProcessInfo[]
      leftoverCount: number
      survivors: NativeProcessInfo[]
      /** How `backgroundSettle` was over: all was quiet; something was at work; it was seen to write to the pipes. */
      settle: 'quiet' | 'at-work' | 'writing'
      /** Milliseconds, fractions included. */
      proofTime: number
      /** Usage of everything reaped, for background 'keep' too. */
      userTime: number
      systemTime: number
      maxRss: number
    }

export interface GuardStart {
  /** '' when the guard was started; its first line is to come. */
  problem: '' | 'dead' | 'not-a-child' | 'own-group' | 'not-a-leader' | 'helper'
  errno: number
  /** The group's id. */
  group: number
  leader: LeaderHandle
  /** Duplex: read() and write() as of a call's pipe. */
  pipe: PipeHandle
  guard: GuardHandle
}

export interface Native {
  /** The version compiled into the addon; equals package.json's. */
  version(): string
  /**
   * Before anything else, once for each copy of this package in an environment. `wake` is called on the loop when
   * take() has words. Returns the id by which that copy is known.
   */
  attach(wake: () => void): EnvironmentId
  /** The readiness words since the last take(): see handleIn() and readyIn(). */
  take(environment: EnvironmentId): number[]
  /**
   * Starts a call. Does not wait for the keeper. Times are milliseconds; fractions are rounded up.
   * @param helper path of the helper executable
   * @param file program; without a slash it is looked up in PATH of `env`
   * @param args NUL-joined, argv[0] first
   * @param env NUL-joined KEY=VALUE, '' for an empty environment
   * @param cwd '' for the host's; a relative one is resolved against the host's
   * @param stdio for each place one of Place, or a descriptor of the host
   * @param timeout 0 for none
   * @param background one of Background
   * @param grace from killSignal to SIGKILL
   * @param backgroundGrace as `grace`, for what is left when the command exits
   * @param backgroundSettle how long that may go on working before killSignal
   * @param uid undefined for the host's
   * @param detached the command leads a session and a group of its own
   * @param bestEffort where there is no helper it is started as a plain child
   */
  start(
    environment: EnvironmentId,
    helper: string,
    file: string,
    args: string,
    env: string,
    cwd: string,
    stdio: readonly number[],
    timeout: number,
    killSignal: number,
    grace: number,
    background: number,
    backgroundGrace: number,
    backgroundSettle: number,
    uid: number | undefined,
    gid: number | undefined,
    detached: boolean,
    bestEffort: boolean,
  ): StartedCall
  /** The command's pid; with `wait` waits at most 20 ms for it. 0 when it is not known or the start failed. */
  pid(call: CallHandle, wait: boolean): number
  /** What has arrived, oldest first. When everything was taken, arms the reactor for more. */
  receive(call: CallHandle): CallEvent[]
  /** True: handed to the keeper of a call that has not ended. `group`: the whole group instead of the first process. */
  signal(call: CallHandle, signal: number, group: boolean): boolean
  /**
   * Starts the ladder: `signal` to everything, `grace` ms, SIGKILL. grace 0: SIGKILL at once. -1 for either: the
   * call's own. False when the call has ended.
   */
  end(call: CallHandle, signal: number, grace: number): boolean
  /**
   * Starts the ladder of all other environments' calls. For each a handle whose receive() gives 'ended', once,
   * and nothing else.
   */
  endOthers(environment: EnvironmentId, signal: number, grace: number): CallHandle[]
  /** The first process is a starter: it passes on what it is sent, and the ladder's first signal is for it alone. */
  setStarter(call: CallHandle): boolean
  /** For background 'keep': gives the read ends to the keeper, which drains them. Answered by 'taken'. */
  handOver(call: CallHandle, pipes: readonly PipeHandle[]): boolean
  /**
   * Non-blocking read(2). Bytes read, 0 at the end of file, or a negative errno. -EAGAIN has armed the
   * reactor: a word with Ready.readable follows when it is worth trying again.
   */
  read(pipe: PipeHandle, into: Uint8Array, offset: number, length: number): number
  /** Non-blocking write(2), as read(). -EPIPE when there is no reader any more. */
  write(pipe: PipeHandle, from: Uint8Array, offset: number, length: number): number
  /** Bytes that the kernel holds to be read; 0 when it is closed. */
  pending(pipe: PipeHandle): number
  /** shutdown(SHUT_WR) of a duplex place; for a plain pipe the same as close(). */
  finish(pipe: PipeHandle): void
  close(pipe: PipeHandle): void
  /** Its descriptor, for the stdio of start(); valid until close(). -1 when it is closed. */
  descriptor(pipe: PipeHandle): number
  /**
   * Checks, and starts a guard; does not wait for it. The leader is named by a pidfd from here on. The lines over
   * the pipe are described in src/guard/guard.ts.
   * @param endOnExit what is left when the leader exits is ended
   * @param grace milliseconds from SIGTERM to SIGKILL at the host's death
   */
  guard(environment: EnvironmentId, helper: string, pid: number, endOnExit: boolean, grace: number): GuardStart
  /** Another guard for the same leader, in the place of one that died. */
  guardAgain(
    environment: EnvironmentId,
    helper: string,
    leader: LeaderHandle,
    endOnExit: boolean,
    grace: number,
  ): GuardStart
  /** SIGCONT to a guard that was sent a line: it may have been stopped. */
  wakeGuard(guard: GuardHandle): void
  /**
   * Reaps a guard that has sent its last line. False: to be called again, since its end will not be reported (no
   * pidfds).
   */
  reapGuard(guard: GuardHandle): boolean
  /** The leader's descriptor is given up. */
  forgetLeader(leader: LeaderHandle): void
  /** The next call starts a new helper. */
  resetHelper(): void
  /**
   * Replaces this process by another program: clears close-on-exec and O_NONBLOCK on 0 to 2, and close-on-exec on
   * `inherited` and on what `env` names, empties the signal mask. Returns only on failure, with the errno.
   */
  execve(path: string, args: string[], env: string[], inherited: number[]): number
  /**
   * Starts the helper if it is not running. When there is none, `errno` of this process or `problem` has the reason.
   */
  probe(helper: string): { mechanism: 'subreaper' | 'group' | 'none'; errno: number; problem: string }
}
