/** NODE_DEBUG=holdfast: to stderr, what no result says at the time. */
import { debuglog } from 'node:util'

export const debug = debuglog('holdfast')
