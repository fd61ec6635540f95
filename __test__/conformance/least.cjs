// One call, for a runtime with the least permissions that are documented.
const { run } = require('holdfast')

run('echo', ['works']).then(
  ({ stdout }) => console.log(JSON.stringify({ name: 'one call', ok: stdout === 'works\n' })),
  (error) => console.log(JSON.stringify({ name: 'one call', ok: false, reason: error.message })),
)
