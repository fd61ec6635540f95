import { basename } from 'node:path'
import { ALONE, QUICK, SLOWEST } from './__test__/support/groups.mjs'

const file = (name) => `__test__/${name}.test.mjs`
/** Set by scripts/test.mjs. Without it: all files, one after the other. */
const group = process.env.HOLDFAST_GROUP
const groups = {
  alone: ALONE.map(file),
  beside: ['__test__/*.test.mjs', ...ALONE.map((name) => `!${file(name)}`)],
  quick: QUICK.map(file),
}
const place = (path) => SLOWEST.indexOf(basename(path, '.test.mjs')) >>> 0

export default {
  files: groups[group] ?? ['__test__/*.test.mjs'],
  // The tests start, kill and count real processes: each file in a process of its own, its tests one after the other
  // (support/test.mjs).
  workerThreads: false,
  concurrency: group === undefined || group === 'alone' ? 1 : 2,
  // The longest first, so that none is left over at the end.
  sortTestFiles: (one, other) => place(one) - place(other) || (one < other ? -1 : 1),
  timeout: process.env.HOLDFAST_LONG ? '30m' : '2m',
}
