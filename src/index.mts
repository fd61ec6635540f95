/**
 * ESM over the CommonJS build: one instance, whichever way it is loaded. The default import is
 * module.exports itself, so nothing depends on how a runtime or bundler detects CommonJS names.
 */
import holdfast from './index.js'

export const {
  HoldfastError,
  capabilities,
  describe,
  endAll,
  guard,
  notices,
  probe,
  resetHelper,
  run,
  running,
  spawn,
} = holdfast
