/**
 * The names of options. A name that a function does not know is an error and never ignored: the caller asked for
 * something that would not happen. As in node:child_process only own properties count, and `undefined` is the same as
 * no option.
 */
import type * as api from '../../index'
import type { SessionOptions } from '../../session'
import { invalidType, unknownOption } from '../report/errors'

export type Values = { readonly [option: string]: unknown }

/** A function with options, and the names that it takes. */
export interface Taker {
  readonly name: string
  readonly options: ReadonlySet<string>
}

/** A record, so that a name that is declared and missing here does not compile, nor the other way round. */
const taker = <O>(name: string, options: { readonly [option in keyof Required<O>]: true }): Taker => ({
  name,
  options: new Set(Object.keys(options)),
})

const start = {
  cwd: true,
  env: true,
  argv0: true,
  shell: true,
  stdio: true,
  timeout: true,
  idleTimeout: true,
  signal: true,
  killSignal: true,
  grace: true,
  background: true,
  backgroundGrace: true,
  backgroundSettle: true,
  spare: true,
  containment: true,
  pty: true,
  limits: true,
  uid: true,
  gid: true,
  serialization: true,
  detached: true,
  windowsHide: true,
  windowsVerbatimArguments: true,
} as const

export const SPAWN = taker<api.SpawnOptions>('spawn()', start)
export const RUN = taker<api.RunOptions & Pick<api.SpawnOptions, 'serialization'>>('run()', {
  ...start,
  input: true,
  encoding: true,
  maxOutput: true,
  check: true,
  onOutput: true,
  yieldAfter: true,
})
export const GUARD = taker<NonNullable<Parameters<typeof api.guard>[1]>>('guard()', { signal: true, background: true })
export const END = taker<api.EndOptions>('end()', { signal: true, grace: true })
export const END_ALL = taker<NonNullable<Parameters<typeof api.endAll>[0]>>('endAll()', {
  signal: true,
  grace: true,
  scope: true,
})
export const SESSION = taker<SessionOptions>('startSession()', {
  cwd: true,
  env: true,
  via: true,
  protocol: true,
  ackTimeout: true,
  required: true,
  signal: true,
  killSignal: true,
  grace: true,
})
export const PROTOCOL = taker<NonNullable<SessionOptions['protocol']>>('startSession(), in `protocol`', {
  env: true,
  ack: true,
})

const NONE: Values = Object.freeze({ __proto__: null } as unknown as Values)

/** A copy without a prototype: what a polluted Object.prototype holds is no option. */
export function optionsOf(value: unknown, by: Taker, called = 'options'): Values {
  if (value === undefined) return NONE
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw invalidType(called, 'an object', value)
  const options = { __proto__: null, ...value } as unknown as Values
  for (const name in options) {
    if (!by.options.has(name) && options[name] !== undefined) throw unknownOption(name, by.name, meant(name, by))
  }
  return options
}

/** What other libraries call it: the option that is meant, or '' for none, and what to do. */
const ELSEWHERE: { readonly [name: string]: readonly [option: string, advice: string] } = {
  maxBuffer: ['maxOutput', "run() limits what it keeps of the output by 'maxOutput', and ends nothing for it"],
  reject: ['check', "run() resolves whatever the exit code, and rejects with 'check: true'"],
  throwOnError: ['check', "run() resolves whatever the exit code, and rejects with 'check: true'"],
  forceKillAfterDelay: ['grace', "'grace' is the time from 'killSignal' to SIGKILL"],
  forceKillAfterTimeout: ['grace', "'grace' is the time from 'killSignal' to SIGKILL"],
  cancelSignal: ['signal', "an AbortSignal is given as 'signal'"],
  cleanup: ['', 'everything is ended when the host dies, always'],
  persist: ['background', "what the command leaves runs on, contained, with background: 'keep'"],
  all: ['stdio', "with 'stdout' in the third place of 'stdio' both streams come in one"],
  stdin: ['stdio', "the streams are given as 'stdio', what is written to stdin as 'input' of run()"],
  stdout: ['stdio', "the streams are given as 'stdio': [stdin, stdout, stderr]"],
  stderr: ['stdio', "the streams are given as 'stdio': [stdin, stdout, stderr]"],
  inputFile: ['input', "run() takes a stream as 'input': fs.createReadStream(file)"],
  stripFinalNewline: ['', 'the output is as the command wrote it; trimEnd() strips it'],
  lines: ['', "the output is one string; split('\\n') makes lines of it"],
  buffer: ['', 'run() collects the output, spawn() does not'],
  extendEnv: ['env', "'env' replaces the environment: { ...process.env, NAME: 'value' } extends it"],
  preferLocal: ['env', "the program is looked up in PATH of 'env'"],
  localDir: ['env', "the program is looked up in PATH of 'env'"],
  nodeOptions: ['', 'its members are options themselves'],
}

interface Meant {
  readonly option: string | undefined
  readonly advice: string | undefined
}

function meant(name: string, by: Taker): Meant {
  const elsewhere = Object.hasOwn(ELSEWHERE, name) ? ELSEWHERE[name] : undefined
  if (elsewhere !== undefined) return { option: elsewhere[0] || undefined, advice: elsewhere[1] }
  const other = [RUN, SESSION].find(({ options }) => options.has(name))
  if (other !== undefined) return { option: undefined, advice: `${other.name} has it` }
  return { option: nearest(name, by.options), advice: undefined }
}

/** `timeoutMs` and `killsignal` are near, and so is one slip in a short name, or two in a long one. */
function nearest(name: string, options: Iterable<string>): string | undefined {
  const written = name.toLowerCase()
  let best: string | undefined
  let least = name.length > 4 ? 3 : 2
  for (const option of options) {
    const known = option.toLowerCase()
    const slips = written.startsWith(known) ? 1 : distance(written, known)
    if (slips >= least) continue
    least = slips
    best = option
  }
  return best
}

/** Insertions, deletions, replacements and swaps of neighbours that make one of the other. */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3
  let before: number[] = []
  let above = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const isSame = a[row - 1] === b[column - 1]
      const replaced = (above[column - 1] as number) + (isSame ? 0 : 1)
      let least = Math.min(replaced, (above[column] as number) + 1, (current[column - 1] as number) + 1)
      const isSwap = a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]
      if (isSwap) least = Math.min(least, (before[column - 2] as number) + 1)
      current.push(least)
    }
    before = above
    above = current
  }
  return above[b.length] as number
}
