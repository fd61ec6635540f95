// Signals from a thread of its own, so that they arrive in the middle of what this thread does.
import { Worker } from 'node:worker_threads'
import { until } from './facts.mjs'

const [STATE, SIGNAL, DELAY, COUNT, PIDS] = [0, 1, 2, 3, 4]
const [IDLE, ARMED, STOP] = [0, 1, 2]

const BODY = `
  const { workerData: words } = require('node:worker_threads')
  for (;;) {
    Atomics.wait(words, ${STATE}, ${IDLE})
    if (Atomics.load(words, ${STATE}) === ${STOP}) break
    const until = process.hrtime.bigint() + BigInt(words[${DELAY}]) * 1000n
    while (process.hrtime.bigint() < until);
    for (let index = 0; index < words[${COUNT}]; index++) {
      try {
        process.kill(words[${PIDS} + index], words[${SIGNAL}])
      } catch {}
    }
    Atomics.store(words, ${STATE}, ${IDLE})
  }
`

export function startKiller() {
  const words = new Int32Array(new SharedArrayBuffer(4 * 64))
  const worker = new Worker(BODY, { eval: true, workerData: words })
  const set = (state) => {
    Atomics.store(words, STATE, state)
    Atomics.notify(words, STATE)
  }
  return {
    /** Sends `signal` to these, which are known to live, in `delay` microseconds. */
    arm(pids, signal, delay) {
      words[SIGNAL] = signal
      words[DELAY] = delay
      words[COUNT] = pids.length
      words.set(pids, PIDS)
      set(ARMED)
    },
    fired: () => until(() => Atomics.load(words, STATE) === IDLE, 'the signals'),
    async stop() {
      set(STOP)
      await worker.terminate()
    },
  }
}
