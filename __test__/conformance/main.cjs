// Runs calls.cjs in the runtime that runs this file, and prints one line of JSON for each: name, ok, why it was skipped or failed, and how long it
// took in milliseconds. CONFORMANCE_AGAIN: how a script is run in this runtime, as a JSON array. CONFORMANCE_ONLY: a part
// of a name.
const { mkdtempSync, realpathSync, rmSync, writeSync } = require('node:fs')
const { join } = require('node:path')
const { Worker } = require('node:worker_threads')
const { performance } = require('node:perf_hooks')

const LIMIT = 30_000
const again = JSON.parse(process.env.CONFORMANCE_AGAIN || JSON.stringify([process.execPath]))
const only = process.env.CONFORMANCE_ONLY || ''

/** In this folder, where it finds the package. */
function worker(code) {
  const thread = new Worker(code, { eval: true })
  const message = new Promise((resolve, reject) => {
    thread.once('message', resolve)
    thread.once('error', reject)
  })
  return { message, terminate: () => thread.terminate() }
}

async function main() {
  const cases = require('./calls.cjs')
  const holdfast = require('holdfast')
  const session = require('holdfast/session')
  for (const [name, test] of Object.entries(cases).filter(([one]) => one.includes(only))) {
    // Beside this file, so that a script in it finds the package.
    const folder = realpathSync(mkdtempSync(join(__dirname, 'case-')))
    const begin = performance.now()
    let timer
    try {
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not done within ${LIMIT} ms`)), LIMIT)
      })
      const skipped = await Promise.race([test({ holdfast, session, again, folder, worker }), late])
      tell({ name, ok: true, skipped, time: performance.now() - begin })
    } catch (error) {
      tell({ name, ok: false, reason: String(error?.stack ?? error).slice(0, 600), time: performance.now() - begin })
    }
    clearTimeout(timer)
    rmSync(folder, { recursive: true, force: true })
  }
}

function tell(line) {
  writeSync(1, `${JSON.stringify(line)}\n`)
}

main().then(
  () => process.exit(0),
  (error) => {
    tell({ name: 'the package loads', ok: false, reason: String(error?.stack ?? error).slice(0, 600), time: 0 })
    process.exit(1)
  },
)
