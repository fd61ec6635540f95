// What is shipped stops nowhere: the points at which tests stop a process (cargo feature `stops`) are not in it. Shown
// against a build that has them.
import { readdirSync, readFileSync } from 'node:fs'

const VARIABLE = 'HOLDFAST_STOP'
const holds = (path) => readFileSync(path).includes(VARIABLE)

const shipped = readdirSync('npm').flatMap((folder) =>
  readdirSync(`npm/${folder}`)
    .filter((name) => name.startsWith('holdfast'))
    .map((name) => `npm/${folder}/${name}`),
)
const problems = shipped.filter(holds).map((path) => `${path} holds ${VARIABLE}`)
if (shipped.length < 2) problems.push(`addon and helper are not there: ${shipped}`)
if (!holds('target/stops/debug/holdfast-helper')) problems.push(`a build with stops does not hold ${VARIABLE}`)

for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exitCode = 1
else console.log(`no ${VARIABLE} in ${shipped.join(', ')}`)
