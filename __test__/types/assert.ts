/** Compiles only when the two types are the same. Nothing in this folder is ever run: tsc --noEmit is the test. */
export type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
export function holds<_Condition extends true>(): void {}
