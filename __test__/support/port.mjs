// Whether a TCP port can be had.
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Binds it and lets it go; throws EADDRINUSE where somebody listens on it. */
export async function bind(port) {
  const server = createServer()
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  server.close()
  await once(server, 'close')
}
