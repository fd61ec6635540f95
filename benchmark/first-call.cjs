// Prints how long the first call takes longer than the second to be started, in milliseconds: what is loaded, and the
// helper that is started.
const { spawn } = require('holdfast')

const start = () => {
  const begin = performance.now()
  const child = spawn('/bin/true')
  const took = performance.now() - begin
  return child.ended.then(() => took)
}
start().then((first) => start().then((second) => console.log(first - second)))
