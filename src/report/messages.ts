/** Every text that holdfast writes, but the notices. */
import { inspect, stripVTControlCharacters } from 'node:util'

const SHOWN = 60
const LONGEST_PATH = 300
const LONGEST_SAID = 500
const LONGEST_FILE = 255
const LONGEST_COMMAND = 200

/**
 * A value for a message: short, one line, safe to print, and with its size where it was cut. Of an object only what it
 * is: a member could be a secret. Never throws, whatever a getter or a proxy does: the message is of another error.
 */
function shown(value: unknown, longest = SHOWN): string {
  try {
    return describe(value, longest)
  } catch {
    return 'a value that cannot be shown'
  }
}

function describe(value: unknown, longest: number): string {
  if (typeof value === 'string') {
    if (value.length <= longest) return visible(inspect(value))
    return `${visible(inspect(value.slice(0, longest)))}... (${Buffer.byteLength(value)} bytes)`
  }
  if (typeof value === 'function') return `function ${visible(value.name.slice(0, longest))}`
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (typeof value === 'object' && value !== null) return `an instance of ${kindOf(value)}`
  return visible(String(value))
}

const path = (value: string) => shown(value, LONGEST_PATH)

function kindOf(value: object): string {
  const name: unknown = Object.getPrototypeOf(value)?.constructor?.name
  return typeof name === 'string' && name !== '' ? visible(name.slice(0, SHOWN)) : 'Object'
}

/** Control characters, and those that change the direction of the text after them, as escapes. */
const visible = (text: string) =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (one) => `\\u{${(one.codePointAt(0) as number).toString(16)}}`)

/** A program's name as its user wrote it, where that is safe to print. */
const program = (file: string) => (visible(file) === file && file.length <= LONGEST_FILE ? file : shown(file))

/** The end of what a program wrote, over several lines. */
function wroteLast(text: string): string {
  const last = stripVTControlCharacters(text.slice(-2 * LONGEST_SAID)).replace(/\r\n/g, '\n')
  const safe = last.replace(/[^\P{C}\n\t]/gu, '?').trim()
  return safe.length > LONGEST_SAID ? `...${safe.slice(-LONGEST_SAID)}` : safe
}

const argument = (name: string) => (name.includes('.') ? `The property '${name}'` : `The argument '${name}'`)

// ---- arguments
export const wrongType = (name: string, expected: string, value: unknown) =>
  `${argument(name)} must be ${expected}. Received ${shown(value)}`
export const wrongValue = (name: string, reason: string, value: unknown) =>
  `${argument(name)} ${reason}. Received ${shown(value)}`
export const streamWithoutDescriptor = (name: string, stream: object) =>
  `${argument(name)} is a stream without an open file descriptor (${kindOf(stream)}). Use 'pipe' in its place, and pipe the stream to the command or the command to the stream; a file stream is open after its event 'open'`
export const wrongRange = (name: string, range: string, value: unknown) =>
  `${argument(name)} must be ${range}. Received ${shown(value)}`
export const PLACE =
  "must be 'pipe', 'overlapped', 'ignore', 'inherit', 'stdout' (in the third place), a stream that has a descriptor, a descriptor, null or undefined"
export const nullByte = (value: string) =>
  `must be a string without null bytes (it has ${Buffer.byteLength(value)} bytes)`
export const badName = (name: string) => {
  // What follows `=` could be a secret.
  const [before, ...after] = name.split('=')
  const received = after.length === 0 ? shown(name) : `${shown(before)} and what follows`
  return `The name of an environment variable must not be empty, and must not contain '=' or a null byte. Received ${received}`
}
export const badVariable = (name: string, value: string) =>
  `${argument(`options.env[${shown(name)}]`)} ${nullByte(value)}`
export const unknownOption = (name: string, by: string, option: string | undefined, advice: string | undefined) => {
  const start = `Unknown option ${shown(name)} of ${by}`
  if (advice !== undefined) return `${start}: ${advice}`
  return option === undefined ? start : `${start}. Did you mean '${option}'?`
}
export const unknownSignal = (value: unknown) =>
  `Unknown signal: ${typeof value === 'string' ? program(value) : shown(value)} (a name or a number of os.constants.signals)`
export const notSupported = (what: string) => `${what} is not supported by this version of holdfast`

// ---- a start that was refused
const workingDirectory = (at: string) =>
  at === '' ? 'the working directory of this process' : `the working directory ${path(at)}`

export const START = {
  cwdMissing: (at: string) => `${workingDirectory(at)} does not exist`,
  cwdNotDirectory: (at: string) => `${workingDirectory(at)} is not a directory`,
  cwdTooLong: (at: string) => `the name of the working directory is too long: ${shown(at)}`,
  cwdOther: (at: string) => `${workingDirectory(at)} cannot be entered`,
  programMissing: (at: string) =>
    at.includes('/') ? `the program ${path(at)} does not exist` : `the program ${path(at)} was not found in PATH`,
  programDirectory: (at: string) => `the program ${path(at)} is a directory`,
  programNotExecutable: (at: string) => `the program ${path(at)} is not executable: permission denied`,
  programTooLong: (at: string) => `the name of the program is too long: ${shown(at)}`,
  programBusy: (at: string) =>
    `the program ${path(at)} is still open for writing in some process; close it there before it is started`,
  programFormat: (at: string) => `the program ${path(at)} is not in an executable format`,
  programOther: (at: string) => `the program ${path(at)} could not be executed`,
  /** @param interpreter of its first line; undefined: it has none, and names a loader */
  interpreter: (at: string, interpreter: string | undefined) => {
    if (interpreter === undefined) return `the program ${path(at)} needs a loader that cannot be executed`
    const line = `the program ${path(at)} names in its first line the interpreter ${shown(interpreter)}, which cannot be executed`
    return interpreter.endsWith('\r') ? `${line}; the line ends in CR LF: save the file with LF line ends` : line
  },
  tooLong: (what: string, bytes: number) =>
    `arguments and environment are too long; the longest is ${what} with ${bytes} bytes`,
  arguments: () => 'arguments or environment were refused',
  stdio: () => 'the input and output could not be set up',
  limits: () => 'the limits could not be set',
  credentials: () => 'cannot switch to the requested user or group',
  helper: () => 'the process could not be created',
  'parent-death signal': () =>
    'the system refuses prctl(PR_SET_PDEATHSIG), without which it could outlive a killed keeper; a sandbox that filters system calls must allow it',
  tooManyPlaces: () => 'stdio has too many places (at most 63)',
} as const

/** No descriptor is free, whatever it was needed for. */
export const DESCRIPTORS = {
  host: 'this process has reached its limit on open files (ulimit -n); close some, or raise the limit',
  keeper: 'the keeper has reached its limit on open files, which is the hard limit of this process (ulimit -Hn)',
  system: 'the system has reached its limit on open files (fs.file-max)',
} as const

export const startFailed = (file: string, code: string, reason: string) => `spawn ${program(file)} ${code}: ${reason}`
export const argumentName = (index: number) => (index === 0 ? 'argv0' : `args[${index - 1}]`)
export const variableName = (name: string) => `the environment variable ${shown(name)}`
export const noHelper = (file: string, tried: string) =>
  `spawn ${program(file)}: not started: no holdfast helper is available: ${tried}`
export const unclear = (file: string, tried: string) =>
  `spawn ${program(file)}: it cannot be known whether it ran: ${tried}`
export const aborted = 'The operation was aborted'

// ---- a result that is not ok, with `check`
export const CHECK = {
  exit: (code: number) => `exited with code ${code}`,
  signal: (signal: string) => `was ended by ${signal}`,
  timeout: (timeout: number) => `did not end within ${timeout} ms`,
  idle: (limit: number) => `wrote nothing for ${limit} ms and was ended`,
  unknown: () => 'ended, and its exit status is unknown',
  ended: () => 'was ended before it was done',
  background: (settle: number) =>
    `left something running that still wrote output when its ${settle} ms were over; wait for it in the command, raise backgroundSettle, or let it run on with background: 'keep'`,
  cut: (bytes: number) => `wrote more than the default limit of ${bytes} bytes; set maxOutput`,
} as const
/** @param stderr its end is shown */
export const checkFailed = (file: string, args: readonly string[], reason: string, stderr: string) => {
  const wrote = wroteLast(stderr)
  return `${commandLine(file, args)} ${reason}${wrote === '' ? '' : `. It wrote:\n${wrote}`}`
}
/** What a shell would not take as it stands is quoted. */
const word = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) && text.length <= SHOWN ? text : shown(text))
function commandLine(file: string, args: readonly string[]): string {
  let line = program(file)
  for (const [index, arg] of args.entries()) {
    const next = `${line} ${word(arg)}`
    if (next.length > LONGEST_COMMAND) return `${line} ... (${args.length - index} more arguments)`
    line = next
  }
  return line
}
export const consumerFailed = (file: string, what: 'input' | 'onOutput', cause: unknown) =>
  `${program(file)} was ended, because \`${what}\` failed: ${thrown(cause)}`
function thrown(cause: unknown): string {
  const text = typeof cause === 'string' ? cause : messageOf(cause)
  return typeof text === 'string' ? wroteLast(text) : shown(cause)
}
function messageOf(cause: unknown): unknown {
  try {
    return (cause as { message?: unknown } | null | undefined)?.message
  } catch {
    return undefined
  }
}

// ---- streams
export const stdinClosed = 'The command has ended; its stdin is closed'

// ---- guard()
const GUARD = {
  dead: 'it has ended',
  'not-a-child': 'it is not a child of this process, or has already been waited for',
  'own-group': 'it is in the process group of this process (start it with `detached: true`)',
  'not-a-leader': 'it does not lead a process group of its own (start it with `detached: true`)',
  unheld: 'this kernel offers no way to hold the process group of another session',
  member: 'the guard could not join or leave its process group',
  table: 'the process table, which is needed to hold its group here, cannot be read',
} as const
export type GuardReason = keyof typeof GUARD
export const isGuardReason = (word: string): word is GuardReason => Object.hasOwn(GUARD, word)

export const guardRefused = (pid: number, reason: GuardReason) =>
  `guard ${pid}: ${GUARD[reason]}; nothing was signalled. What is started with spawn() of holdfast needs no guard`
export const guardWithoutHelper = (pid: number, tried: string) =>
  `guard ${pid}: it is not guarded: no holdfast helper is available: ${tried}`
export const GUARD_LOST = {
  start: (code: string, reason?: string) => `starting it failed: ${code}${reason ? `: ${reason}` : ''}`,
  silent: 'two guards in a row exited, or did not answer in time',
} as const

// ---- NODE_DEBUG=holdfast
export const debugUnguarded = (pid: number) => `child ${pid} is not guarded: no holdfast helper could be started`
export const debugUncontained = (file: string) =>
  `${file} ran without containment (logged once; every report has a notice)`
export const debugGuardReady = (group: number, held: string) => `the guard of group ${group} is ready, by ${held}`
export const debugGuardLost = (group: number) => `the guard of group ${group} is gone; another one takes its place`

// ---- addon and helper: what is wrong, and what to do
/** @param name of the platform package; '' where no one is named */
const reinstall = (name: string) =>
  `remove node_modules and install again${name === '' ? '' : `, or install ${name} by its name`}`
const unpack = (pattern: string) =>
  `leave it outside of the archive: asarUnpack: ['${pattern}'] for electron-builder, packagerConfig.asar.unpack: '${pattern}' for electron-forge`

export const FILES = {
  platform: (target: string, known: readonly string[]) =>
    `there is no holdfast build for ${target} (there are builds for ${known.join(', ')})`,
  override: (variable: string, folder: string, file: string) =>
    `${variable} names ${path(folder)}, which has no ${file}; name the folder that has it, or unset the variable`,
  overrideForeign: (variable: string, folder: string, file: string, found: string) =>
    `${variable} names ${path(folder)}, which has ${found}; this process needs ${file}`,
  /** @param tried where it was looked for */
  missing: (name: string, tried: readonly string[]) =>
    `the package ${name} is not installed (tried: ${tried.map(path).join('; ')}). Optional dependencies may be left out (--omit=optional, --no-optional), the lockfile may have been made on another system, or npm has forgotten it (npm/cli#4828): ${reinstall(name)}`,
  incomplete: (folder: string, file: string) =>
    `${path(folder)} has no ${file}, so that it is incomplete; ${reinstall('')}`,
  foreign: (name: string, found: readonly string[]) =>
    `the package ${name} is not installed, but ${found.join(', ')} is: node_modules or the lockfile was made on another system, or copied from there; ${reinstall(name)}`,
  bundled: (name: string, variable: string) =>
    `the package ${name} was not found from here, where holdfast was bundled into another file. Leave it outside of the bundle (external: ['holdfast']), or put the folder of ${name} beside the bundle and name it by ${variable}`,
  archived: (file: string, pattern: string) =>
    `${path(file)} is inside an archive, from which the system executes nothing; ${unpack(pattern)}`,
  zipped: (file: string, name: string) =>
    `${path(file)} is inside a zip archive, from which the system executes nothing; run \`yarn unplug ${name}\`, or set dependenciesMeta.${name}.unplugged`,
  unreadable: (file: string, reason: string) =>
    `${path(file)} cannot be read: ${wroteLast(reason)}; give this user the permission to read it and the folders above it`,
  damaged: (file: string, reason: string) =>
    `${path(file)} is damaged, or no addon (${wroteLast(reason)}); ${reinstall('')}`,
  architecture: (file: string, cpu: string, expected: string) =>
    `${path(file)} is for ${cpu}, and this process is ${expected}: it was installed on another machine, or for another Node.js; ${reinstall('')}`,
  oldGlibc: (file: string, floor: string, reason: string) =>
    `${path(file)} needs glibc ${floor} or newer, and this system has an older one (${wroteLast(reason)}); use a newer system, or build it from source there`,
  otherLibc: (file: string, libc: string, expected: string, reason: string) =>
    `${path(file)} is for ${libc}, and this process runs on ${expected} (${wroteLast(reason)}); ${reinstall('')}`,
  noexec: (file: string, reason: string) =>
    `${path(file)} must not be mapped for execution: its file system may be mounted with noexec (${wroteLast(reason)}); install it elsewhere, or mount that without noexec`,
  unloadable: (file: string, reason: string) => `${path(file)} could not be loaded: ${wroteLast(reason)}`,
  version: (file: string, found: string, expected: string) =>
    `${path(file)} is version ${shown(found)}, and the package is ${expected}: two versions are mixed; ${reinstall('')}`,
  notOurs: (file: string) => `${path(file)} is no addon of holdfast`,
  addonsRefused: (reason: string) =>
    `this process must not load addons; start Node.js without --no-addons, and under --permission with --allow-addons (${wroteLast(reason)})`,
  childrenRefused:
    'this process must not start others (node --permission); start Node.js with --allow-child-process, and with --allow-addons',
  readRefused: (folder: string) =>
    `this process must not read ${path(folder)} (node --permission); start Node.js with --allow-fs-read=${visible(folder)}`,
  deno: (folder: string, reason: string) =>
    `Deno refuses it: ${wroteLast(reason)}. Start it with --allow-ffi=${visible(folder)} --allow-read=${visible(folder)}, or with --allow-ffi --allow-read --allow-env`,
  helperMissing: (helper: string) => `${path(helper)} does not exist; ${reinstall('')}`,
  helperDamaged: (helper: string, reason: string) => `${path(helper)} is damaged (${reason}); ${reinstall('')}`,
  helperVersion: (helper: string, expected: string) =>
    `${path(helper)} is not of version ${expected}, as the package is: two versions are mixed, or it is not the helper; ${reinstall('')}`,
  helperNotExecutable: (helper: string, reason: string) =>
    `${path(helper)} is not executable, and chmod failed: ${reason}; chmod +x it where it is installed, or keep modes when it is copied`,
  helperNotExecuted: (helper: string) =>
    `${path(helper)} has its executable bit and must not be executed all the same; its file system may be mounted with noexec: install it elsewhere, or mount that without noexec`,
} as const

export const notReplaced = (file: string, code: string) => `${path(file)} could not be executed: ${code}`

// ---- session
/** @param stderr what it has written there; its end is shown */
export const notContained = (program: string, hasStarter: boolean, stderr: string) => {
  const text = wroteLast(stderr)
  const wrote = text === '' ? '' : `. It wrote: ${text}`
  return hasStarter
    ? `the starter of ${shown(program)} did not acknowledge, and was ended${wrote}`
    : `${shown(program)} did not acknowledge the request for containment, and was ended; start it by way of the starter (via: 'starter'), or do without the acknowledgement (required: false)${wrote}`
}
export const notAnswered = (reason: string) => `the request for containment was not answered: ${reason}`
export const NOT_ANSWERED = {
  worker: 'this is a worker thread',
  notAsked: 'this process was not started with it',
  otherCommandLine:
    '/proc/self/cmdline does not match process.argv (process.title, process.execArgv or process.argv was changed)',
  fromStdin: 'the program was read from stdin, and cannot be read again',
} as const

// ---- command line
export const usage = `holdfast: runs commands so that nothing they start outlives them

  holdfast run [--timeout 30s] [--grace 2s] [--background end|keep] [--background-grace 500ms]
               [--background-settle 100ms] [--cwd DIR] -- command [args...]
  holdfast doctor      what this machine can do, as JSON
  holdfast --version
  holdfast --help

Exit status of run: the command's; a signal is passed on; 124 timeout, 125 holdfast itself failed,
126 the command is not executable, 127 it was not found.
`
export const cliUnknown = (word: string) => `holdfast: unknown command ${shown(word)}; see holdfast --help\n`
export const cliFailed = (reason: string) => `holdfast: ${reason}\n`
