// Chance that can be repeated.

/** `random(limit)`: a whole number from 0 to limit - 1. The same seed gives the same row of them. */
export function randomOf(seed) {
  let state = seed | 0
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 0x100000000) * limit)
  }
}
