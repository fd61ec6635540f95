/** ESM over the CommonJS build. */
import './engine.js'
