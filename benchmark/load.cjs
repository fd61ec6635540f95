// How long it takes to load a module, first thing in a new process.
const begin = performance.now()
require(process.argv[2])
console.log(performance.now() - begin)
