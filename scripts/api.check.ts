// Fails to compile when index.d.ts and src/index.ts disagree, or session.d.ts and src/session.ts: same names, and what is
// built is what is declared.
import type * as api from '../index'
import type * as session from '../session'
import type * as source from '../src/index'
import type * as sessionSource from '../src/session'

type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never

export const sameNames: Same<keyof typeof api, keyof typeof source> = true
export const sourceIsAsDeclared = (built: typeof source): typeof api => built

export const sameSessionNames: Same<keyof typeof session, keyof typeof sessionSource> = true
export const sessionIsAsDeclared = (built: typeof sessionSource): typeof session => built
