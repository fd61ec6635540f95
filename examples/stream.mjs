// Output as it comes: spawn() gives what node:child_process gives, and an end that can be awaited.
import { createInterface } from 'node:readline'
import { spawn } from 'holdfast'

const child = spawn('sh', ['-c', 'sleep 60 & for i in 1 2 3; do echo "line $i"; sleep 0.1; done; exit 3'])
child.stdin.end()
for await (const line of createInterface({ input: child.stdout })) console.log(`got ${line}`)

const report = await child.ended
console.log(`exit code ${child.exitCode}; ended with it: ${report.leftovers.map(({ name }) => name).join(', ')}`)
