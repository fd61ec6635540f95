// Where spawn() is meant to differ from child_process.spawn(): what a scenario of scenarios.mjs observes of
// child_process, what of holdfast, and why. All other scenarios observe the same of both.
const KEEPER = 'The command is started by its keeper, which the host does not wait for.'
const EMITS = 'What the system refuses always arrives as `error`, so that a program has one place to handle it.'
const PURPOSE = 'What holdfast is for.'
const NOT_YET = 'Not yet: refused by name.'
const DEATH = 'The promise: what a call starts ends with its host, by whatever means that ends.'
const UNREF =
  'It covers the call and its streams, since the child ends with its host. There each open pipe keeps the host, until it is unref()ed as well.'

export const DIFFERENCES = {
  // ---- events
  '`spawn`, seen from the call': ['the same turn', 'a later turn', KEEPER],
  '`error`, seen from the call': ['the same turn', 'a later turn', KEEPER],
  '`close`, seen from `exit`, without pipes': [
    'the same turn',
    'a later turn',
    'Every event comes in a turn of its own, so that a listener that is added after `await` is in time.',
  ],
  'a `close` listener after `await once(child, "exit")`, without pipes': ['missed', 'heard', 'As above.'],
  '`close`, where a background process holds the pipe': ['waits for its end', 'comes at once', PURPOSE],

  // ---- the object
  'the name of its class': [
    'ChildProcess',
    'ContainedProcess',
    'It is a class of its own, with more members, and derives from ChildProcess.',
  ],
  '`send`, `disconnect` and `channel` without ipc': [
    ['undefined', 'undefined', 'undefined'],
    ['function', 'function', 'undefined'],
    "They throw ERR_HOLDFAST_NOT_SUPPORTED: 'ipc' is not yet supported.",
  ],
  '`Symbol.asyncDispose`': ['undefined', 'function', '`await using` ends the call, and waits until it has ended.'],

  // ---- signals
  'the status of a program that a real-time signal has ended': [
    [0, null],
    [null, 'SIG40'],
    'An exit code of 0 would say that the command has succeeded. Node.js has no names for these signals.',
  ],
  'a timeout of a program that ignores SIGTERM': [
    'runs on',
    'is ended',
    '`killSignal` is followed by SIGKILL when `grace` is over.',
  ],

  // ---- abort
  'the events of an abort': [
    ['error', 'exit', 'close'],
    ['exit', 'close'],
    'The host has asked for the end, and gets it; `report.reason` says `abort`. It is no error.',
  ],
  'the events where the signal was aborted beforehand': [
    ['spawn', 'error', 'exit', 'close'],
    ['error'],
    'Nothing is started.',
  ],

  // ---- stdio
  'what kind of descriptor `pipe` is, in places 0 to 2 and 3': [
    ['socket', 'socket', 'socket'],
    ['pipe', 'pipe', 'socket'],
    'A socket cannot be opened by `/dev/stdin` and `/dev/stdout`; a pipe can. Further places are read and written.',
  ],
  '`echo x > /dev/stdout`, `cat /dev/stdin`': ['refused', 'in x', 'As above.'],
  'a closed descriptor': ['throws Error EBADF', 'emits EBADF', EMITS],
  'values of `stdio` that are invalid: a word, a word in its place, a number, -1, an object': [
    [
      'throws TypeError ERR_INVALID_ARG_VALUE',
      'throws TypeError ERR_INVALID_SYNC_FORK_INPUT',
      'throws TypeError ERR_INVALID_ARG_VALUE',
      'starts',
      'throws TypeError ERR_INVALID_ARG_VALUE',
    ],
    Array(5).fill('throws TypeError ERR_INVALID_ARG_VALUE'),
    'One code for all of them; -1 is no descriptor.',
  ],
  '`ipc`': ['starts', 'throws HoldfastError ERR_HOLDFAST_NOT_SUPPORTED', NOT_YET],
  '`stdout` in the third place': [
    'throws TypeError ERR_INVALID_SYNC_FORK_INPUT',
    'starts',
    'stdout and stderr in one pipe, so that the order of writes is kept.',
  ],
  'the class of the streams': [
    [true, true],
    [false, false],
    'They are streams over pipes: Readable and Writable, without the members of a socket.',
  ],

  // ---- options
  'a `cwd` that is a file': ['throws Error ENOTDIR', 'emits ENOTDIR', EMITS],
  '`path` in the error of a `cwd` that does not exist': ['true', 'the directory', 'It names what was missing.'],
  'an option of `exec` (`maxBuffer`)': [
    'starts',
    'throws TypeError ERR_HOLDFAST_UNKNOWN_OPTION',
    'An option that has no effect is a fault that is not seen.',
  ],
  'a misspelt option': ['starts', 'throws TypeError ERR_HOLDFAST_UNKNOWN_OPTION', 'As above.'],
  '`env`: "A=1"': [
    ['starts'],
    ['throws TypeError ERR_INVALID_ARG_TYPE'],
    'Text is not a set of variables: its characters would become some.',
  ],
  '`uid`: "root", 1.5': [
    Array(2).fill('throws TypeError ERR_INVALID_ARG_TYPE'),
    ['throws TypeError ERR_INVALID_ARG_TYPE', 'throws RangeError ERR_OUT_OF_RANGE'],
    'Its type is right, its value is not.',
  ],
  '`timeout`: -1, 1.5, "soon", NaN': [
    Array(4).fill('throws RangeError ERR_OUT_OF_RANGE'),
    [
      'throws RangeError ERR_OUT_OF_RANGE',
      'throws RangeError ERR_OUT_OF_RANGE',
      'throws TypeError ERR_INVALID_ARG_TYPE',
      'throws RangeError ERR_OUT_OF_RANGE',
    ],
    'What has another type is told by another code.',
  ],

  // ---- refused starts
  'an argument of 200 KiB': ['throws Error E2BIG', 'emits E2BIG', EMITS],
  'the message of the error of a missing program': [
    'spawn /missing ENOENT',
    "spawn /missing ENOENT: the program '/missing' does not exist",
    'It also says what is wrong, with what.',
  ],
  'the class of the error of a missing program': [
    [true, 'Error'],
    [true, 'HoldfastError'],
    'It has more fields: which step failed, and whether anything ran.',
  ],

  // ---- the command
  'the parent of the command': [
    'the host',
    'another process',
    'Its parent is its keeper, which gets what the command orphans.',
  ],
  'the signal that the command gets when its parent dies': [
    '0\n',
    '9\n',
    'The first process ends with its keeper, even if the spawn helper is killed at the same time.',
  ],
  'a background process after `close`': ['lives on', 'is ended', PURPOSE],
  'a background process in a session of its own, after `close`': ['lives on', 'is ended', PURPOSE],
  'a child of a program that was ended by `kill()`': ['lives on', 'is ended', PURPOSE],
  'the child after `process.exit()` of the host': ['lives on', 'is ended', DEATH],
  'the child after SIGKILL of the host': ['lives on', 'is ended', DEATH],
  'the child after `unref()`, when the host has ended by itself': ['lives on', 'is ended', DEATH],

  // ---- the event loop
  'a host whose child runs, after `unref()`, with pipes': [['ends after it'], ['ends before it'], UNREF],
  'a host whose child runs, after `unref()`, with pipes that are read': [
    ['ends after it'],
    ['ends before it'],
    'As above.',
  ],
}
