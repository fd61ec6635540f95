/**
 * Errors are values with a stable code. Arguments that are wrong in themselves have Node's codes; the rest is
 * HoldfastError.
 */
import { accessSync, closeSync, constants, existsSync, openSync, readSync, statSync } from 'node:fs'
import { constants as os } from 'node:os'
import { resolve } from 'node:path'
import { getSystemErrorName } from 'node:util'
import type { HoldfastError as Api, RunResult } from '../../index'
import { HoldfastError } from './holdfast-error'
import * as messages from './messages'
import { notices } from './notices'

export { HoldfastError } from './holdfast-error'

export const codes = {
  /** Nothing ran: neither addon nor helper took the call. */
  noHelper: 'ERR_HOLDFAST_NO_HELPER',
  /** It cannot be known whether the command ran. */
  unclear: 'ERR_HOLDFAST_UNCLEAR',
  /** Part of the API, but not of this version. */
  notSupported: 'ERR_HOLDFAST_NOT_SUPPORTED',
  /** `check: true` and the result is not ok. */
  check: 'ERR_HOLDFAST_CHECK',
  /** guard() cannot hold what it was given. Nothing was signalled. */
  guard: 'ERR_HOLDFAST_GUARD',
  /** `input` or `onOutput` failed, and the call was ended for it. */
  consumer: 'ERR_HOLDFAST_CONSUMER',
  /** An Engine that was to be contained did not acknowledge. */
  notContained: 'ERR_HOLDFAST_NOT_CONTAINED',
  /** A TypeError: no such option. */
  unknownOption: 'ERR_HOLDFAST_UNKNOWN_OPTION',
  /** The code that Node has for it everywhere. */
  aborted: 'ABORT_ERR',
  /** The code of Node's permission model. */
  accessDenied: 'ERR_ACCESS_DENIED',
} as const

const { E2BIG, EACCES, EISDIR, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOEXEC, ENOTDIR, ETXTBSY } = os.errno
/** Bytes of a script's first line that the kernel looks at. */
const FIRST_LINE = 256
/** UV_UNKNOWN, where the system gave no number. */
const UNKNOWN = 4094

// ---- arguments that are wrong in themselves
const coded = <E extends Error>(error: E, code: string): E => Object.assign(error, { code })

export const invalidType = (name: string, expected: string, value: unknown) =>
  coded(new TypeError(messages.wrongType(name, expected, value)), 'ERR_INVALID_ARG_TYPE')
export const invalidValue = (name: string, reason: string, value: unknown) =>
  coded(new TypeError(messages.wrongValue(name, reason, value)), 'ERR_INVALID_ARG_VALUE')
export const invalidPlace = (name: string, value: unknown, isStream: boolean) =>
  isStream
    ? coded(new TypeError(messages.streamWithoutDescriptor(name, value as object)), 'ERR_INVALID_ARG_VALUE')
    : invalidValue(name, messages.PLACE, value)
export const outOfRange = (name: string, range: string, value: unknown) =>
  coded(new RangeError(messages.wrongRange(name, range, value)), 'ERR_OUT_OF_RANGE')
/** A name that is none, or a value with a NUL. The value itself is not shown. */
export const invalidVariable = (name: string, value?: string) =>
  coded(
    new TypeError(value === undefined ? messages.badName(name) : messages.badVariable(name, value)),
    'ERR_INVALID_ARG_VALUE',
  )
/** @param by the function that was called */
export const unknownOption = (
  name: string,
  by: string,
  { option, advice }: { readonly option: string | undefined; readonly advice: string | undefined },
) =>
  Object.assign(coded(new TypeError(messages.unknownOption(name, by, option, advice)), codes.unknownOption), {
    option: name,
    ...(option !== undefined && { meant: option }),
  })
export const unknownSignal = (value: unknown) =>
  coded(new TypeError(messages.unknownSignal(value)), 'ERR_UNKNOWN_SIGNAL')
export const notSupported = (what: string) =>
  new HoldfastError(messages.notSupported(what), { code: codes.notSupported })

// ---- what the system refuses
/** What an error has of its command. */
export interface Named {
  readonly file: string
  readonly argv: readonly string[]
}

/**
 * As in the declaration, where a call can fail. 'parent-death signal' is a part of 'helper' that has a name of its own,
 * so that the message can name what is refused.
 */
export type Step = Exclude<NonNullable<Api['step']>, 'guard'> | 'parent-death signal'

/** The command could not be started. Nothing of it ran. */
export interface StartFailure {
  readonly step: Step
  readonly errno: number
  /** This process itself was refused something, and not its keeper. */
  readonly byHost: boolean
}

/** No keeper took the call. */
export interface StartRefusal {
  /** false: provably nothing ran. true: it cannot be known. */
  readonly unclear: boolean
  readonly errno: number
  /** What was attempted, for the message. */
  readonly tried: string
}

/** What was to be executed; another one than that of which the error is, in a session. */
interface Started {
  readonly file: string
  readonly cwd: string
  readonly env: string
  readonly uid: number | undefined
}

export function startError(
  command: Named & { readonly env: string },
  started: Started,
  { step, errno, byHost }: StartFailure,
): HoldfastError {
  const code = systemCode(errno)
  const path = step === 'cwd' ? started.cwd : step === 'program' || step === 'interpreter' ? started.file : ''
  const reason = noDescriptor(errno, byHost) ?? reasonOf(command, started, step, errno, path)
  return new HoldfastError(messages.startFailed(command.file, code, reason), {
    code,
    errno: -errno,
    path: path === '' ? command.file : path,
    step: step === 'parent-death signal' ? 'helper' : step,
    ...spawnFacts(command),
  })
}

/** Far beyond every system. The joined arguments could be more than a string of JavaScript holds. */
const LONGEST_NAME = 2 ** 16
const LONGEST_ARGUMENTS = 2 ** 26

const failedHere = (step: Step, errno: number): StartFailure => ({
  step,
  errno,
  byHost: true,
})

/** The refusal that the system would answer. */
export function tooLong(file: string, argv: readonly string[], env: string): StartFailure | undefined {
  if (file.length > LONGEST_NAME) return failedHere('program', ENAMETOOLONG)
  let length = env.length
  for (const argument of argv) length += argument.length
  return length > LONGEST_ARGUMENTS ? failedHere('arguments', E2BIG) : undefined
}

/** What it means when no descriptor was free; undefined for any other errno. */
export function noDescriptor(errno: number, byHost = true): string | undefined {
  if (errno === ENFILE) return messages.DESCRIPTORS.system
  if (errno !== EMFILE) return undefined
  return byHost ? messages.DESCRIPTORS.host : messages.DESCRIPTORS.keeper
}

/** Addon and reactor give a text alone. */
const isWithoutDescriptor = (message: string) => /too many open files/i.test(message)

/** There is no addon, or no reactor. Nothing ran. */
export function notOpened(error: unknown): HoldfastError {
  const { message } = error as Error
  if (isWithoutDescriptor(message)) {
    return new HoldfastError(messages.DESCRIPTORS.host, { code: systemCode(EMFILE), errno: -EMFILE, step: 'helper' })
  }
  if (HoldfastError.is(error)) return error
  return new HoldfastError(message, { code: codes.noHelper, step: 'helper', cause: error })
}

/** No helper, for a command that was to be started. */
export function notStarted(command: Named & { readonly env: string }, started: Started, error: unknown): HoldfastError {
  const { errno, message, code, cause } = notOpened(error)
  if (errno === -EMFILE) return startError(command, started, failedHere('helper', EMFILE))
  return noHelper(command, message, -UNKNOWN, { code, cause })
}

function reasonOf(
  command: Named & { readonly env: string },
  started: Started,
  step: Step,
  errno: number,
  path: string,
): string {
  const reasons = messages.START
  switch (step) {
    case 'cwd':
      if (errno === ENOENT) return reasons.cwdMissing(path)
      if (errno === ENAMETOOLONG) return reasons.cwdTooLong(path)
      return errno === ENOTDIR ? reasons.cwdNotDirectory(path) : reasons.cwdOther(path)
    case 'program': {
      const program = path === '' ? command.file : path
      if (errno === ENOENT || errno === ENOTDIR) return reasons.programMissing(program)
      if (errno === ENAMETOOLONG) return reasons.programTooLong(program)
      if (errno === ETXTBSY) return reasons.programBusy(program)
      // execve(2) answers EACCES for both.
      if (errno === EISDIR || (errno === EACCES && isDirectory(program))) return reasons.programDirectory(program)
      if (errno === EACCES) {
        // It may be the interpreter that was refused. Another user's rights are not known here.
        const interpreter = started.uid === undefined ? interpreterOf(started, true) : undefined
        if (interpreter !== undefined) return reasons.interpreter(program, interpreter)
        return reasons.programNotExecutable(program)
      }
      return errno === ENOEXEC ? reasons.programFormat(program) : reasons.programOther(program)
    }
    case 'interpreter':
      return reasons.interpreter(path === '' ? command.file : path, interpreterOf(started, false))
    case 'stdio':
      return errno === E2BIG ? reasons.tooManyPlaces() : reasons.stdio()
    case 'arguments': {
      if (errno !== E2BIG) return reasons.arguments()
      const { what, bytes } = longest(command.argv, command.env)
      return reasons.tooLong(what, bytes)
    }
    default:
      return reasons[step]()
  }
}

function longest(argv: readonly string[], env: string): { what: string; bytes: number } {
  let found = { what: '', bytes: -1 }
  argv.forEach((argument, index) => {
    const bytes = Buffer.byteLength(argument)
    if (bytes > found.bytes) found = { what: messages.argumentName(index), bytes }
  })
  for (const pair of env.split('\0')) {
    const bytes = Buffer.byteLength(pair)
    if (bytes > found.bytes) found = { what: messages.variableName(pair.slice(0, pair.indexOf('='))), bytes }
  }
  return found
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
}

/** What the first line of a script names, as the kernel reads it. undefined: it has no such line, or cannot be read. */
function interpreterOf(started: Started, ifExecutable: boolean): string | undefined {
  let file: number | undefined
  try {
    const path = located(started)
    if (ifExecutable) accessSync(path, constants.X_OK)
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const head = Buffer.alloc(FIRST_LINE)
    const text = head.toString('utf8', 0, readSync(file, head))
    return /^#![ \t]*([^ \t\n]+)/.exec(text)?.[1]
  } catch {
    return undefined
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

/** The path at which execvp(3) found the program. */
function located({ file, env, cwd }: Started): string {
  if (file.includes('/')) return resolve(cwd, file)
  const path = env.split('\0').find((pair) => pair.startsWith('PATH='))
  const folders = (path ?? '').slice('PATH='.length).split(':')
  return folders.map((folder) => resolve(cwd, folder, file)).find((one) => existsSync(one)) ?? file
}

const spawnFacts = (command: Named) => ({ syscall: `spawn ${command.file}`, spawnargs: command.argv.slice(1) })

export function refusedError(command: Named, event: StartRefusal): HoldfastError {
  const errno = -(event.errno || UNKNOWN)
  return event.unclear
    ? new HoldfastError(messages.unclear(command.file, event.tried), {
        code: codes.unclear,
        errno,
        path: command.file,
        ran: 'unclear',
        notice: notices.unclear,
        ...spawnFacts(command),
      })
    : noHelper(command, event.tried, errno)
}

/** @param why of an addon that could not be loaded */
export const noHelper = (
  command: Named,
  tried: string,
  errno = -UNKNOWN,
  why: { readonly code: string; readonly cause?: unknown } = { code: codes.noHelper },
) =>
  new HoldfastError(messages.noHelper(command.file, tried), {
    ...why,
    errno,
    path: command.file,
    step: 'helper',
    ...spawnFacts(command),
  })

/** guard() refuses a process. Other code has started it, and it runs, or has run. */
export const guardError = (pid: number, reason: messages.GuardReason, errno: number) =>
  new HoldfastError(messages.guardRefused(pid, reason), {
    code: codes.guard,
    step: 'guard',
    ran: true,
    ...(errno > 0 && { errno: -errno }),
  })

export const guardWithoutHelper = (pid: number, tried: string, errno: number = UNKNOWN) =>
  new HoldfastError(messages.guardWithoutHelper(pid, tried), {
    code: codes.noHelper,
    errno: -errno,
    step: 'helper',
    ran: true,
    notice: notices.helper,
  })

/** An Engine whose starter wrote nothing may not have run. */
export const notContainedError = (program: Named, hasStarter: boolean, stderr: string) =>
  new HoldfastError(messages.notContained(program.file, hasStarter, stderr), {
    code: codes.notContained,
    path: program.file,
    ran: hasStarter ? 'unclear' : true,
    ...spawnFacts(program),
  })

/** @param result what there is of it, when the command had been started */
export function abortError(
  signal: AbortSignal | undefined,
  result?: RunResult<string | Uint8Array>,
  ran = result !== undefined,
): HoldfastError {
  const error = new HoldfastError(messages.aborted, {
    code: codes.aborted,
    cause: signal?.reason,
    ran,
    ...(result && { result }),
  })
  return Object.defineProperty(error, 'name', { value: 'AbortError', configurable: true, writable: true })
}

export function systemCode(errno: number): string {
  // For which the libuv of Node.js 20 has no name.
  if (errno === ENOEXEC) return 'ENOEXEC'
  return getSystemErrorName(-(errno || UNKNOWN))
}

/** As Node's streams report it: `write EPIPE`. */
export function systemError(syscall: string, errno: number): NodeJS.ErrnoException {
  const code = systemCode(errno)
  return Object.assign(new Error(`${syscall} ${code}`), { errno: -errno, code, syscall })
}
