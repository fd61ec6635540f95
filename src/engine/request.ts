/**
 * The Engine's side of the session protocol: a request for containment is answered by becoming the starter of this same
 * command line. Where that cannot be, the program runs on, as one does that knows nothing of requests.
 */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import { becomeHelper } from '../native/become'
import { debug } from '../report/debug'
import { NOT_ANSWERED, notAnswered } from '../report/messages'

/** engine.ts has this name as well, since it loads nothing without a request. */
export const VARIABLE = 'LEAN_CTX_SESSION_CONTAINMENT'

export const isRequested = () => process.env[VARIABLE] === '1'

/** Returns where the request cannot be answered. */
export function answer(): void {
  // What this program starts must not answer the request again.
  delete process.env[VARIABLE]
  try {
    const program = commandLine()
    const { ppid } = process
    // 0: outside of this pid namespace, where no parent can be watched.
    const parent = ppid === 0 ? [] : ['--watch-parent', '--parent-pid', `${ppid}`]
    becomeHelper('__session-starter', ['--ack', ...parent, '--', process.execPath, ...program])
  } catch (error) {
    debug(notAnswered((error as Error).message))
  }
}

/** What this process was started with, but for its first word. */
function commandLine(): string[] {
  if (!isMainThread) throw new Error(NOT_ANSWERED.worker)
  // Set later on (`node --env-file`), the variable would be set again, and answered again, for ever.
  const environment = readFileSync('/proc/self/environ', 'latin1').split('\0')
  if (!environment.includes(`${VARIABLE}=1`)) throw new Error(NOT_ANSWERED.notAsked)
  const words = wordsOf('/proc/self/cmdline').slice(1)
  const [, script, ...args] = process.argv
  if (!fits(words, script, args)) throw new Error(NOT_ANSWERED.otherCommandLine)
  if (isFromStdin(script)) throw new Error(NOT_ANSWERED.fromStdin)
  return words
}

/** @throws Error where the file cannot be read, or is not UTF-8 */
function wordsOf(file: string): string[] {
  const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(readFileSync(file))
  return text.split('\0').slice(0, -1)
}

/** Node has most of its command line; after process.title was set, the file has something else. */
function fits(words: string[], script: string | undefined, args: string[]): boolean {
  const { execArgv } = process
  const argsFrom = words.length - args.length
  const between = words.slice(execArgv.length, argsFrom)
  if (process.versions.deno !== undefined)
    return isSame(words.slice(argsFrom), args) && isNamedBy(between.at(-1), script)
  if (between[0] === '--') between.shift()
  return (
    isSame(words.slice(0, execArgv.length), execArgv) &&
    between.length === (script === undefined ? 0 : 1) &&
    isSame(words.slice(argsFrom), args)
  )
}

/** Deno does not list its own options. They stand before the script, and are given again with it. */
function isNamedBy(word: string | undefined, script: string | undefined): boolean {
  return word !== undefined && script !== undefined && (word === pathToFileURL(script).href || resolve(word) === script)
}

function isSame(some: string[], others: string[]): boolean {
  return some.length === others.length && some.every((word, index) => word === others[index])
}

/** A program that came by stdin has been read, and would not come a second time. */
function isFromStdin(script: string | undefined): boolean {
  const isEvaluated = process.execArgv.some((option) => /^(-p?e|-p|--eval|--print)(=|$)/.test(option))
  return !isEvaluated && (script === undefined || script === '-')
}
