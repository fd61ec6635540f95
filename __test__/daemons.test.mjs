// Daemons that are meant to stay: the recipes of docs/daemons.md, with the real programs.
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run, spawn } from '../dist/index.js'
import { gone, isAlive, until } from './support/facts.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const timeout = 60_000

/** '' where all of these programs answer, else why the test is skipped. */
const missing = (...commands) =>
  commands
    .filter(([program, arg]) => spawnSync(program, [arg], { env, timeout }).status !== 0)
    .map(([program, arg]) => `${program} ${arg} fails here`)
    .join(', ')

test('git: a gc that is due is done before the commit exits, and leaves no lock (C42)', async (t) => {
  if (!has(t, missing(['git', '--version']))) return
  const dir = folder(t)
  const own = {
    ...env,
    HOME: dir,
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_AUTHOR_NAME: 'a',
    GIT_AUTHOR_EMAIL: 'a@localhost',
    GIT_COMMITTER_NAME: 'a',
    GIT_COMMITTER_EMAIL: 'a@localhost',
  }
  const git = (...args) => execFileSync('git', ['-C', dir, ...args], { env: own, timeout })
  git('init', '-q')
  git('config', 'gc.auto', '1')
  // A gc is due from two objects in objects/17 on: about 1 in 256 is there.
  mkdirSync(join(dir, 'd'))
  for (let i = 0; i < 2000; i++) writeFileSync(join(dir, 'd', `${i}`), `${i}\n`)
  git('-c', 'gc.auto=0', 'add', '.')

  const result = await run('git', ['-C', dir, 'commit', '-q', '-m', 'work'], {
    env: { ...own, GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: 'gc.autoDetach', GIT_CONFIG_VALUE_0: 'false' },
    timeout,
  })
  t.like(result, { exitCode: 0, ok: true, report: { outcome: 'ended', leftovers: [] } })
  const objects = readdirSync(join(dir, '.git/objects'))
  t.deepEqual(
    objects.filter((name) => name.length === 2),
    [],
    'loose objects',
  )
  t.is(readdirSync(join(dir, '.git/objects/pack')).filter((name) => name.endsWith('.pack')).length, 1)
  t.deepEqual(
    readdirSync(join(dir, '.git')).filter((name) => name.startsWith('gc.')),
    [],
  )
})

test('tmux: a server that is a call of its own serves the next call, and is gone after end() (C42)', async (t) => {
  // -D came with tmux 3.2.
  const version = spawnSync('tmux', ['-V'], { env, encoding: 'utf8' }).stdout?.trim() ?? ''
  const [major, minor] = (/(\d+)\.(\d+)/.exec(version) ?? []).slice(1).map(Number)
  const isOld = major < 3 || (major === 3 && minor < 2)
  if (!has(t, isOld ? `${version} has no -D` : missing(['tmux', '-V']))) return
  const socket = join(folder(t), 's')
  const own = { ...env, LC_ALL: 'C.UTF-8', TMUX: undefined }
  const tmux = (...args) => ['-f', '/dev/null', '-S', socket, ...args]
  const ask = (...args) => spawnSync('tmux', tmux(...args), { env: own, encoding: 'utf8', timeout })
  t.teardown(() => ask('kill-server'))

  const server = spawn('tmux', tmux('-D'), { env: own, stdio: 'ignore', timeout })
  await until(() => ask('show-options', '-s').status === 0, 'answer of the server', timeout)
  const made = await run('tmux', tmux('new-session', '-d', '-s', 'work', 'sleep 59'), { env: own, timeout })
  t.like(made, { exitCode: 0, ok: true, report: { outcome: 'ended', leftovers: [] } })
  const next = await run('tmux', tmux('list-panes', '-t', 'work', '-F', '#{pid} #{pane_pid}'), { env: own, timeout })
  const [serving, pane] = next.stdout.trim().split(' ').map(Number)
  t.is(serving, server.pid)
  t.true(isAlive(pane))

  t.is((await server.end()).outcome, 'ended')
  await gone([serving, pane])
  t.not(ask('list-sessions').status, 0)
})

test('gpg-agent: kept, it is the same one before and after two calls, and gone after end() (C40)', async (t) => {
  const reason = missing(['gpg', '--version'], ['gpg-agent', '--version'], ['gpg-connect-agent', '--version'])
  if (!has(t, reason)) return
  const home = folder(t)
  chmodSync(home, 0o700)
  const own = { ...env, GNUPGHOME: home }
  /** The pid of the agent that answers; never starts one. */
  const agent = () => {
    const args = ['--no-autostart', 'getinfo pid', '/bye']
    const { stdout } = spawnSync('gpg-connect-agent', args, { env: own, encoding: 'utf8', timeout })
    return Number(/^D (\d+)/m.exec(stdout)?.[1])
  }
  t.teardown(() => spawnSync('gpg-connect-agent', ['--no-autostart', 'killagent', '/bye'], { env: own, timeout }))

  const { kept } = await run('gpg-agent', ['--daemon'], { env: own, stdio: 'ignore', background: 'keep', timeout })
  const first = await until(agent, 'answer of the agent', timeout)
  const key = ['--batch', '--passphrase', '', '--quick-gen-key', 'a@localhost', 'ed25519', 'sign', '1d']
  const made = await run('gpg', key, { env: own, timeout })
  t.like(made, { exitCode: 0, report: { outcome: 'ended', leftovers: [] } })
  const signed = await run('gpg', ['--batch', '--clearsign'], { env: own, input: 'x\n', timeout })
  t.like(signed, { exitCode: 0, report: { outcome: 'ended', leftovers: [] } })
  t.true(signed.stdout.includes('BEGIN PGP SIGNATURE'))
  t.is(agent(), first)
  t.true(isAlive(first))

  t.is((await kept.end()).outcome, 'ended')
  t.false(isAlive(first))
  t.is(agent(), NaN)
})
