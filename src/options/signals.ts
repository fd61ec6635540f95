/** Signals by name and number. */
import { constants } from 'node:os'
import { invalidType, unknownSignal } from '../report/errors'

export const { SIGTERM } = constants.signals

/**
 * A number with several names has the first one, as in node:child_process: SIGABRT and not SIGIOT, SIGIO and not
 * SIGPOLL.
 */
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
