/** ESM over the CommonJS build, as index.mts. */
import session from './session.js'

export const { containRequestedSession, startSession } = session
