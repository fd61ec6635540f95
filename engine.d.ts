/**
 * `holdfast/engine`: the Engine's side of the session protocol. To be the first import of an Engine, or given to Node.js
 * by `--import holdfast/engine` or `--require holdfast/engine`.
 *
 * Where the environment has LEAN_CTX_SESSION_CONTAINMENT=1, the process becomes the starter of its own command line,
 * which writes the acknowledgement {"leanctx_session_containment":1} and a newline to stdout, and starts this program once
 * more, without the variable. Where that cannot be (a worker thread, a program that came by stdin, no /proc, a changed
 * process.title, no helper for this machine), the variable is removed, nothing is written, and the program runs on;
 * NODE_DEBUG=holdfast says why. Without the variable it does nothing, and loads nothing.
 *
 * What the program did before the import it does a second time. Messages that came over an IPC channel before are gone:
 * as an import, and with --import, Node.js begins to read them earlier. With require and --require none is lost.
 */
export {}
