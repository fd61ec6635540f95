console.error('The demonstration is not written yet.')
process.exitCode = 1
