/**
 * `holdfast/engine`: an Engine that imports it first (or has it by --import) answers the request for containment.
 * Without a request this is all there is to it: nothing more is loaded.
 */
if (process.env.LEAN_CTX_SESSION_CONTAINMENT === '1') (require('./request') as typeof import('./request')).answer()

export {}
