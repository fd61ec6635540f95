/** Checks of single options. They throw what node:child_process throws. */
import { invalidType, invalidValue, outOfRange } from '../report/errors'
import { nullByte } from '../report/messages'

/** The longest time that a Node timer takes, and the addon. */
const LONGEST = 2 ** 31 - 1

// The defaults in milliseconds; crates/core/src/ends/ladder.rs has the same for the command line.
export const GRACE = 2000
export const BACKGROUND_GRACE = 500
export const BACKGROUND_SETTLE = 100

export function text(name: string, value: unknown): string {
  if (typeof value !== 'string') throw invalidType(name, 'of type string', value)
  if (value.includes('\0')) throw invalidValue(name, nullByte(value), value)
  return value
}

/** `null` counts as not given, as in node:child_process. */
export function flag(name: string, value: unknown): boolean {
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalidType(`options.${name}`, 'of type boolean', value)
  return value
}

/** `otherwise`: of an option that is not given. */
export function integer<T extends number | undefined>(name: string, value: unknown, otherwise: T): number | T {
  if (value === undefined || value === null) return otherwise
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
