// A terminal to type into: script(1) makes the pty, this file plays the person.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { afterEachTest } from './after-each.mjs'
import { within } from './command-line.mjs'
import { newMark, until } from './facts.mjs'

/** '' or why there is no terminal to be had here. */
export const NO_TERMINAL = (() => {
  const { status, stdout, error } = spawnSync('script', ['-qec', 'tty', '/dev/null'], { input: '', encoding: 'utf8' })
  return status === 0 && stdout.includes('/dev/') ? '' : `no script(1) that makes a pty: ${error?.code ?? stdout}`
})()

const opened = new Set()

/** Runs `shell` as the leader of a new terminal's session. `env` and a mark are handed to it. */
export function openTerminal(shell, env = {}) {
  const made = newMark()
  const child = spawn('script', ['-qec', shell, '/dev/null'], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, SHELL: '/bin/sh', TERM: 'dumb', HISTFILE: '', PS1: '', MARK: made, ...env },
  })
  let screen = ''
  let seen = 0
  child.stdout.on('data', (chunk) => {
    screen += chunk
  })
  const exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }))
  opened.add([child, exited])
  return {
    mark: made,
    exited: within(exited, 'exit of the terminal'),
    screen: () => screen,
    type: (text) => child.stdin.write(text),
    /** Waits until what came since the last match matches, and goes on behind it. */
    shows: (pattern, deadline) =>
      until(
        () => {
          const match = screen.slice(seen).match(pattern)
          if (match) seen += match.index + match[0].length
          return match
        },
        `${pattern} in the terminal, which shows: ${JSON.stringify(screen)}`,
        deadline,
      ),
    /** As if the window were closed: the master's end is gone, and the kernel says so to the session. */
    close: () => child.kill('SIGKILL'),
  }
}

/** An interactive bash without echo, so that what is typed is not on the screen. `$HF` is `holdfast run`. */
export async function openShell(env) {
  const terminal = openTerminal('exec bash --norc --noprofile --noediting -i', env)
  terminal.type('stty -echo; PS1=; echo go-$((1 + 1))\n')
  await terminal.shows(/go-2/)
  return terminal
}

afterEachTest.push(async () => {
  for (const [child, exited] of opened) {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
  }
  opened.clear()
})
