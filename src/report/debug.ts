/** NODE_DEBUG=holdfast: prints to stderr what no result reports at the time. */
import { debuglog } from 'node:util'

export const debug = debuglog('holdfast')
