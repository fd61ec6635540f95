/** From the arguments of spawn() and run() to what the addon takes. Throws what node:child_process throws. */
import { constants } from 'node:os'
import { fileURLToPath } from 'node:url'
import { types } from 'node:util'
import { environmentOf } from './environment'
import { invalidPlace, invalidType, invalidValue, notSupported, outOfRange, unknownSignal } from './errors'
import { descriptorOf, isStream } from './given'
import { nullByte } from './messages'
import { Place } from './native'
import { optionsOf, type Taker, type Values } from './options'

export const SIGTERM = constants.signals.SIGTERM
// The defaults in milliseconds; crates/core/src/runner.rs has the same for the command line.
export const GRACE = 2000
const BACKGROUND_GRACE = 500
const BACKGROUND_SETTLE = 100
/** The longest time that a Node timer takes, and the addon. */
const LONGEST = 2 ** 31 - 1

export interface Command {
  readonly file: string
  /** argv[0] first. */
  readonly argv: readonly string[]
  readonly env: string
  readonly cwd: string
  readonly stdio: readonly number[]
  readonly timeout: number
  readonly killSignal: number
  readonly grace: number
  readonly keep: boolean
  readonly backgroundGrace: number
  readonly backgroundSettle: number
  readonly uid: number
  readonly gid: number
  readonly detached: boolean
  readonly bestEffort: boolean
  readonly signal: AbortSignal | undefined
  /** What errors and running() speak of, where that is not what is started. */
  readonly named?: Command
}

/** (file, args, options), (file, options) and (file): which is which. */
export function splitArguments(
  second: unknown,
  third: unknown,
  by: Taker,
): { args: readonly unknown[]; options: Values } {
  if (Array.isArray(second)) return { args: second, options: optionsOf(third, by) }
  if (second === undefined || second === null) return { args: [], options: optionsOf(third, by) }
  // A Set of arguments, or options in two places: one of them would be ignored.
  if (typeof second !== 'object' || Symbol.iterator in second || third !== undefined) {
    throw invalidType('args', 'an array', second)
  }
  return { args: [], options: optionsOf(second, by) }
}

export function commandOf(file: unknown, args: readonly unknown[], options: Values, stdio: number[]): Command {
  refuseUnsupported(options)
  checkWithoutEffect(options)
  const argv = argvOf(programOf(file), args, options)
  return {
    file: options.shell ? (argv[0] as string) : (file as string),
    argv: (options.argv0 ?? undefined) === undefined ? argv : [text('options.argv0', options.argv0), ...argv.slice(1)],
    env: environmentOf((options.env ?? undefined) === undefined ? process.env : variables(options.env)),
    cwd: directory(options.cwd),
    stdio,
    timeout: milliseconds('timeout', options.timeout, 0),
    killSignal: signalOption('killSignal', options.killSignal) ?? SIGTERM,
    grace: milliseconds('grace', options.grace, GRACE),
    keep: oneOf('background', options.background, ['end', 'keep']) === 'keep',
    backgroundGrace: milliseconds('backgroundGrace', options.backgroundGrace, BACKGROUND_GRACE),
    backgroundSettle: milliseconds('backgroundSettle', options.backgroundSettle, BACKGROUND_SETTLE),
    uid: identity('uid', options.uid),
    gid: identity('gid', options.gid),
    detached: flag('detached', options.detached),
    bestEffort: oneOf('containment', options.containment, ['required', 'best-effort']) === 'best-effort',
    signal: abortSignal(options.signal),
  }
}

/** Of a later version: refused by name, never ignored. */
function refuseUnsupported(options: Values): void {
  for (const name of ['pty', 'limits', 'spare']) {
    if (options[name] !== undefined) throw notSupported(`The option '${name}'`)
  }
  if (options.idleTimeout) throw notSupported("The option 'idleTimeout'")
  if (options.background === 'release') throw notSupported("The option 'background: release'")
}

/** What there is nothing to choose about here has the values that it has in node:child_process. */
function checkWithoutEffect(options: Values): void {
  for (const name of ['windowsHide', 'windowsVerbatimArguments']) flag(name, options[name])
  oneOf('serialization', options.serialization, ['json', 'advanced'])
}

/** As in node:child_process `null` is none. */
function flag(name: string, value: unknown): boolean {
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalidType(`options.${name}`, 'of type boolean', value)
  return value
}

function programOf(file: unknown): string {
  const program = text('file', file)
  if (program === '') throw invalidValue('file', 'cannot be empty', program)
  return program
}

function argvOf(file: string, args: readonly unknown[], options: Values): string[] {
  const { shell } = options
  if (shell !== undefined && shell !== null && typeof shell !== 'boolean' && typeof shell !== 'string') {
    throw invalidType('options.shell', 'a boolean or a string', shell)
  }
  const argv = [file]
  for (let index = 0; index < args.length; index++) argv.push(text(`args[${index}]`, `${args[index]}`))
  if (!shell) return argv
  return [shell === true ? '/bin/sh' : text('options.shell', shell), '-c', [file, ...args].join(' ')]
}

export function text(name: string, value: unknown): string {
  if (typeof value !== 'string') throw invalidType(name, 'of type string', value)
  if (value.includes('\0')) throw invalidValue(name, nullByte(value), value)
  return value
}

function variables(value: unknown): NodeJS.ProcessEnv {
  // Wrapped, so that the error does not show a text, which could be a secret.
  if (typeof value !== 'object') throw invalidType('options.env', 'an object', Object(value))
  return value as NodeJS.ProcessEnv
}

/** Text, its bytes, or a URL; of whichever realm, and of whichever implementation. */
function directory(cwd: unknown): string {
  if (cwd === undefined || cwd === null) return ''
  const path = text('options.cwd', pathOf(cwd))
  if (path === '') throw invalidValue('options.cwd', 'cannot be empty', path)
  return path
}

function pathOf(cwd: unknown): string {
  if (typeof cwd === 'string') return cwd
  if (types.isUint8Array(cwd)) return utf8('options.cwd', cwd)
  if (isUrl(cwd)) return fileURLToPath(cwd.href)
  throw invalidType('options.cwd', 'a string, a Uint8Array of UTF-8 or a file URL', cwd)
}

function isUrl(value: unknown): value is { readonly href: string } {
  const { href, protocol } = Object(value) as { href?: unknown; protocol?: unknown }
  return typeof href === 'string' && typeof protocol === 'string'
}

function utf8(name: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw invalidValue(name, 'must be UTF-8', bytes)
  }
}

export function milliseconds(name: string, value: unknown, otherwise: number): number {
  if (value === undefined || value === null) return otherwise
  if (typeof value !== 'number') throw invalidType(`options.${name}`, 'of type number', value)
  if (!Number.isInteger(value) || value < 0 || value > LONGEST) {
    throw outOfRange(`options.${name}`, `an integer from 0 to ${LONGEST}`, value)
  }
  return value
}

function identity(name: string, value: unknown): number {
  if (value === undefined || value === null) return -1
  if (typeof value !== 'number') throw invalidType(`options.${name}`, 'of type number', value)
  if (!Number.isInteger(value) || value < 0 || value > LONGEST) {
    throw outOfRange(`options.${name}`, `an integer from 0 to ${LONGEST}`, value)
  }
  return value
}

export function oneOf<T extends string>(name: string, value: unknown, allowed: readonly T[]): T | undefined {
  if (value === undefined || (allowed as readonly unknown[]).includes(value)) return value as T | undefined
  const values = allowed.map((one) => `'${one}'`).join(', ')
  throw invalidValue(`options.${name}`, `must be one of: ${values}`, value)
}

export function abortSignal(value: unknown): AbortSignal | undefined {
  if (value === undefined) return undefined
  if (
    value === null ||
    typeof value !== 'object' ||
    !('aborted' in value) ||
    typeof (value as AbortSignal).addEventListener !== 'function' ||
    typeof (value as AbortSignal).removeEventListener !== 'function'
  ) {
    throw invalidType('options.signal', 'an AbortSignal', value)
  }
  return value as AbortSignal
}

// ---- signals
/** Of several names for a number the first, as in node:child_process: SIGABRT and not SIGIOT, SIGIO and not SIGPOLL. */
const names = new Map<number, string>(
  Object.entries(constants.signals)
    .reverse()
    .map(([name, number]) => [number, name]),
)

/** Real-time signals have no name in Node; one of their own keeps "a code or a signal" true. */
export const signalName = (number: number) => (names.get(number) ?? `SIG${number}`) as NodeJS.Signals

/** @throws TypeError ERR_UNKNOWN_SIGNAL, as ChildProcess.kill does */
export function signalNumber(signal: unknown): number {
  if (typeof signal === 'number' && names.has(signal)) return signal
  if (typeof signal === 'string') {
    const number = (constants.signals as { [name: string]: number | undefined })[signal.toUpperCase()]
    if (number !== undefined) return number
  }
  throw unknownSignal(signal)
}

export function signalOption(name: string, signal: unknown): number | undefined {
  if (signal === undefined || signal === null) return undefined
  if (typeof signal !== 'string' && typeof signal !== 'number') {
    throw invalidType(`options.${name}`, 'of type string or number', signal)
  }
  return signalNumber(signal)
}

// ---- stdio
/** As many as have a number of one byte in a spec, and not more descriptors than go with one message. */
const MOST_PLACES = 60

export function placesOf(stdio: unknown): number[] {
  if (stdio === undefined || stdio === null) return [Place.pipe, Place.pipe, Place.pipe]
  if (typeof stdio === 'string' && stdio !== 'stdout') return [0, 1, 2].map((index) => placeOf(stdio, index))
  if (!Array.isArray(stdio)) {
    throw invalidValue('options.stdio', "must be 'pipe', 'overlapped', 'ignore', 'inherit', or an array", stdio)
  }
  if (stdio.length > MOST_PLACES) throw outOfRange('options.stdio.length', `at most ${MOST_PLACES}`, stdio.length)
  const places: number[] = []
  for (let index = 0; index < Math.max(stdio.length, 3); index++) places.push(placeOf(stdio[index], index))
  return places
}

function placeOf(value: unknown, index: number): number {
  switch (value) {
    case undefined:
    case null:
      return index < 3 ? Place.pipe : Place.ignore
    case 'pipe':
    case 'overlapped':
      return Place.pipe
    case 'ignore':
      return Place.ignore
    case 'inherit':
      return index
    case 'ipc':
      throw notSupported("The stdio value 'ipc'")
    case 'stdout':
      if (index !== 2) throw invalidValue(`options.stdio[${index}]`, "can be 'stdout' in the third place only", value)
      return Place.stdout
  }
  const descriptor = descriptorOf(value)
  if (descriptor === undefined) throw invalidPlace(`options.stdio[${index}]`, value, isStream(value))
  return descriptor
}
