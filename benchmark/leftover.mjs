// What a command leaves: `sh -c 'sleep 600 &'` from its start to its proven end, and the same shell that leaves nothing.
import holdfast from '../dist/index.js'
import { inTurns, report } from './common.mjs'

const AT_ONCE = { backgroundSettle: 0, backgroundGrace: 0 }
const all = {
  nothing: ['exit 0', {}],
  sleeper: ['sleep 600 & exit 0', {}],
  'killed at once': ['sleep 600 & exit 0', AT_ONCE],
}
const { took } = await inTurns(Object.keys(all), 30, async (name) => {
  const [script, options] = all[name]
  const begin = performance.now()
  const { outcome } = await holdfast.spawn('sh', ['-c', script], { stdio: 'ignore', ...options }).ended
  if (outcome !== 'ended') throw new Error(`${name}: ${outcome}`)
  return { took: performance.now() - begin }
})
const row = (measure, name) => ({ measure, unit: 'ms', cells: { holdfast: took[name] } })
await report([
  row('start to proven end of a shell that leaves nothing', 'nothing'),
  row('the same, it leaves a sleeper', 'sleeper'),
  row('the same, backgroundSettle 0 and backgroundGrace 0', 'killed at once'),
])
