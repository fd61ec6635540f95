// The shell tool of an agent: one string in, one string out. A `&` in the command does not hold the call, a flood of
// output does not fill the context, an abort ends everything, and nothing is left for the next call to trip over.
import { run } from 'holdfast'

export async function shellTool(command, { signal } = {}) {
  const result = await run('bash', ['-c', command], { timeout: 120_000, maxOutput: 30_000, signal })
  const { leftovers, leftoverCount } = result.report
  return [
    result.stdout + result.stderr,
    result.timedOut ? 'The command did not end within two minutes.' : `exit code: ${result.exitCode ?? result.signal}`,
    ...(leftoverCount > 0 ? [`ended with it: ${leftovers.map(({ name }) => name).join(', ')}`] : []),
    ...result.notices,
  ].join('\n')
}

console.log(await shellTool('sleep 60 & sleep 0.1; echo "the server is up"'))
