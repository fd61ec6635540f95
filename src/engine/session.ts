/**
 * `holdfast/session`: the SDK's side of the session protocol. An Engine is started contained, in one of two ways:
 *
 *   starter   keeper ─ starter ─ keeper ─ Engine    the helper is started, and starts the Engine
 *   request   keeper ─ Engine                       the Engine is started, and may become the first form by itself
 *
 * Either way it is a call of this host: the outer keeper ends it with the host, and reports. An acknowledgement shows
 * that there is a starter; its line is taken out of the Engine's output.
 */
import type { Readable, Writable } from 'node:stream'
import { type InspectOptions, inspect } from 'node:util'
import type { EndOptions, EndReport } from '../../index'
import type * as api from '../../session'
import { type Command, commandOf, splitArguments } from '../call/command'
import { ContainedProcess, callOf } from '../call/contained-process'
import { withVariable } from '../call/environment'
import { placesOf } from '../call/places'
import { open } from '../native/reactor'
import { optionsOf, PROTOCOL, SESSION } from '../options/names'
import { integer, oneOf, text } from '../options/values'
import {
  abortError,
  type HoldfastError,
  invalidType,
  invalidValue,
  notContainedError,
  notStarted,
} from '../report/errors'
import { Acknowledgement, ReadAhead } from './acknowledgement'
import { answer, isRequested, VARIABLE } from './request'

const ACKNOWLEDGEMENT = '{"leanctx_session_containment":1}'
const ACK_TIMEOUT = 5000
const DAY = 24 * 60 * 60 * 1000
const PIPES = ['pipe', 'pipe', 'pipe']

/** @see the declaration in session.d.ts. What is thrown in here rejects. */
export async function startSession(program: string, args?: unknown, options?: unknown): Promise<api.Session> {
  const session = new ContainedSession(planOf(program, args, options))
  await session.begin()
  return session
}

/** @see the declaration in session.d.ts */
export function containRequestedSession(): boolean {
  if (!isRequested()) return false
  answer()
  return true
}

interface Plan {
  /** The command that was asked for. */
  readonly program: Command
  /** What is started. */
  readonly command: Command
  readonly hasStarter: boolean
  readonly ack: string
  readonly ackTimeout: number
  readonly required: boolean
  readonly signal: AbortSignal | undefined
}

function planOf(file: unknown, second: unknown, third: unknown): Plan {
  const { args, options } = splitArguments(second, third, SESSION)
  const { cwd, env, killSignal, grace, signal } = options
  const program = commandOf(file, args, { cwd, env, killSignal, grace, signal }, placesOf(PIPES))
  const { variable, ack } = protocolOf(options.protocol)
  const hasStarter = oneOf('via', options.via, ['starter', 'request']) !== 'request'
  return {
    program,
    command: hasStarter ? starterCommand(program, variable) : engineCommand(program, variable),
    hasStarter,
    // The starter is ours.
    ack: hasStarter ? ACKNOWLEDGEMENT : ack,
    ackTimeout: integer('ackTimeout', options.ackTimeout, ACK_TIMEOUT),
    required: requiredOf(options.required),
    signal: program.signal,
  }
}

/** The keeper around the starter keeps the time. */
function starterCommand(program: Command, variable: string): Command {
  const options = ['--ack', '--grace', `${DAY}`]
  return {
    ...program,
    named: program,
    file: starterFor(program),
    argv: ['holdfast-helper', '__session-starter', ...options, '--', ...program.argv],
    env: withVariable(program.env, variable, undefined),
  }
}

/** @throws HoldfastError when there is none */
function starterFor(program: Command): string {
  try {
    return open().path
  } catch (error) {
    throw notStarted(program, program, error)
  }
}

function engineCommand(program: Command, variable: string): Command {
  return { ...program, env: withVariable(program.env, variable, '1') }
}

function protocolOf(value: unknown): { variable: string; ack: string } {
  if (value === undefined) return { variable: VARIABLE, ack: ACKNOWLEDGEMENT }
  const { env, ack } = optionsOf(value, PROTOCOL, 'options.protocol')
  const variable = text('options.protocol.env', env)
  if (variable === '' || variable.includes('=')) {
    throw invalidValue('options.protocol.env', "must be a name: not empty, without '='", env)
  }
  const line = text('options.protocol.ack', ack)
  if (line.includes('\n')) throw invalidValue('options.protocol.ack', 'must be one line, without its end', ack)
  return { variable, ack: line }
}

function requiredOf(value: unknown): boolean {
  if (value === undefined) return true
  if (typeof value !== 'boolean') throw invalidType('options.required', 'of type boolean', value)
  return value
}

class ContainedSession implements api.Session {
  contained = false
  readonly exited: api.Session['exited']
  // #names: the plan has the environment, which is for no log.
  readonly #plan: Plan
  readonly #child: ContainedProcess
  readonly #acknowledgement: Acknowledgement
  readonly #stderr = new ReadAhead()
  /** The program was executed, or never will be. */
  readonly #begun: Promise<void>
  #error: HoldfastError | undefined
  /** What follows on the start is kept until the session has been handed over. */
  #isKept = false

  constructor(plan: Plan) {
    const child = new ContainedProcess(plan.command)
    const call = callOf(child)
    this.#plan = plan
    this.#child = child
    this.#acknowledgement = new Acknowledgement(plan.ack, plan.ackTimeout)
    this.#begun = new Promise((resolve) => {
      child.once('spawn', () => {
        this.#isKept = true
        call.wait()
        resolve()
      })
      child.once('error', (error: HoldfastError) => {
        this.#error = error
        resolve()
      })
      // With neither, when its keeper was lost.
      child.once('ended', () => {
        this.#acknowledgement.decide(false)
        resolve()
      })
    })
    this.exited = new Promise((resolve) => {
      child.once('exit', (exitCode: number | null, signal: NodeJS.Signals | null) => resolve({ exitCode, signal }))
    })
    call.readAhead(1, this.#acknowledgement)
    call.readAhead(2, this.#stderr)
    if (plan.hasStarter) call.setStarter()
  }

  /** Until the acknowledgement was read, or is known not to come. */
  async begin(): Promise<void> {
    await this.#begun
    const call = callOf(this.#child)
    if (this.#error === undefined) this.contained = await this.#acknowledge()
    else await this.#fail(this.#error)
    if (this.contained) call.setStarter()
    this.#stderr.stop()
    // By then, what awaits the start has listened.
    call.inTurn(() => this.#goOn())
  }

  async #acknowledge(): Promise<boolean> {
    const { signal, required, hasStarter, program } = this.#plan
    const came = await this.#acknowledgement.isThere()
    if (signal?.aborted) await this.#fail(abortError(signal, undefined, true))
    if (came || !required) return came
    void this.#child.end({ grace: 0 })
    return this.#fail(() => notContainedError(program, hasStarter, String(this.#stderr.head)))
  }

  async #fail(error: HoldfastError | (() => HoldfastError)): Promise<never> {
    this.#goOn()
    await this.ended
    throw typeof error === 'function' ? error() : error
  }

  #goOn(): void {
    if (!this.#isKept) return
    this.#isKept = false
    callOf(this.#child).goOn()
  }

  // ---- what can be asked of it
  get pid(): number {
    return this.#child.pid ?? Number.NaN
  }
  get stdin(): Writable {
    return this.#child.stdin as Writable
  }
  get stdout(): Readable {
    return this.#child.stdout as Readable
  }
  get stderr(): Readable {
    return this.#child.stderr as Readable
  }
  get ended(): Promise<EndReport> {
    return this.#child.ended
  }
  end(options?: EndOptions): Promise<EndReport> {
    return this.#child.end(options)
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.end()
  }
  toJSON(): object {
    return { ...callOf(this.#child).facts(), contained: this.contained }
  }
  [inspect.custom](_depth: number, options: InspectOptions): string {
    return `Session ${inspect(this.toJSON(), options)}`
  }
}
