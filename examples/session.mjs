// An SDK that starts its Engine as a session: the Engine gets the SDK's lines and answers them, and whatever it started is
// gone when the session ends, or when this program dies by any means. Here `cat` plays the Engine.
import { createInterface } from 'node:readline'
import { startSession } from 'holdfast/session'

const session = await startSession('sh', ['-c', 'setsid sleep 60 & exec cat'], { grace: 500 })
session.stdin.write('are you there?\n')
for await (const line of createInterface({ input: session.stdout })) {
  console.log(`the Engine says: ${line}`)
  void session.end()
}

const { signal } = await session.exited
const report = await session.ended
console.log(
  `contained: ${session.contained}; ended by ${signal}; the end: ${report.outcome}, proven by ${report.mechanism}`,
)
