// The session protocol, as it stands in /work: name and line, and the starter as a process of its own.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { capabilities } from '../../dist/index.js'
import { holdfast, within } from './command-line.mjs'
import { childrenOf, comm, until } from './facts.mjs'
import { fixture, PYTHON } from './fixtures.mjs'

export const VARIABLE = 'LEAN_CTX_SESSION_CONTAINMENT'
export const ACK = '{"leanctx_session_containment":1}\n'
export const HELPER = capabilities().helper.path

/** `__session-starter <args>`, marked. */
export const starter = (args, options) => holdfast(args, { command: [HELPER, '__session-starter'], ...options })

/** The whole of one that ends by itself, or with its stdin. */
export async function starterToEnd(args, options) {
  const started = starter(args, options)
  started.child.stdin?.end()
  const status = await started.closed
  return { ...status, out: started.out(), err: started.err(), mark: started.mark }
}

/** What runs below a starter: { keeper, engine }. */
export async function belowStarter(pid) {
  const keeper = await until(() => childrenOf(pid).find((one) => comm(one) === 'holdfast-helper'), 'a keeper')
  const engine = await until(() => childrenOf(keeper).find((one) => comm(one) !== 'holdfast-helper'), 'an Engine')
  return { keeper, engine }
}

/** Where an Engine that is to write piece by piece asks when: `go()` has it write one, `next()` waits until it has. */
export async function pacemaker(t) {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  let socket
  server.once('connection', (connection) => {
    socket = connection.on('error', () => {})
  })
  t.teardown(() => {
    server.close()
    socket?.destroy()
  })
  const connected = () => until(() => socket, 'the connection of an Engine')
  return {
    port: server.address().port,
    connected,
    go: async () => (await connected()).write('g'),
    async next() {
      await this.go()
      await within(once(socket, 'data'), 'a written piece')
    },
  }
}

/** Runs fixtures/sdk.py through its steps; what it saw. */
export async function sdk(plan, env) {
  const child = spawn(PYTHON, [fixture('sdk.py'), JSON.stringify(plan)], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const chunks = []
  child.stdout.on('data', (chunk) => chunks.push(chunk))
  const [code, signal] = await within(once(child, 'close'), 'the end of sdk.py')
  return { code, signal, seen: JSON.parse(Buffer.concat(chunks).toString()) }
}
