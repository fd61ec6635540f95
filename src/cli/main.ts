/** The command line. `run` leaves nothing of Node behind: this process becomes the helper. */
import { writeSync } from 'node:fs'
import { becomeHelper } from '../native/become'
import { capabilities, probe } from '../native/capabilities'
import { version } from '../native/version'
import * as messages from '../report/messages'

/** holdfast itself failed: no status of a command's. */
const FAILED = 125

async function main([word, ...rest]: string[]): Promise<number> {
  switch (word) {
    case 'run':
      return becomeHelper('__run', rest)
    case 'doctor':
      return doctor()
    case '--version':
      return print(version)
    case '--help':
      return print(messages.usage.trimEnd())
  }
  writeSync(2, word === undefined ? messages.usage : messages.cliUnknown(word))
  return FAILED
}

async function doctor(): Promise<number> {
  const result = { capabilities: capabilities(), probe: await probe() }
  print(JSON.stringify(result, undefined, 2))
  return result.probe.helper.problem === undefined ? 0 : FAILED
}

function print(text: string): number {
  writeSync(1, `${text}\n`)
  return 0
}

main(process.argv.slice(2)).then(
  (status) => {
    process.exitCode = status
  },
  (error: Error) => {
    writeSync(2, messages.cliFailed(error.message))
    process.exitCode = FAILED
  },
)
