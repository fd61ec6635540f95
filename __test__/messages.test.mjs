// What the messages of errors say: what happened, to what, and what to do; and that they are safe to print.
import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { run, spawn } from '../dist/index.js'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const PACKAGE = fileURLToPath(new URL('../npm/linux-x64-gnu', import.meta.url))
const failed = (t, file, args, options) => t.throwsAsync(run(file, args, { env, check: true, ...options }))
const script = (at, text) => {
  writeFileSync(at, text)
  chmodSync(at, 0o755)
  return at
}

test('check: true names the arguments and the end of stderr, whatever the encoding', async (t) => {
  const text = 'echo first >&2; echo last line >&2; exit 3'
  const expected = `sh -c '${text}' exited with code 3. It wrote:\nfirst\nlast line`
  for (const encoding of ['utf8', 'buffer', 'hex', 'base64', 'base64url', 'latin1']) {
    t.is((await failed(t, 'sh', ['-c', text], { encoding })).message, expected, encoding)
  }
  const merged = await failed(t, 'sh', ['-c', text], { stdio: ['ignore', 'pipe', 'stdout'] })
  t.is(merged.message, expected)
  t.is((await failed(t, 'false', [])).message, 'false exited with code 1')
  t.is((await failed(t, 'exit 4', ['#', 'x'], { shell: true })).message, "/bin/sh -c 'exit 4 # x' exited with code 4")
})

test('check: true bounds what it says, and makes it safe to print', async (t) => {
  const long = await failed(t, 'sh', [
    '-c',
    'yes 0123456789 | head -c 100000 >&2; exit 1',
    ...Array(500).fill('argument'),
  ])
  t.true(long.message.length < 1000, `${long.message.length}`)
  t.regex(long.message, /more arguments\) exited with code 1\. It wrote:\n\.\.\.\d+/)
  const unsafe = await failed(t, 'sh', [
    '-c',
    'printf "a\\033[31mred\\033]0;title\\007\\rb\\0c\\342\\200\\256d" >&2; exit 1',
    'x\u202e\u001b[1m',
  ])
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
  t.notRegex(unsafe.message, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
  t.regex(unsafe.message, /red/)
})

test('a consumer that fails is named with its cause', async (t) => {
  const message = async (onOutput) => (await t.throwsAsync(run('echo', ['x'], { env, onOutput }))).message
  const thrown = (value) => () => {
    throw value
  }
  t.is(await message(thrown(new Error('full\u001b[2J disk'))), 'echo was ended, because `onOutput` failed: full disk')
  t.is(
    await message(async () => Promise.reject(new Error('later'))),
    'echo was ended, because `onOutput` failed: later',
  )
  t.is(await message(thrown('text')), 'echo was ended, because `onOutput` failed: text')
  t.is(await message(thrown(undefined)), 'echo was ended, because `onOutput` failed: undefined')
  t.is(await message(thrown({ secret: 1 })), 'echo was ended, because `onOutput` failed: an instance of Object')
})

test('the interpreter of a script is named, with the carriage return that nobody sees', async (t) => {
  const at = folder(t)
  const crlf = script(join(at, 'crlf'), '#!/bin/sh\r\necho x\r\n')
  for (const call of [[crlf], ['./crlf', { cwd: at }], ['crlf', { env: { ...env, PATH: at } }]]) {
    const error = await t.throwsAsync(run(...call), { code: 'ENOENT' })
    t.true(error.message.includes(String.raw`'/bin/sh\r'`), error.message)
    t.regex(error.message, /CR LF: save the file with LF line ends/)
    t.is(error.step, 'interpreter')
  }
  const missing = script(join(at, 'missing'), '#! /no/such/interpreter -x\n')
  t.regex(
    (await t.throwsAsync(run(missing))).message,
    /interpreter '\/no\/such\/interpreter', which cannot be executed$/,
  )
  const refused = script(join(at, 'refused'), `#!${at}\n`)
  t.true((await t.throwsAsync(run(refused), { code: 'EACCES' })).message.includes(`interpreter '${at}'`))
})

test('a bad name of an environment variable is named as one, and no value is shown', async (t) => {
  const message = (variables) =>
    t.throws(() => spawn('true', { env: variables }), { code: 'ERR_INVALID_ARG_VALUE' }).message
  t.regex(message({ '': 'secret' }), /^The name of an environment variable .* Received ''$/)
  t.regex(message({ 'A\0B': 'secret' }), /^The name of an environment variable .* Received 'A\\x00B'$/)
  t.regex(message({ 'A=secret': 'x' }), /^The name of an environment variable .* Received 'A'/)
  t.regex(message({ NAME: 'secret\0' }), /'NAME'.*null bytes.*7 bytes/)
  for (const variables of [{ '': 'secret' }, { 'A\0B': 'secret' }, { 'A=secret': '' }, { NAME: 'secret\0' }]) {
    t.notRegex(message(variables), /secret/)
  }
  for (const value of ['TOKEN=secret', () => 'secret']) {
    t.notRegex(t.throws(() => spawn('true', { env: value })).message, /secret/)
  }
  t.notRegex(t.throws(() => spawn('true', { stdio: [{ token: 'secret' }] })).message, /secret/)
})

test('an option that takes names lists those that are supported', async (t) => {
  for (const [name, values] of [
    ['background', "must be one of: 'end', 'keep'."],
    ['containment', "must be one of: 'required', 'best-effort'."],
    ['serialization', "must be one of: 'json', 'advanced'."],
    ['encoding', "must be one of: 'utf8',"],
    ['stdio', "must be 'pipe', 'overlapped', 'ignore', 'inherit',"],
    ['killSignal', 'os.constants.signals'],
  ]) {
    const { message } = await t.throwsAsync(run('true', { [name]: 'x' }))
    t.true(message.includes(values), message)
    t.notRegex(message, /release/)
  }
  t.regex(t.throws(() => spawn('true').kill('SIG\u001b[1m')).message, /^Unknown signal: 'SIG\\x1B\[1m'/)
})

test('a program and a directory are named as text that is safe to print', async (t) => {
  for (const call of [['/no/such\n\u202e\u001b[2J'], ['true', { cwd: '/no/such\n\u202e\u001b[2J' }]]) {
    const { message } = await t.throwsAsync(run(...call), { code: 'ENOENT' })
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    t.notRegex(message, /[\u0000-\u001f\u202e]/)
    t.true(message.includes(String.raw`'/no/such\n\u{202e}\x1B[2J'`), message)
  }
})

const NO_MOUNT = spawnSync('unshare', ['--mount', 'true']).status === 0 ? '' : 'no mount namespace can be made'

test('a helper that is not executable, and cannot be made so, is told with the cause', (t) => {
  if (!has(t, NO_MOUNT)) return
  const at = folder(t)
  for (const name of readdirSync(PACKAGE)) copyFileSync(join(PACKAGE, name), join(at, name))
  const index = fileURLToPath(new URL('../dist/index.js', import.meta.url))
  const problem = (mode, mount) => {
    chmodSync(join(at, 'holdfast-helper.node'), mode)
    const host = `require(${JSON.stringify(index)}).run('true').catch(({ message }) => console.log(message))`
    const shell = `mount --bind "$1" "$1" && mount -o remount,bind,${mount} "$1" && exec "$2" -e "$3"`
    const args = ['--mount', 'sh', '-c', shell, 'sh', at, process.execPath, host]
    return spawnSync('unshare', args, { env: { ...env, HOLDFAST_BINARY_PATH: at }, encoding: 'utf8' }).stdout
  }
  t.regex(
    problem(0o644, 'ro'),
    /holdfast-helper.node' is not executable, and chmod failed: EROFS: read-only file system/,
  )
  // There an addon cannot be loaded, either.
  t.regex(problem(0o755, 'noexec'), /noexec|could not be loaded: .*failed to map/)
})
