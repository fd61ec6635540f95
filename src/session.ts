/** What `holdfast/session` exports. */
export { containRequestedSession, startSession } from './engine/session'
