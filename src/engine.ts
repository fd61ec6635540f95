/**
 * `holdfast/engine`: an Engine that imports it first (or has it by --import) answers the request for containment.
 * Without a request this is all there is to it: nothing more is loaded.
 */
if (process.env.LEAN_CTX_SESSION_CONTAINMENT === '1')
  (require('./engine/request') as typeof import('./engine/request')).answer()

export {}
