/** What a tool hands to its model of a result: a few lines, all texts of which are here and in notices.ts. */
import type { ProcessInfo, RunResult } from '../../index'
import { notices } from './notices'

type Result = RunResult<string | Uint8Array>

/** Named in a line; how many more there are is a number. */
const MOST_NAMES = 5

/** @see the declaration in index.d.ts */
export function describe(result: Result): string {
  return [exitOf(result), ...limitOf(result), ...restOf(result), ...cutOf(result), ...noticesOf(result)].join('\n')
}

function exitOf({ exitCode, signal, report, kept }: Result): string {
  if (report.reason === 'yield' && exitCode === null && signal === null) return 'The command is still running.'
  if (exitCode !== null) return `The command exited with code ${exitCode}.`
  if (signal !== null) return `The command was ended by ${signal}.`
  return kept === undefined ? 'How the command ended is unknown.' : 'The command has exited.'
}

function limitOf({ timedOut, idleTimedOut, aborted, report }: Result): string[] {
  if (timedOut) return ['It had reached its time limit.']
  if (idleTimedOut) return ['It had written nothing for longer than its limit.']
  if (aborted) return ['It was aborted.']
  return report.reason === 'end' ? ['It was ended on request.'] : []
}

function restOf({ kept, report }: Result): string[] {
  const { leftovers, leftoverCount, survivors, reason } = report
  const lines: string[] = []
  if (kept !== undefined) lines.push(`${reason === 'yield' ? 'It' : 'What it left'} runs on in the background.`)
  if (leftoverCount > 0) lines.push(`Ended with it: ${processes(leftovers, leftoverCount)}.`)
  if (survivors.length > 0) lines.push(`Could not be ended: ${processes(survivors, survivors.length)}.`)
  return lines
}

/** Names come from the command: they are made safe to print where they are read. */
function processes(list: readonly ProcessInfo[], count: number): string {
  const names = list.slice(0, MOST_NAMES).map(({ name, pid }) => `${name} (pid ${pid})`)
  const more = count - names.length
  if (more > 0) names.push(`${more} more`)
  return names.join(', ')
}

function cutOf({ dropped }: Result): string[] {
  const streams = (['stdout', 'stderr'] as const).filter((stream) => dropped[stream] > 0)
  return streams.map((stream) => `${dropped[stream]} bytes of ${stream} were left out.`)
}

/** The one of the cut is in the output, and its bytes are above. */
function noticesOf(result: Result): string[] {
  return result.notices.filter((notice) => notice !== notices.cut)
}
