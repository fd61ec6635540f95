// A command with a deadline. Whatever it started goes with it, also what has left for a session of its own.
import { run } from 'holdfast'

const result = await run('sh', ['-c', 'echo started; setsid sleep 60 & sleep 60'], { timeout: 500, grace: 200 })

console.log(`output:    ${result.stdout.trim()}`)
console.log(`timed out: ${result.timedOut}`)
console.log(`the end:   ${result.report.outcome}, proven by ${result.report.mechanism}`)
