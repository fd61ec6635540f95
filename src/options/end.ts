/** The options of end(), for calls and guards. */
import { END, optionsOf, type Values } from './names'
import { signalOption } from './signals'
import { integer } from './values'

/** Stands for the call's own signal or grace, in calls of the addon. */
export const OWN = -1

/** What starts a ladder, in numbers. */
export interface Ladder {
  readonly signal: number
  /** Milliseconds. */
  readonly grace: number
}

/** @throws TypeError or RangeError for wrong options */
export function ladderOf(options: unknown): Ladder {
  return ladderOfValues(optionsOf(options, END))
}

export function ladderOfValues({ signal, grace }: Values): Ladder {
  return { signal: signalOption('signal', signal) ?? OWN, grace: integer('grace', grace, OWN) }
}
