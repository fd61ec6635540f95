// Scenarios that run through spawn() and through child_process.spawn(), and what is to be seen in each. A scenario is given
// { spawn, host, dispose }: host(body) runs a program with that spawn() to its end, dispose(pid) ends what was left.
import { ChildProcess, spawnSync } from 'node:child_process'
import { EventEmitter } from 'node:events'
import {
  closeSync,
  createReadStream,
  createWriteStream,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { connect, createServer, Socket } from 'node:net'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough, Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setImmediate as turn } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { within } from './command-line.mjs'
import { isAlive, newWord, stat, until } from './facts.mjs'
import { PYTHON } from './fixtures.mjs'
import { ended, events, next, output, refusal, status, turnsBetween } from './observe.mjs'

export const folder = mkdtempSync(join(tmpdir(), 'holdfast-differences-'))
process.once('exit', () => rmSync(folder, { recursive: true, force: true }))

const PLAIN = 'plain.txt'
writeFileSync(join(folder, PLAIN), 'no program\n', { mode: 0o644 })
const SCRIPT = 'no-shebang'
writeFileSync(join(folder, SCRIPT), 'echo ran\n', { mode: 0o755 })

const MISSING = join(folder, 'missing')
const FINITE = Object.keys(constants.signals).filter(
  (name) => !['SIGSTOP', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU', 'SIGCONT', 'SIGCHLD', 'SIGURG', 'SIGWINCH'].includes(name),
)

/** A child that is there until it is ended. */
const stays = (spawn, options) => spawn('cat', [], { stdio: ['pipe', 'ignore', 'ignore'], ...options })
const leave = async (child) => {
  child.stdin.end()
  await within(next(child, 'close'), 'close')
}
/** Prints what a field of a JavaScript value is, and exits. */
const sh = (script) => ['-c', script]
const ignored = { stdio: 'ignore' }

/** { area: { what is observed: scenario } } */
export const SCENARIOS = {
  'Events and turns of the loop': {
    'the events of `echo`': async ({ spawn }) => {
      const seen = await events(spawn('echo', ['x']), 'close', ['spawn', 'data', 'exit', 'close'])
      // `exit` may come before the last data, or behind it.
      return [seen[0], seen.filter((event) => !['data', 'exit'].includes(event)).at(-1), seen.length]
    },
    'the events of a program that does not exist': ({ spawn }) => events(spawn(MISSING)),
    'the events of a program that is killed': async ({ spawn }) => {
      const child = stays(spawn)
      child.kill()
      return events(child)
    },
    '`spawn`, seen from the call': ({ spawn }) => turnsBetween(spawn('true', [], ignored), undefined, 'spawn'),
    '`error`, seen from the call': ({ spawn }) => turnsBetween(spawn(MISSING, [], ignored), undefined, 'error'),
    '`exit`, seen from `spawn`': ({ spawn }) => turnsBetween(spawn('true', [], ignored), 'spawn', 'exit'),
    '`close`, seen from `exit`, without pipes': ({ spawn }) =>
      turnsBetween(spawn('true', [], ignored), 'exit', 'close'),
    'a `spawn` listener that is added after `await`': async ({ spawn }) => {
      const child = spawn('true', [], ignored)
      await null
      return (await events(child)).includes('spawn')
    },
    'stdout after `await once(child, "spawn")`': async ({ spawn }) => {
      const child = spawn('echo', ['important'])
      await next(child, 'spawn')
      return text(child.stdout)
    },
    'a `data` listener after `await once(child, "spawn")`': ({ spawn }) => lateData(spawn, async () => {}),
    'a `data` listener 20 microtasks after that': ({ spawn }) =>
      lateData(spawn, async () => {
        for (let task = 0; task < 20; task++) await null
      }),
    'an `exit` listener after `await once(child, "spawn")`': async ({ spawn }) => {
      const child = spawn('true', [], ignored)
      await next(child, 'spawn')
      return within(next(child, 'exit'), 'exit')
    },
    'a `close` listener that is added in `exit`': ({ spawn }) =>
      within(
        new Promise((resolve) => {
          const child = spawn('true', [], ignored)
          child.once('exit', () => child.once('close', (...args) => resolve(args)))
        }),
        'close',
      ),
    'a `close` listener after `await once(child, "exit")`, without pipes': async ({ spawn }) => {
      const child = spawn('true', [], ignored)
      await next(child, 'exit')
      return Promise.race([next(child, 'close').then(() => 'heard'), patience().then(() => 'missed')])
    },
    'the arguments of `exit` and `close`, by a code': async ({ spawn }) => {
      const child = spawn('sh', sh('exit 3'), ignored)
      return Promise.all([next(child, 'exit'), next(child, 'close')])
    },
    'the arguments of `exit` and `close`, by a signal': async ({ spawn }) => {
      const child = spawn('sh', sh('kill -USR1 $$'), ignored)
      return Promise.all([next(child, 'exit'), next(child, 'close')])
    },
    'the arguments of `close` where the program does not exist': ({ spawn }) => status(spawn(MISSING)),
    '`exitCode` in a listener of `exit`': async ({ spawn }) => {
      const child = spawn('sh', sh('exit 3'), ignored)
      return new Promise((resolve) => child.once('exit', () => resolve(child.exitCode)))
    },
    '`end` of stdout and then `close`': async ({ spawn }) =>
      await events(spawn('echo'), 'close', ['data', 'end', 'close']),
    'stdin in a listener of `exit`': async ({ spawn }) => {
      const child = spawn('true')
      child.stdin.write('x')
      child.stdin.on('error', () => {})
      return new Promise((resolve) => child.once('exit', () => resolve(child.stdin.destroyed)))
    },
    'an `error` that nobody listens for': async ({ host }) =>
      (await host(`spawn(${JSON.stringify(MISSING)}, [], { stdio: 'ignore' })`)).status,
    '`close`, where a stream is paused and full of data': async ({ spawn }) => {
      const child = spawn('echo', ['x'])
      child.stdout.on('data', () => {})
      child.stdout.pause()
      const closed = next(child, 'close').then(() => 'comes')
      const seen = await Promise.race([
        closed,
        next(child, 'exit')
          .then(() => patience())
          .then(() => 'waits'),
      ])
      child.stdout.resume()
      await closed
      return seen
    },
    '`close`, where a background process holds the pipe': async ({ spawn }) => {
      const child = spawn('sh', sh('sleep 2 & echo x'))
      const closed = next(child, 'close')
      await next(child, 'exit')
      const seen = await Promise.race([
        closed.then(() => 'comes at once'),
        patience(1000).then(() => 'waits for its end'),
      ])
      await closed
      return seen
    },
  },

  'The child as an object': {
    '`instanceof` ChildProcess and EventEmitter': async ({ spawn }) => {
      const child = spawn('true', [], ignored)
      await next(child, 'close')
      return [child instanceof ChildProcess, child instanceof EventEmitter]
    },
    'the name of its class': ({ spawn }) => ofDone(spawn, (child) => child.constructor.name),
    'the members of a ChildProcess': ({ spawn }) =>
      ofDone(spawn, (child) =>
        ['stdin', 'stdout', 'stderr', 'stdio', 'pid', 'kill', 'ref', 'unref', 'exitCode', 'signalCode', 'killed']
          .concat(['connected', 'spawnfile', 'spawnargs'])
          .filter((name) => !(name in child)),
      ),
    '`send`, `disconnect` and `channel` without ipc': ({ spawn }) =>
      ofDone(spawn, (child) => [typeof child.send, typeof child.disconnect, typeof child.channel]),
    '`connected`': ({ spawn }) => ofDone(spawn, (child) => child.connected),
    '`pid` right after the call': async ({ spawn }) => {
      const child = spawn('true', [], ignored)
      const { pid } = child
      await next(child, 'close')
      return [typeof pid, pid > 1, child.pid === pid]
    },
    '`pid` after the `error` of a missing program': async ({ spawn }) => {
      const child = spawn(MISSING, [], ignored)
      await next(child, 'error')
      return typeof child.pid
    },
    '`exitCode`, `signalCode` and `killed` while it runs': async ({ spawn }) => {
      const child = stays(spawn)
      const seen = stateOf(child)
      await leave(child)
      return seen
    },
    '`exitCode`, `signalCode` and `killed` after exit code 3': ({ spawn }) =>
      stateAfter(spawn('sh', sh('exit 3'), ignored)),
    '`exitCode`, `signalCode` and `killed` after `kill()`': ({ spawn }) => {
      const child = stays(spawn)
      child.kill()
      return stateAfter(child)
    },
    '`exitCode`, `signalCode` and `killed` after a signal from elsewhere': ({ spawn }) =>
      stateAfter(spawn('sh', sh('kill -9 $$'), ignored)),
    '`exitCode`, `signalCode` and `killed` of a missing program': ({ spawn }) =>
      stateAfter(spawn(MISSING, [], ignored)),
    '`exitCode`, `signalCode` and `killed` after an abort': async ({ spawn }) => {
      const abort = new AbortController()
      const child = stays(spawn, { signal: abort.signal })
      await next(child, 'spawn')
      const state = stateAfter(child)
      abort.abort()
      return state
    },
    '`exitCode`, `signalCode` and `killed` after a timeout': ({ spawn }) => stateAfter(stays(spawn, { timeout: 50 })),
    '`spawnfile` and `spawnargs`': ({ spawn }) =>
      ofDone(spawn, (child) => [child.spawnfile, child.spawnargs], ['true', ['a', 'b']]),
    '`spawnfile` and `spawnargs` with `argv0`': ({ spawn }) =>
      ofDone(spawn, (child) => [child.spawnfile, child.spawnargs], ['true', ['a'], { argv0: 'other' }]),
    '`spawnfile` and `spawnargs` with `shell: true`': ({ spawn }) =>
      ofDone(spawn, (child) => [child.spawnfile, child.spawnargs], ['exit 0', { shell: true }]),
    '`spawnfile` and `spawnargs` with a shell by name': ({ spawn }) =>
      ofDone(spawn, (child) => [child.spawnfile, child.spawnargs], ['exit 0', { shell: '/bin/bash' }]),
    'the places of `stdio`': ({ spawn }) =>
      ofDone(spawn, ({ stdio, stdin, stdout, stderr }) => [
        stdio.length,
        stdio[0] === stdin && stdio[1] === stdout && stdio[2] === stderr,
      ]),
    'ends at the end of a `using` block (`Symbol.dispose`)': async ({ spawn }) => {
      const child = stays(spawn)
      child[Symbol.dispose]()
      return [await status(child), child.killed]
    },
    '`Symbol.asyncDispose`': ({ spawn }) => ofDone(spawn, (child) => typeof child[Symbol.asyncDispose]),
  },

  'Signals and kill()': {
    'what `kill()` returns: alive, exited, never started': async ({ spawn }) => {
      const child = stays(spawn)
      const alive = child.kill()
      await next(child, 'close')
      const missing = spawn(MISSING, [], ignored)
      await next(missing, 'error')
      return [alive, child.kill(), missing.kill()]
    },
    'what `kill(0)` returns: alive, exited; `killed` after the first': async ({ spawn }) => {
      const child = stays(spawn)
      const alive = child.kill(0)
      const { killed } = child
      await leave(child)
      return [alive, killed, child.kill(0)]
    },
    '`killed` after `kill()` of one that has exited': async ({ spawn }) => {
      const child = spawn('true', [], ignored)
      await next(child, 'close')
      child.kill()
      return child.killed
    },
    '`kill()` by a name, by a name in lower case, by a number': async ({ spawn }) => {
      const seen = []
      for (const signal of ['SIGUSR1', 'sigusr1', constants.signals.SIGUSR1]) {
        const child = stays(spawn)
        await next(child, 'spawn')
        child.kill(signal)
        seen.push((await status(child))[1])
      }
      return seen
    },
    '`kill()` with an invalid signal': async ({ spawn }) => {
      const child = stays(spawn)
      const seen = ['SIGFOO', 'TERM', 999, -1, 1.5, Number.NaN, null, {}, true].map((value) =>
        thrown(() => child.kill(value)),
      )
      await leave(child)
      return seen
    },
    '`kill("SIGSTOP")`, and `kill("SIGCONT")`': async ({ spawn }) => {
      const child = stays(spawn)
      await next(child, 'spawn')
      const { pid } = child
      child.kill('SIGSTOP')
      await until(() => stat(pid).state === 'T', 'a stop')
      child.kill('SIGCONT')
      await until(() => stat(pid).state !== 'T', 'a stop that is over')
      child.kill()
      return status(child)
    },
    'the name in `signalCode`, of every signal that ends a process': async ({ spawn }) => {
      const names = await Promise.all(
        FINITE.map(async (name) => {
          const child = stays(spawn)
          await next(child, 'spawn')
          child.kill(name)
          return (await status(child))[1]
        }),
      )
      return names
    },
    'the status of a program that a real-time signal has ended': ({ spawn }) =>
      status(spawn('sh', sh('kill -40 $$'), ignored)),
    '`killSignal` of a timeout': ({ spawn }) => status(stays(spawn, { timeout: 50, killSignal: 'SIGUSR2' })),
    '`killSignal` of an abort': async ({ spawn }) => {
      const abort = new AbortController()
      const child = stays(spawn, { signal: abort.signal, killSignal: 'SIGUSR2' })
      await next(child, 'spawn')
      const seen = status(child)
      abort.abort()
      return seen
    },
    'a timeout of a program that ignores SIGTERM': async ({ spawn }) => {
      const child = spawn('sh', sh('trap "" TERM; echo up; read line; echo "$line"'), { timeout: 200, grace: 50 })
      const out = text(child.stdout)
      await next(child, 'spawn')
      const result = status(child)
      const seen = await Promise.race([result.then(() => 'is ended'), patience(1500).then(() => 'runs on')])
      child.stdin.end('x\n')
      await Promise.all([result, out])
      return seen
    },
    '`process.kill(-child.pid, 0)`': async ({ spawn }) => {
      const child = stays(spawn)
      await next(child, 'spawn')
      const seen = thrown(() => process.kill(-child.pid, 0))
      await leave(child)
      return seen
    },
    '`process.kill(-child.pid, 0)` with `detached: true`': async ({ spawn }) => {
      const child = stays(spawn, { detached: true })
      await next(child, 'spawn')
      const seen = thrown(() => process.kill(-child.pid, 0))
      await leave(child)
      return seen
    },
  },

  Abort: {
    'the events of an abort': async ({ spawn }) => {
      const abort = new AbortController()
      const child = stays(spawn, { signal: abort.signal })
      await next(child, 'spawn')
      const seen = events(child)
      abort.abort()
      return seen
    },
    'the events where the signal was aborted beforehand': async ({ spawn }) => {
      const child = stays(spawn, { signal: AbortSignal.abort() })
      const seen = []
      for (const event of ['spawn', 'error', 'exit', 'close']) child.on(event, () => seen.push(event))
      await Promise.race([within(next(child, 'close'), 'close'), patience()])
      return seen
    },
    'the error where the signal was aborted beforehand': async ({ spawn }) => {
      const reason = new Error('for a reason')
      const child = stays(spawn, { signal: AbortSignal.abort(reason) })
      const [error] = await next(child, 'error')
      return [error.name, error.code, error.cause === reason]
    },
    'listeners on the signal after `close`': async ({ spawn }) => {
      const added = []
      const { signal } = new AbortController()
      const { addEventListener, removeEventListener } = signal
      signal.addEventListener = (...args) => added.push(args[1]) && addEventListener.apply(signal, args)
      signal.removeEventListener = (...args) => added.pop() && removeEventListener.apply(signal, args)
      await next(spawn('true', [], { stdio: 'ignore', signal }), 'close')
      return added.length
    },
    'an abort after the exit': async ({ spawn }) => {
      const abort = new AbortController()
      const child = spawn('true', [], { stdio: 'ignore', signal: abort.signal })
      let errors = 0
      child.on('error', () => errors++)
      await next(child, 'close')
      abort.abort()
      await turn()
      return errors
    },
  },

  'Places of stdio': {
    'the streams of `pipe`, `ignore`, `inherit`': async ({ spawn }) => {
      const seen = []
      for (const stdio of [
        'pipe',
        'ignore',
        'inherit',
        ['pipe', 'ignore', 'inherit'],
        [],
        null,
        undefined,
        'overlapped',
      ]) {
        const child = spawn('true', [], { stdio })
        seen.push([child.stdin, child.stdout, child.stderr].map((stream) => (stream === null ? '-' : 'p')).join(''))
        await next(child, 'close')
      }
      return seen
    },
    'the directions of the streams': ({ spawn }) =>
      ofDone(
        spawn,
        ({ stdin, stdout, stderr }) => [
          typeof stdin.write === 'function',
          stdin instanceof Writable,
          stdout instanceof Readable,
          stderr instanceof Readable,
        ],
        ['true'],
      ),
    'what kind of descriptor `pipe` is, in places 0 to 2 and 3': async ({ spawn }) => {
      const script = 'for place in 0 1 3; do readlink /proc/self/fd/$place; done'
      const child = spawn('bash', ['-c', script], { stdio: ['pipe', 'pipe', 'pipe', 'pipe'] })
      return (await output(child))
        .replace(/:\[\d+\]/g, '')
        .trim()
        .split('\n')
    },
    '`echo x > /dev/stdout`, `cat /dev/stdin`': async ({ spawn }) => {
      const child = spawn('sh', sh('cat /dev/stdin 2>/dev/null || echo refused >&2; echo x > /dev/stdout'))
      child.stdin.on('error', () => {})
      child.stdin.end('in ')
      const { stdout, stderr } = await ended(child)
      return stdout.trim() + stderr.replace(/.*\n?.*refused.*|.*No such device.*/gs, 'refused')
    },
    'the descriptors that the command has': ({ spawn }) =>
      output(spawn('sh', sh('cd /proc/self/fd && echo *'))).then((line) => line.trim().split(' ').slice(0, 3)),
    'a further pipe, both ways': async ({ spawn }) => {
      const child = spawn('sh', sh('read line <&3; echo "$line back" >&3'), {
        stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      })
      child.stdio[3].write('there and\n')
      return text(child.stdio[3])
    },
    'a descriptor by its number': async ({ spawn }) => {
      const path = join(folder, newWord())
      const fd = openSync(path, 'w')
      await next(spawn('echo', ['to a file'], { stdio: ['ignore', fd, 'ignore'] }), 'close')
      closeSync(fd)
      return readFileSync(path, 'utf8')
    },
    'a stream of a file': async ({ spawn }) => {
      const path = join(folder, newWord())
      const stream = createWriteStream(path)
      await next(stream, 'open')
      await next(spawn('echo', ['to a file'], { stdio: ['ignore', stream, 'ignore'] }), 'close')
      stream.destroy()
      return readFileSync(path, 'utf8')
    },
    'a stream of a file as stdin': async ({ spawn }) => {
      const stream = createReadStream(join(folder, PLAIN))
      await next(stream, 'open')
      const read = await output(spawn('cat', [], { stdio: [stream, 'pipe', 'ignore'] }))
      stream.destroy()
      return read
    },
    'a socket': async ({ spawn }) => {
      const server = createServer()
      server.listen(0, '127.0.0.1')
      await next(server, 'listening')
      const near = connect(server.address().port, '127.0.0.1')
      const [far] = await next(server, 'connection')
      const child = spawn('echo', ['to a socket'], { stdio: ['ignore', near, 'ignore'] })
      await next(child, 'close')
      near.destroy()
      server.close()
      return text(far)
    },
    'a stream without a descriptor': ({ spawn }) =>
      refusal(() => spawn('true', [], { stdio: ['ignore', new PassThrough(), 'ignore'] })),
    'a stream of a file that is not yet open': async ({ spawn }) => {
      const stream = createWriteStream(join(folder, newWord()))
      const seen = await refusal(() => spawn('true', [], { stdio: ['ignore', stream, 'ignore'] }))
      stream.destroy()
      return seen
    },
    'the output of one child as the input of another': async ({ spawn }) => {
      const first = spawn('echo', ['through'], { stdio: ['ignore', 'pipe', 'ignore'] })
      const second = spawn('cat', [], { stdio: [first.stdout, 'pipe', 'ignore'] })
      return output(second)
    },
    'a closed descriptor': ({ spawn }) => refusal(() => spawn('true', [], { stdio: ['ignore', 999_999, 'ignore'] })),
    'values of `stdio` that are invalid: a word, a word in its place, a number, -1, an object': async ({ spawn }) => [
      await refusal(() => spawn('true', [], { stdio: 'pipes' })),
      await refusal(() => spawn('true', [], { stdio: ['pipes'] })),
      await refusal(() => spawn('true', [], { stdio: 7 })),
      await refusal(() => spawn('true', [], { stdio: [-1] })),
      await refusal(() => spawn('true', [], { stdio: [{}] })),
    ],
    '`ipc`': async ({ spawn }) => refusal(() => spawn('true', [], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] })),
    '`stdout` in the third place': async ({ spawn }) =>
      refusal(() => spawn('true', [], { stdio: ['ignore', 'ignore', 'stdout'] })),
  },

  Streams: {
    'chunks, and with `setEncoding`': async ({ spawn }) => {
      const [bytes] = await next(spawn('echo', ['x']).stdout, 'data')
      const child = spawn('echo', ['x'])
      child.stdout.setEncoding('utf8')
      const [letters] = await next(child.stdout, 'data')
      return [Buffer.isBuffer(bytes), typeof letters]
    },
    '1 MiB through `cat`': async ({ spawn }) => {
      const child = spawn('cat')
      const sent = 'x'.repeat(1024 * 1024)
      child.stdin.end(sent)
      return (await output(child)) === sent
    },
    'stdout by `for await`': async ({ spawn }) => {
      let all = ''
      for await (const chunk of spawn('echo', ['x']).stdout) all += chunk
      return all
    },
    'stdout by `readable` and `read()`': async ({ spawn }) => {
      const { stdout } = spawn('echo', ['x'])
      let all = ''
      stdout.on('readable', () => {
        for (let chunk = stdout.read(); chunk !== null; chunk = stdout.read()) all += chunk
      })
      await next(stdout, 'end')
      return all
    },
    '`close` of a child whose output nobody reads': async ({ spawn }) => {
      const [code] = await next(spawn('echo', ['x']), 'close')
      return code
    },
    'the error of a write to stdin after the exit': async ({ spawn }) => {
      const child = spawn('true')
      const { stdin } = child
      await next(child, 'exit')
      return new Promise((resolve) => stdin.write('x', (error) => resolve(error.code)))
    },
    'the `error` of stdin that the command has closed': async ({ spawn }) => {
      const child = spawn('sh', sh('exec 0<&-; echo closed; exec sleep 30'))
      await next(child.stdout, 'data')
      child.stdin.write('x')
      const [error] = await next(child.stdin, 'error')
      child.kill()
      await next(child, 'close')
      return [error.code, error.syscall]
    },
    '`stdin.end()` is seen by the command': async ({ spawn }) => {
      const child = spawn('cat')
      child.stdin.end('x')
      return output(child)
    },
    'a command that writes, when its stdout is destroyed': async ({ spawn }) => {
      const child = spawn('sh', sh('while echo x; do :; done 2>/dev/null'))
      await next(child.stdout, 'data')
      child.stdout.destroy()
      await next(child, 'close')
      return 'ends'
    },
    'the order of `stdout` and `stderr` in one pipe': async ({ spawn }) =>
      output(spawn('sh', sh('exec 2>&1; echo 1; echo 2 >&2; echo 3'))),
    'the class of the streams': ({ spawn }) =>
      ofDone(spawn, ({ stdin, stdout }) => [stdin instanceof Socket, stdout instanceof Socket], ['true']),
    '`ref()` and `unref()` of a stream': ({ spawn }) =>
      ofDone(spawn, ({ stdout }) => [typeof stdout.ref, typeof stdout.unref], ['true']),
  },

  Options: {
    '`cwd` as text, as a URL': async ({ spawn }) => {
      const [one, two] = [folder, pathToFileURL(folder)].map((cwd) => output(spawn('pwd', [], { cwd })))
      return [(await one).trim() === folder, (await two).trim() === folder]
    },
    'a `cwd` that does not exist': ({ spawn }) => refusal(() => spawn('true', [], { cwd: MISSING })),
    'a `cwd` that is a file': ({ spawn }) => refusal(() => spawn('true', [], { cwd: join(folder, PLAIN) })),
    '`path` in the error of a `cwd` that does not exist': async ({ spawn }) => {
      const { error } = await ended(spawn('true', [], { cwd: MISSING }))
      return error.path === MISSING ? 'the directory' : error.path
    },
    "`env` in place of the host's": ({ spawn }) =>
      output(spawn('/usr/bin/env', [], { env: { A: '1', B: undefined, C: 2, D: '' } })),
    '`env` by a prototype': ({ spawn }) =>
      output(spawn('/usr/bin/env', [], { env: Object.create({ INHERITED: '1' }) })),
    '`env: undefined` and `env: null`': async ({ spawn }) => {
      process.env.DIFFERENCES = 'there'
      const print = ['sh', sh('echo $DIFFERENCES')]
      return [await output(spawn(...print, { env: undefined })), await output(spawn(...print, { env: null }))]
    },
    'PATH of `env` finds the program': ({ spawn }) =>
      refusal(() => spawn('true', [], { env: { PATH: '/nowhere' }, stdio: 'ignore' })),
    '`argv0`, and null': async ({ spawn }) => [
      await output(spawn('sh', sh('echo "$0"'), { argv0: 'other' })),
      await output(spawn('sh', sh('echo "$0"'), { argv0: null })),
      await output(spawn('sh', sh('tr "\\0" " " < /proc/$$/cmdline | cut -d" " -f1'), { argv0: 'other' })),
    ],
    'arguments that are not strings': ({ spawn }) =>
      output(spawn('echo', [1, true, null, undefined, { a: 1 }, [2, 3]])),
    '`shell: true`': ({ spawn }) => output(spawn('echo $((1 + 1)) | cat', { shell: true })),
    '`shell` by name': ({ spawn }) => output(spawn('echo $BASH', { shell: '/bin/bash' })),
    '`shell: true` with arguments': ({ spawn }) => output(spawn('echo', ['a  b', '$((1 + 1))'], { shell: true })),
    'leads a group, leads a session, with `detached: true`': async ({ spawn }) =>
      leads(stays(spawn, { detached: true })),
    'leads a group, leads a session': async ({ spawn }) => leads(stays(spawn)),
    '`uid` and `gid`': async ({ spawn }) => {
      const [uid, gid] = [process.getuid(), process.getgid()]
      return (await output(spawn('sh', sh('id -u; id -g'), { uid, gid }))) === `${uid}\n${gid}\n`
    },
    '`windowsHide` and `windowsVerbatimArguments`': ({ spawn }) =>
      refusal(() => spawn('true', [], { windowsHide: true, windowsVerbatimArguments: true, stdio: 'ignore' })),
    'an option of `exec` (`maxBuffer`)': ({ spawn }) =>
      refusal(() => spawn('true', [], { maxBuffer: 1, stdio: 'ignore' })),
    'a misspelt option': ({ spawn }) => refusal(() => spawn('true', [], { timeOut: 1000, stdio: 'ignore' })),
    'options that are changed after the call': async ({ spawn }) => {
      const options = { env: { A: '1' }, stdio: ['ignore', 'pipe', 'ignore'] }
      const args = ['-c', 'echo $A']
      const child = spawn('/bin/sh', args, options)
      args[1] = 'exit 1'
      options.env.A = '2'
      return output(child)
    },
    '(file, options)': ({ spawn }) => output(spawn('pwd', { cwd: '/' })),
    '(file, null, options), (file, undefined, undefined)': async ({ spawn }) => [
      await output(spawn('pwd', null, { cwd: '/' })),
      await status(spawn('true', undefined, undefined)),
    ],
  },

  'Arguments that are refused': {
    'a program that is not a string, that is empty, that has a NUL': async ({ spawn }) => [
      await refusal(() => spawn(undefined)),
      await refusal(() => spawn(7)),
      await refusal(() => spawn('')),
      await refusal(() => spawn('a\0b')),
    ],
    'arguments that are not an array': async ({ spawn }) => [
      await refusal(() => spawn('true', 'x')),
      await refusal(() => spawn('true', 7)),
    ],
    'a NUL in an argument, in `cwd`, in `env`, in `argv0`': async ({ spawn }) => [
      await refusal(() => spawn('true', ['a\0b'])),
      await refusal(() => spawn('true', [], { cwd: 'a\0b' })),
      await refusal(() => spawn('true', [], { env: { A: 'a\0b' } })),
      await refusal(() => spawn('true', [], { argv0: 'a\0b' })),
    ],
    'options that are not an object': async ({ spawn }) => [
      await refusal(() => spawn('true', [], null)),
      await refusal(() => spawn('true', [], 'x')),
      await refusal(() => spawn('true', [], 7)),
    ],
    ...Object.fromEntries(
      Object.entries({
        cwd: [7, {}],
        argv0: [7],
        shell: [7, {}],
        detached: ['yes', 1],
        uid: ['root', 1.5],
        gid: ['root'],
        signal: [{}, 'x'],
        killSignal: ['SIGFOO', {}, 999],
        timeout: [-1, 1.5, 'soon', Number.NaN],
        windowsHide: ['yes'],
        serialization: ['xml'],
        env: ['A=1'],
      }).map(([option, values]) => [
        `\`${option}\`: ${values.map((value) => (Number.isNaN(value) ? 'NaN' : JSON.stringify(value))).join(', ')}`,
        ({ spawn }) =>
          Promise.all(values.map((value) => refusal(() => spawn('true', [], { [option]: value, stdio: 'ignore' })))),
      ]),
    ),
  },

  'Starts that the system refuses': {
    'a program that does not exist': ({ spawn }) => refusal(() => spawn(MISSING)),
    'a program that is not in PATH': ({ spawn }) => refusal(() => spawn('no-such-program-anywhere')),
    'a file without the right to execute it': ({ spawn }) => refusal(() => spawn(join(folder, PLAIN))),
    'a directory': ({ spawn }) => refusal(() => spawn(folder)),
    'a script without an interpreter line': ({ spawn }) =>
      ended(spawn(join(folder, SCRIPT))).then(({ stdout, error }) => error?.code ?? stdout),
    'an argument of 200 KiB': ({ spawn }) => refusal(() => spawn('true', ['x'.repeat(200 * 1024)])),
    'the fields of the error of a missing program': async ({ spawn }) => {
      const { error } = await ended(spawn(MISSING, ['a']))
      return [
        error.code,
        error.errno,
        error.syscall.replace(folder, ''),
        error.path.replace(folder, ''),
        error.spawnargs,
      ]
    },
    'the message of the error of a missing program': async ({ spawn }) => {
      const { error } = await ended(spawn(MISSING))
      return error.message.replaceAll(folder, '')
    },
    'the class of the error of a missing program': async ({ spawn }) => {
      const { error } = await ended(spawn(MISSING))
      return [error instanceof Error, error.name]
    },
  },

  'What the command sees': {
    'the parent of the command': async ({ spawn }) => {
      const child = spawn('sh', sh('echo $PPID'))
      return Number(await output(child)) === process.pid ? 'the host' : 'another process'
    },
    'the environment': async ({ spawn }) => {
      const lines = (await output(spawn('env'))).split('\n').filter((line) => line !== '' && !line.startsWith('_='))
      return JSON.stringify(lines.sort()) === JSON.stringify(theEnvironment())
    },
    'the working directory': async ({ spawn }) => (await output(spawn('pwd', ['-P']))).trim() === process.cwd(),
    'umask, nice value, limits': async ({ spawn }) => {
      const script = ['-c', 'umask; nice; ulimit -a | grep -v pipe']
      return (await output(spawn('bash', script))) === spawnSync('bash', script, { encoding: 'utf8' }).stdout
    },
    'blocked and ignored signals': async ({ spawn }) =>
      (await output(spawn('grep', ['-E', '^Sig(Blk|Ign)', '/proc/self/status']))).trim().split('\n'),
    'standard input of `stdio: "ignore"`': ({ spawn }) =>
      output(spawn('readlink', ['/proc/self/fd/0'], { stdio: ['ignore', 'pipe', 'pipe'] })),
    'the signal that the command gets when its parent dies': ({ spawn }) => output(spawn(PYTHON, ['-c', PDEATHSIG])),
  },

  'What is left': {
    'a background process after `close`': async ({ spawn, dispose }) => {
      const child = spawn('sh', sh(`sleep 30 >/dev/null 2>&1 & echo $!`))
      const pid = Number(await output(child))
      const seen = await fate(pid)
      dispose(pid)
      return seen
    },
    'a background process in a session of its own, after `close`': async ({ spawn, dispose }) => {
      const child = spawn('sh', sh(`setsid sleep 30 >/dev/null 2>&1 & echo $!`))
      const pid = Number(await output(child))
      const seen = await fate(pid)
      dispose(pid)
      return seen
    },
    'a child of a program that was ended by `kill()`': async ({ spawn, dispose }) => {
      const child = spawn('sh', sh('sleep 30 >/dev/null 2>&1 & echo $!; wait'))
      const pid = Number(String((await next(child.stdout, 'data'))[0]))
      child.kill()
      await next(child, 'close')
      const seen = await fate(pid)
      dispose(pid)
      return seen
    },
    'the child after `process.exit()` of the host': ({ host, dispose }) => afterHost(host, dispose, 'process.exit()'),
    'the child after SIGKILL of the host': ({ host, dispose }) =>
      afterHost(host, dispose, "process.kill(process.pid, 'SIGKILL')"),
    'the child after `unref()`, when the host has ended by itself': ({ host, dispose }) =>
      afterHost(host, dispose, 'child.unref()'),
  },

  'The event loop': {
    'a host whose child runs': async ({ host }) => (await host(CHILD('sleep 0.1', 'ignore'))).reports,
    'a host whose child runs, after `unref()`, without pipes': async ({ host }) =>
      (await host(`${CHILD('sleep 1', 'ignore')}; child.unref()`)).reports,
    'a host whose child runs, after `unref()` and `ref()`': async ({ host }) =>
      (await host(`${CHILD('sleep 0.1', 'ignore')}; child.unref(); child.ref()`)).reports,
    'a host whose child runs, after `unref()`, with pipes': async ({ host }) =>
      (await host(`${CHILD('sleep 1', 'pipe')}; child.unref()`)).reports,
    'a host whose child runs, after `unref()`, with pipes that are read': async ({ host }) =>
      (await host(`${CHILD('sleep 1', 'pipe')}; child.stdout.resume(); child.unref()`)).reports,
    'a host whose child runs, after `unref()` of it and of its streams': async ({ host }) =>
      (await host(`${CHILD('sleep 1', 'pipe')}; child.unref(); for (const one of child.stdio) one.unref()`)).reports,
    'fifty children at once': async ({ spawn }) => {
      const all = await Promise.all(
        Array.from({ length: 50 }, (_, index) => ended(spawn('sh', sh(`echo ${index}; exit ${index}`)))),
      )
      return all.every(({ code, stdout }, index) => code === index && stdout === `${index}\n`)
    },
  },
}

/** For what does not come. */
const patience = (milliseconds = 300) => new Promise((resolve) => setTimeout(resolve, milliseconds))

/** What `next(child, "spawn")`, `pause` and then a listener get of an output. */
async function lateData(spawn, pause) {
  const child = spawn('echo', ['important'])
  await next(child, 'spawn')
  await pause()
  let data = ''
  child.stdout.on('data', (chunk) => {
    data += chunk
  })
  await within(next(child, 'close'), 'close')
  return data
}

/** What there is to be seen of a child when it has ended. */
async function ofDone(spawn, look, [file, ...rest] = ['true', []]) {
  const child = spawn(file, ...rest)
  const seen = look(child)
  await next(child, 'close')
  return seen
}

const stateOf = ({ exitCode, signalCode, killed }) => [exitCode, signalCode, killed]

async function stateAfter(child) {
  await ended(child)
  return stateOf(child)
}

function thrown(act) {
  try {
    return act()
  } catch (error) {
    return `throws ${error.name} ${error.code}`
  }
}

/** Whether it leads its group, and its session. */
async function leads(child) {
  await next(child, 'spawn')
  const { pgrp, session } = stat(child.pid)
  const seen = [pgrp === child.pid, session === child.pid]
  await leave(child)
  return seen
}

function theEnvironment() {
  return Object.entries(process.env)
    .filter(([name]) => name !== '_')
    .map(([name, value]) => `${name}=${value}`)
    .sort()
}

const PDEATHSIG = `
import ctypes
signal = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(signal))
print(signal.value)
`

/** `close` may come before the last process of a call has ended. */
const fate = (pid) =>
  until(() => !isAlive(pid), 'its end', 1000).then(
    () => 'is ended',
    () => 'lives on',
  )

/** In the text of a host. What the child leaves behind as its last act says whether the host waited for it. */
const CHILD = (script, stdio) => `
  const { existsSync, mkdtempSync, rmSync } = require('fs')
  const folder = mkdtempSync(require('path').join(require('os').tmpdir(), 'holdfast-loop-'))
  const child = spawn('sh', ['-c', '${script}; : > "$0/done"', folder], { stdio: '${stdio}' })
  process.on('exit', () => {
    report(existsSync(folder + '/done') ? 'ends after it' : 'ends before it')
    rmSync(folder, { recursive: true })
  })`

async function afterHost(host, dispose, act) {
  const { reports } = await host(
    `const child = spawn('sleep', ['30'], { stdio: 'ignore' })
    child.once('spawn', () => report(child.pid, () => { ${act} }))`,
  )
  const [pid] = reports
  const seen = await fate(pid)
  dispose(pid)
  return seen
}
