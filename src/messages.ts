/** Every text that holdfast writes, but the notices. */
import { inspect } from 'node:util'

const SHOWN = 60
const LONGEST_SAID = 500
const LONGEST_FILE = 255

/** A value for a message: short, one line, and with its size where it was cut. */
function shown(value: unknown): string {
  if (typeof value === 'function') return `function ${value.name}`
  if (typeof value !== 'string')
    return inspect(value, { depth: 0, breakLength: Number.POSITIVE_INFINITY }).slice(0, 200)
  if (value.length <= SHOWN) return inspect(value)
  return `${inspect(value.slice(0, SHOWN))}... (${Buffer.byteLength(value)} bytes)`
}

/** A program's name at the head of a message: as it is, unless nobody could read it. */
const brief = (file: string) => (file.length <= LONGEST_FILE ? file : shown(file))

const argument = (name: string) => (name.includes('.') ? `The property '${name}'` : `The argument '${name}'`)

// ---- arguments
export const wrongType = (name: string, expected: string, value: unknown) =>
  `${argument(name)} must be ${expected}. Received ${shown(value)}`
export const wrongValue = (name: string, reason: string, value: unknown) =>
  `${argument(name)} ${reason}. Received ${shown(value)}`
export const streamWithoutDescriptor = (name: string, stream: object) =>
  `${argument(name)} is a stream without an open file descriptor (${stream.constructor?.name}). Use 'pipe' in its place, and pipe the stream to the command or the command to the stream; a file stream is open after its event 'open'`
export const wrongRange = (name: string, range: string, value: unknown) =>
  `${argument(name)} must be ${range}. Received ${shown(value)}`
export const nullByte = (value: string) =>
  `must be a string without null bytes (it has ${Buffer.byteLength(value)} bytes)`
export const unknownSignal = (value: unknown) => `Unknown signal: ${String(value)}`
export const notSupported = (what: string) => `${what} is not supported by this version of holdfast`

// ---- a start that was refused
export const START = {
  cwdMissing: (path: string) => `the working directory ${shown(path)} does not exist`,
  cwdNotDirectory: (path: string) => `the working directory ${shown(path)} is not a directory`,
  cwdTooLong: (path: string) => `the name of the working directory is too long: ${shown(path)}`,
  cwdOther: (path: string) => `the working directory ${shown(path)} cannot be entered`,
  programMissing: (path: string) =>
    path.includes('/')
      ? `the program ${shown(path)} does not exist`
      : `the program ${shown(path)} was not found in PATH`,
  programDirectory: (path: string) => `the program ${shown(path)} is a directory`,
  programNotExecutable: (path: string) => `the program ${shown(path)} may not be executed`,
  programTooLong: (path: string) => `the name of the program is too long: ${shown(path)}`,
  programBusy: (path: string) =>
    `the program ${shown(path)} is still open for writing in some process; close it there before it is started`,
  programFormat: (path: string) => `the program ${shown(path)} has no format that this system executes`,
  programOther: (path: string) => `the program ${shown(path)} could not be executed`,
  interpreter: (path: string) =>
    `the program ${shown(path)} names an interpreter (in its first line, or its loader) that cannot be executed`,
  tooLong: (what: string, bytes: number) =>
    `arguments and environment are too long; the longest is ${what} with ${bytes} bytes`,
  arguments: () => 'arguments or environment were refused',
  stdio: () => 'the input and output could not be set up',
  limits: () => 'the limits could not be set',
  credentials: () => 'the user or group could not be taken on',
  helper: () => 'no process could be made for it',
  'parent-death signal': () =>
    'the system refuses prctl(PR_SET_PDEATHSIG), without which it could outlive a killed keeper; a sandbox that filters system calls must allow it',
} as const

export const startFailed = (file: string, code: string, reason: string) => `spawn ${brief(file)} ${code}: ${reason}`
export const argumentName = (index: number) => (index === 0 ? 'argv0' : `args[${index - 1}]`)
export const variableName = (name: string) => `the environment variable ${shown(name)}`
export const noHelper = (file: string, tried: string) =>
  `spawn ${brief(file)}: nothing was run, since no holdfast helper took it: ${tried}`
export const unclear = (file: string, tried: string) =>
  `spawn ${brief(file)}: it cannot be known whether it ran: ${tried}`
export const aborted = 'The operation was aborted'

// ---- a result that is not ok, with `check`
export const checkExit = (file: string, code: number) => `${file} exited with code ${code}`
export const checkSignal = (file: string, signal: string) => `${file} was ended by ${signal}`
export const checkTimeout = (file: string, timeout: number) => `${file} did not end within ${timeout} ms`
export const checkUnknown = (file: string) => `${file}: its exit status is unknown`
export const checkEnded = (file: string) => `${file} was ended before it was done`
export const checkCut = (file: string, bytes: number) =>
  `${file} wrote more than the default limit of ${bytes} bytes; set maxOutput`
export const consumerFailed = (file: string, what: 'input' | 'onOutput') =>
  `${file} was ended, because \`${what}\` failed`

// ---- streams
export const stdinClosed = 'The command has ended; its stdin is closed'

// ---- guard()
const GUARD = {
  dead: 'it has ended',
  'not-a-child': 'it is not a child of this process, or has been one',
  'own-group': 'it is in the process group of this process (start it with `detached: true`)',
  'not-a-leader': 'it does not lead a process group of its own (start it with `detached: true`)',
  unheld: 'this kernel offers no way to hold the process group of another session',
  member: 'the guard could not move into its process group, or not out of it',
  table: 'the process table, which is needed to hold its group here, cannot be read',
} as const
export type GuardReason = keyof typeof GUARD
export const isGuardReason = (word: string): word is GuardReason => Object.hasOwn(GUARD, word)

export const guardRefused = (pid: number, reason: GuardReason) =>
  `guard ${pid}: ${GUARD[reason]}; nothing was signalled. What is started with spawn() of holdfast needs no guard`
export const guardWithoutHelper = (pid: number, tried: string) =>
  `guard ${pid}: it is not guarded, since no holdfast helper could do it: ${tried}`
export const GUARD_LOST = {
  start: (code: string) => `starting it failed: ${code}`,
  silent: 'two in a row left, or were given up, before they had said that they are ready',
} as const

// ---- NODE_DEBUG=holdfast
export const debugUnguarded = (pid: number) => `child ${pid} is not guarded, since no holdfast helper could be started`
export const debugUncontained = (file: string) =>
  `${file} ran without containment (said once; every report says it with a notice)`
export const debugGuardReady = (group: number, held: string) => `the guard of group ${group} is ready, by ${held}`
export const debugGuardLost = (group: number) => `the guard of group ${group} is gone; another one takes its place`

// ---- addon and helper
export const FILES = {
  platform: (target: string) => `there is no holdfast build for ${target}`,
  override: (variable: string, folder: string, file: string) =>
    `${variable} names ${shown(folder)}, which has no ${file}`,
  missing: (file: string, tried: readonly string[]) => `${file} was not found (tried: ${tried.join('; ')})`,
  unloadable: (path: string, reason: string) => `${path} could not be loaded: ${reason}`,
  version: (path: string, found: string, expected: string) => `${path} is version ${found}, the package is ${expected}`,
  helperMissing: (path: string) => `${path} does not exist`,
  helperNotExecutable: (path: string, reason: string) =>
    `${path} is not executable, and could not be made so (chmod: ${reason})`,
} as const

export const notReplaced = (path: string, code: string) => `${path} could not be executed: ${code}`

// ---- session
/** @param said what was written to stderr, of which the end tells most */
export const notContained = (program: string, hasStarter: boolean, said: string) => {
  // Of a binary program it is not text.
  const text = said.replace(/[^\P{Cc}\n\t]/gu, '?').trim()
  const wrote = text === '' ? '' : `. It wrote: ${text.slice(-LONGEST_SAID)}`
  return hasStarter
    ? `the starter of ${shown(program)} did not acknowledge, and was ended${wrote}`
    : `${shown(program)} did not acknowledge the request for containment, and was ended; start it by way of the starter (via: 'starter'), or do without the acknowledgement (required: false)${wrote}`
}
export const notAnswered = (reason: string) => `the request for containment was not answered: ${reason}`
export const NOT_ANSWERED = {
  worker: 'this is a worker thread',
  notAsked: 'this process was not started with it',
  otherCommandLine: 'the command line that /proc tells of is not the one that Node.js tells of',
  fromStdin: 'the program came by stdin, and cannot be read again',
} as const

// ---- command line
export const usage = `holdfast: runs commands so that nothing they start outlives them

  holdfast run [--timeout 30s] [--grace 2s] [--background end|keep] [--cwd DIR] -- command [args...]
  holdfast doctor      what this machine can do, as JSON
  holdfast --version
  holdfast --help

Exit status of run: the command's; a signal is passed on; 124 timeout, 125 holdfast itself failed,
126 the command is not executable, 127 it was not found.
`
export const cliUnknown = (word: string) => `holdfast: unknown command ${shown(word)}; see holdfast --help\n`
export const cliFailed = (reason: string) => `holdfast: ${reason}\n`
