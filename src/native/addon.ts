/**
 * The addon's surface, as TypeScript sees it. The addon converts and holds no policy of its own: what a
 * value means is decided in crates/core, what the user sees of it in this folder.
 *
 * Calls and pipes are small numbers, valid in the environment (main thread or worker) that got them.
 * Nothing here throws for what the system refuses; a refusal is an event of the call.
 */

import type { StartFailure, StartRefusal } from '../report/errors'

/** One place of the command's stdio: a code below, or a descriptor of the host (0 or more) to be inherited. */
export const Place = { ignore: -1, pipe: -2, stdout: -3 } as const

/** Bits of a readiness word: `word >> 2` is the call or pipe. */
export const Ready = { readable: 1, writable: 2 } as const

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
  /** The last event of a call. The call's number is free afterwards. */
  | {
      kind: 'ended'
      outcome: 'ended' | 'released' | 'unconfirmed' | 'survivors' | 'refused'
      mechanism: 'subreaper' | 'group' | 'none'
      by: 'keeper' | 'helper' | 'host'
      reason: 'exit' | 'timeout' | 'end' | 'release' | 'host-gone' | 'keeper-gone' | 'not-started'
      leftovers: NativeProcessInfo[]
      leftoverCount: number
      survivors: NativeProcessInfo[]
      /** `settle` was over while something that was left still wrote to the call's pipes. */
      cutOff: boolean
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
  /** The group's number. */
  group: number
  /** Stands for the leader: guardAgain() and forgetLeader() take it. */
  leader: number
  /** Duplex: read() and write() as of a call's pipe. */
  pipe: number
  /** For wakeGuard(). */
  guard: number
}

export interface Native {
  /** The version compiled into the addon; equals package.json's. */
  version(): string
  /**
   * Before anything else, once for each copy of this package in an environment. `wake` is called on the loop when
   * take() has words. Returns the number by which that copy is known.
   */
  attach(wake: () => void): number
  /** The readiness words since the last take(): (call or pipe) * 4 + bits. */
  take(environment: number): number[]
  /**
   * Starts a call. Does not wait for the keeper. Returns [call, ...one pipe per place, -1 where there is none].
   * @param helper path of the helper executable
   * @param file program; without a slash it is looked up in PATH of `env`
   * @param args NUL-joined, argv[0] first
   * @param env NUL-joined KEY=VALUE, '' for an empty environment
   * @param cwd '' for the host's; a relative one is resolved against the host's
   * @param stdio one number per place, see Place
   * @param timeout milliseconds, 0 for none
   * @param background 0 end, 1 keep
   * @param backgroundGrace milliseconds from killSignal to SIGKILL for what is left at the command's exit
   * @param settle milliseconds for which what is left may go on working before that, 0 for not at all
   * @param uid -1 for the host's
   * @param detached the command leads a session and a group of its own
   */
  start(
    environment: number,
    helper: string,
    file: string,
    args: string,
    env: string,
    cwd: string,
    stdio: number[],
    timeout: number,
    killSignal: number,
    grace: number,
    background: number,
    backgroundGrace: number,
    settle: number,
    uid: number,
    gid: number,
    detached: boolean,
    bestEffort: boolean,
  ): number[]
  /** The command's pid; with `wait` waits at most 20 ms for it. 0 when it is not known or the start failed. */
  pid(call: number, wait: boolean): number
  /** What has arrived, oldest first. When everything was taken, arms the reactor for more. */
  receive(call: number): CallEvent[]
  /** True: handed to the keeper of a call that has not ended. `group`: the whole group instead of the first process. */
  signal(call: number, signal: number, group: boolean): boolean
  /**
   * Starts the ladder: `signal` to everything, `grace` ms, SIGKILL. grace 0: SIGKILL at once. -1 for either: the
   * call's own. False when the call has ended.
   */
  end(call: number, signal: number, grace: number): boolean
  /**
   * Starts the ladder of everybody else's calls. For each a number whose receive() gives 'ended', once,
   * and nothing else.
   */
  endOthers(environment: number, signal: number, grace: number): number[]
  /** The first process is a starter: it passes on what it is sent, and the ladder's first signal is for it alone. */
  hasStarter(call: number): boolean
  /** For background 'keep': gives the read ends to the keeper, which drains them. Answered by 'taken'. */
  handOver(call: number, pipes: number[]): boolean
  /**
   * Non-blocking read(2). Bytes read, 0 at the end of file, or a negative errno. -EAGAIN has armed the
   * reactor: a word with Ready.readable follows when it is worth trying again.
   */
  read(pipe: number, into: Uint8Array, offset: number, length: number): number
  /** Non-blocking write(2), as read(). -EPIPE when nobody reads any more. */
  write(pipe: number, from: Uint8Array, offset: number, length: number): number
  /** shutdown(SHUT_WR) of a duplex place; for a plain pipe the same as close(). */
  finish(pipe: number): void
  close(pipe: number): void
  /** Its descriptor, for the stdio of start(); valid until close(). -1 when it is closed. */
  descriptor(pipe: number): number
  /**
   * Checks, and starts a guard; does not wait for it. The leader is named by a pidfd from here on. What is said over
   * the pipe is described in src/guard/guard.ts.
   * @param sweep what is left when the leader exits is ended
   * @param grace milliseconds from SIGTERM to SIGKILL at the host's death
   */
  guard(environment: number, helper: string, pid: number, sweep: boolean, grace: number): GuardStart
  /** Another guard for the same leader, in the place of one that died. */
  guardAgain(environment: number, helper: string, leader: number, sweep: boolean, grace: number): GuardStart
  /** Somebody may have stopped it, and something was said to it. */
  wakeGuard(guard: number): void
  /** It has said its last word. False: it is to be asked again, since nobody tells of its end (no pidfds). */
  reapGuard(guard: number): boolean
  /** The leader's descriptor is given up. */
  forgetLeader(leader: number): void
  /** The next call starts a new helper. */
  resetHelper(): void
  /** Replaces this process by another program: clears close-on-exec and O_NONBLOCK on 0 to 2, and close-on-exec on `inherited` and on what `env` names, empties the signal mask. Returns only on failure, with the errno. */
  execve(path: string, args: string[], env: string[], inherited: number[]): number
  /** Starts the helper if it is not running. When there is none, `errno` of this process or `problem` says why. */
  probe(helper: string): { mechanism: 'subreaper' | 'group' | 'none'; errno: number; problem: string }
}
