/** From the option `stdio` to what the addon takes: a number for each place. */
import { Place } from '../native/addon'
import { invalidPlace, invalidValue, notSupported, outOfRange } from '../report/errors'
import { descriptorOf, isStream } from './given'

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
