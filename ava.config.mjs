export default {
  files: ['__test__/**/*.test.mjs', '!__test__/fixtures/**'],
  // The tests start, kill and count real processes: one file at a time, each in a process of its own.
  workerThreads: false,
  concurrency: 1,
  serial: true,
  timeout: process.env.HOLDFAST_LONG ? '30m' : '2m',
}
