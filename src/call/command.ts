/** From the arguments of spawn() and run() to what the addon takes. Throws what node:child_process throws. */
import { fileURLToPath } from 'node:url'
import { types } from 'node:util'
import { type Background, Place } from '../native/addon'
import { abortSignal } from '../options/abort'
import { optionsOf, type Taker, type Values } from '../options/names'
import { SIGTERM, signalOption } from '../options/signals'
import { BACKGROUND_GRACE, BACKGROUND_SETTLE, flag, GRACE, integer, oneOf, text } from '../options/values'
import { invalidType, invalidValue, notSupported } from '../report/errors'
import { environmentOf } from './environment'

export interface Command {
  readonly file: string
  /** argv[0] first. */
  readonly argv: readonly string[]
  readonly env: string
  readonly cwd: string
  readonly stdio: readonly number[]
  readonly timeout: number
  readonly idleTimeout: number
  readonly killSignal: number
  readonly grace: number
  readonly background: Background
  readonly backgroundGrace: number
  readonly backgroundSettle: number
  /** undefined: the host's. */
  readonly uid: number | undefined
  readonly gid: number | undefined
  readonly detached: boolean
  readonly bestEffort: boolean
  readonly signal: AbortSignal | undefined
  /** The command that errors and running() name, where that is not what is started. */
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
    timeout: integer('timeout', options.timeout, 0),
    idleTimeout: idleTimeout(options.idleTimeout, stdio),
    killSignal: signalOption('killSignal', options.killSignal) ?? SIGTERM,
    grace: integer('grace', options.grace, GRACE),
    background: oneOf('background', options.background, ['end', 'keep']) ?? 'end',
    backgroundGrace: integer('backgroundGrace', options.backgroundGrace, BACKGROUND_GRACE),
    backgroundSettle: integer('backgroundSettle', options.backgroundSettle, BACKGROUND_SETTLE),
    uid: integer('uid', options.uid, undefined),
    gid: integer('gid', options.gid, undefined),
    detached: flag('detached', options.detached),
    bestEffort: oneOf('containment', options.containment, ['required', 'best-effort']) === 'best-effort',
    signal: abortSignal(options.signal),
  }
}

/** Options of a later version: refused by name, never ignored. */
function refuseUnsupported(options: Values): void {
  for (const name of ['pty', 'limits', 'spare']) {
    if (options[name] !== undefined) throw notSupported(`The option '${name}'`)
  }
  if (options.background === 'release') throw notSupported("The option 'background: release'")
}

/** The host watches what it reads. */
function idleTimeout(value: unknown, [, stdout, stderr]: readonly number[]): number {
  const limit = integer('idleTimeout', value, 0)
  if (limit > 0 && stdout !== Place.pipe && stderr !== Place.pipe) {
    throw invalidValue('options.idleTimeout', "needs 'pipe' in the second or third place of options.stdio", value)
  }
  return limit
}

/** Options without an effect here take the values that they take in node:child_process. */
function checkWithoutEffect(options: Values): void {
  for (const name of ['windowsHide', 'windowsVerbatimArguments']) flag(name, options[name])
  oneOf('serialization', options.serialization, ['json', 'advanced'])
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
