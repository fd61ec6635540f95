/** The class of the package's errors; errors.ts makes them. */
import type { HoldfastError as Api, RunResult } from '../../index'

interface Facts {
  code?: string
  errno?: number
  syscall?: string
  path?: string
  spawnargs?: string[]
  step?: NonNullable<Api['step']>
  ran?: boolean | 'unclear'
  result?: RunResult<string | Uint8Array>
  notice?: string
}

const brand = Symbol.for('holdfast.error')

export class HoldfastError extends Error implements Api {
  /** Also true for an error of another copy of holdfast. */
  static is(value: unknown): value is HoldfastError {
    return typeof value === 'object' && value !== null && brand in value
  }
  declare readonly code: string
  declare readonly errno?: number
  declare readonly syscall?: string
  declare readonly path?: string
  declare readonly spawnargs?: string[]
  declare readonly step?: NonNullable<Api['step']>
  declare readonly ran: boolean | 'unclear'
  declare readonly result?: RunResult<string | Uint8Array>
  declare readonly notice?: string

  constructor(message?: string, facts: Facts & ErrorOptions = {}) {
    const { cause, ...rest } = facts
    super(message, cause === undefined ? undefined : { cause })
    Object.assign(this, { code: 'ERR_HOLDFAST', ran: false }, rest)
  }
  get [brand](): true {
    return true
  }
}
Object.defineProperty(HoldfastError.prototype, 'name', { value: 'HoldfastError', configurable: true, writable: true })
