/** See engine.d.ts. */
export {}
