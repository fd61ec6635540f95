// How the files of tests are run: scripts/test.mjs runs most of them two at a time, and ALONE one after the other.

/** They measure times or memory, or load the machine as nothing beside them would bear. */
export const ALONE = ['death', 'leak']

/** For `npm run test:quick`: a bit of everything that is promised, in less than a minute. */
export const QUICK = [
  'background',
  'consumer',
  'copies',
  'errors',
  'events',
  'group',
  'guarantees',
  'identity',
  'imports',
  'inspect',
  'messages',
  'neighbour',
  'options',
  'orphans',
  'output',
  'pages',
  'streams',
]

/** What takes longest, first. */
export const SLOWEST = [
  'sandbox',
  'trees',
  'wrong-process',
  'session',
  'guard',
  'another-user',
  'engine',
  'differential',
  'escape',
  'host',
  'survivors',
  'hang',
  'run-command',
  'first-signal',
  'helper',
  'limits',
  'run-terminal',
  'guard-held',
  'starter',
  'environment',
]
