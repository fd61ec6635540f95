// Fails to compile when index.d.ts and src/index.ts disagree: same names, and what is built is what is declared.
import type * as api from '../index'
import type * as source from '../src/index'

type Api = typeof api
type Source = typeof source
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never

export const sameNames: Same<keyof Api, keyof Source> = true
export const sourceIsAsDeclared = (built: Source): Api => built
