// Where addon and helper are looked for, and every way in which that commonly fails: each has a text that names the cause
// and what to do.
import { execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const require = createRequire(import.meta.url)
const { platforms, packageOf, addonOf, helperFile } = require('../dist/native/platforms.js')
const { readElf, libcOfProcess } = require('../dist/native/executable.js')

const CHECKOUT = fileURLToPath(new URL('..', import.meta.url))
const built = platforms.find((one) => existsSync(join(CHECKOUT, 'npm', one.name, addonOf(one))))
const foreign = platforms.find(({ cpu }) => cpu !== built.cpu)
const { version } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8'))
const ADDON = addonOf(built)
const NO_MOUNT = mountIsRefused()
const NO_ROOT = process.getuid?.() === 0 ? '' : 'needs root'
const [MAJOR] = process.versions.node.split('.').map(Number)
const PERMISSION = MAJOR < 22 ? '--experimental-permission' : '--permission'

function mountIsRefused() {
  const { status, error } = spawnSync('unshare', ['--mount', 'sh', '-c', 'mount -t tmpfs none /mnt'], {
    stdio: 'ignore',
  })
  return status === 0 ? '' : `needs a mount namespace (${error?.code ?? 'unshare was refused'})`
}

/** A project with the package installed, as npm lays it out. */
function installed(t, { at = folder(t), platform = built, packages = join(at, 'node_modules') } = {}) {
  const root = join(packages, 'holdfast')
  mkdirSync(join(packages, '@holdfast'), { recursive: true })
  cpSync(join(CHECKOUT, 'dist'), join(root, 'dist'), { recursive: true })
  copyFileSync(join(CHECKOUT, 'package.json'), join(root, 'package.json'))
  const native = join(packages, packageOf(platform))
  mkdirSync(native)
  for (const name of [ADDON, helperFile, 'package.json'])
    copyFileSync(join(CHECKOUT, 'npm', built.name, name), join(native, name))
  if (platform !== built) renameSync(join(native, ADDON), join(native, addonOf(platform)))
  return { at, root, native, addon: join(native, ADDON), helper: join(native, helperFile) }
}

const RUN = `
  const facts = ({ code, step, ran, message, cause }) => ({ code, step, ran, message, cause: cause?.message })
  require('holdfast').run('echo', ['works']).then(({ stdout }) => ({ stdout }), facts)
    .then((result) => process.stdout.write(JSON.stringify(result)))
`
/** The result of a call in such a project: what it printed, or what its error says. */
function call(at, { args = [], before = '', extra = {}, body = RUN, under = [] } = {}) {
  const command = [...under, process.execPath, ...args, '-e', `${before}\n${body}`]
  const { PATH } = process.env
  const { stdout, stderr, status } = spawnSync(command[0], command.slice(1), {
    cwd: at,
    env: { PATH, MARK: env.MARK, ...extra },
    encoding: 'utf8',
  })
  try {
    return JSON.parse(stdout)
  } catch {
    throw new Error(`exit ${status}: ${stdout}${stderr}`)
  }
}

const works = (t, result) => t.deepEqual(result, { stdout: 'works\n' }, result.message)
function refused(t, result, pattern, code = 'ERR_HOLDFAST_NO_HELPER') {
  t.is(result.code, code, JSON.stringify(result))
  t.is(result.step, 'helper')
  t.is(result.ran, false)
  t.regex(result.message, pattern)
}

// ---- which package
test('the platform package is taken, and an override goes before it', (t) => {
  const { at, native } = installed(t)
  works(t, call(at))
  const elsewhere = join(folder(t), 'native')
  renameSync(native, elsewhere)
  works(t, call(at, { extra: { HOLDFAST_BINARY_PATH: elsewhere } }))
})

test('an override that is wrong is an error, with a good package beside it', (t) => {
  const { at, root, native } = installed(t)
  refused(
    t,
    call(at, { extra: { HOLDFAST_BINARY_PATH: root } }),
    /HOLDFAST_BINARY_PATH names .* which has no holdfast\./,
  )
  const other = folder(t)
  copyFileSync(join(native, ADDON), join(other, addonOf(foreign)))
  const result = call(at, { extra: { HOLDFAST_BINARY_PATH: other } })
  refused(t, result, new RegExp(`which has ${addonOf(foreign)}; this process needs ${ADDON}`))
})

test('a package that is missing: what may have left it out, and the fix', (t) => {
  const { at, native } = installed(t)
  rmSync(native, { recursive: true })
  const result = call(at)
  refused(t, result, new RegExp(`the package ${packageOf(built)} is not installed`))
  for (const cause of ['--omit=optional', 'lockfile', 'npm/cli#4828', 'remove node_modules and install again'])
    t.true(result.message.includes(cause), result.message)
})

test('another platform’s package instead: that it was made on another system', (t) => {
  const { at } = installed(t, { platform: foreign })
  refused(
    t,
    call(at),
    new RegExp(`${packageOf(built)} is not installed, but ${packageOf(foreign)} is: .*another system`),
  )
})

test('a system for which there is no package: its name, and those there are', (t) => {
  const { at } = installed(t)
  const before = "Object.defineProperty(process, 'arch', { value: 's390x' })"
  refused(t, call(at, { before }), /no holdfast build for linux-s390x \(there are builds for linux-x64-gnu, /)
})

test('bundled into another file: to leave it outside', (t) => {
  const { at, root } = installed(t)
  const bundle = join(folder(t), 'bundle')
  cpSync(join(root, 'dist'), bundle, { recursive: true })
  const body = RUN.replace("'holdfast'", JSON.stringify(join(bundle, 'index.js')))
  refused(t, call(at, { body }), /was bundled into another file. Leave it outside .*external.*HOLDFAST_BINARY_PATH/)
})

test('an import loads no addon and starts nothing; the first call loads the addon, and no other file', (t) => {
  const { at } = installed(t)
  const body = `
    const { readFileSync } = require('node:fs')
    const holdfast = require('holdfast')
    const loaded = () => Object.keys(require.cache).map((path) => path.split('/').pop())
    const children = () => readFileSync('/proc/self/task/' + process.pid + '/children', 'utf8').trim()
    const first = [loaded(), children()]
    holdfast.run('true').then(() => process.stdout.write(JSON.stringify([...first, loaded(), children()])))
  `
  const [files, before, all, after] = call(at, { body })
  t.false(files.includes(ADDON))
  t.is(before, '')
  t.deepEqual(all, [...files, ADDON])
  t.regex(after, /^\d+$/)
})

// ---- libc
test('libc is what the executable’s loader is of', (t) => {
  const at = folder(t)
  const executable = (name, interpreter) => {
    const bytes = Buffer.alloc(256)
    bytes.writeUInt32BE(0x7f454c46)
    bytes.writeUInt16BE(0x0201, 4)
    bytes.writeUInt16LE(62, 18)
    bytes.writeBigUInt64LE(64n, 32)
    bytes.writeUInt16LE(56, 54)
    bytes.writeUInt16LE(interpreter === undefined ? 0 : 1, 56)
    if (interpreter !== undefined) {
      bytes.writeUInt32LE(3, 64)
      bytes.writeBigUInt64LE(128n, 72)
      bytes.writeBigUInt64LE(BigInt(interpreter.length + 1), 96)
      bytes.write(interpreter, 128)
    }
    writeFileSync(join(at, name), bytes)
    return join(at, name)
  }
  const cases = [
    ['glibc', '/lib64/ld-linux-x86-64.so.2', 'glibc'],
    ['arm', '/lib/ld-linux-aarch64.so.1', 'glibc'],
    ['nix', '/nix/store/abc-glibc-2.40/lib/ld-linux-x86-64.so.2', 'glibc'],
    ['alpine', '/lib/ld-musl-x86_64.so.1', 'musl'],
    // Started by the loader itself, the executable is the loader.
    ['ld-musl-x86_64.so.1', undefined, 'musl'],
    ['ld-2.28.so', undefined, 'glibc'],
    ['ld-linux-x86-64.so.2', undefined, 'glibc'],
    ['static-node', undefined, undefined],
  ]
  for (const [name, interpreter, libc] of cases) t.is(libcOfProcess([executable(name, interpreter)]), libc, name)
  writeFileSync(join(at, 'text'), '#!/bin/sh\n')
  const fallback = executable('next', '/lib/ld-musl-x86_64.so.1')
  t.is(libcOfProcess([join(at, 'none'), join(at, 'text'), at, fallback]), 'musl')
  t.is(readElf(join(at, 'text')), undefined)
  t.is(libcOfProcess(), built.libc)
})

test('an exotic process.execPath changes nothing', (t) => {
  const { at } = installed(t)
  for (const path of ["''", "'/no/such'", "'relative'", 'undefined', JSON.stringify(at)])
    works(t, call(at, { before: `process.execPath = ${path}` }))
})

// ---- files that are wrong
const replaced = (path, from, to) => {
  const bytes = readFileSync(path)
  let count = 0
  for (let at = bytes.indexOf(from); at >= 0; at = bytes.indexOf(from, at + 1), count++) bytes.write(to, at)
  if (count === 0) throw new Error(`no ${from} in ${path}`)
  writeFileSync(path, bytes)
}
const OTHER_CPU = [
  (path) => {
    const bytes = readFileSync(path)
    bytes.writeUInt16LE(built.cpu === 'arm64' ? 62 : 183, 18)
    writeFileSync(path, bytes)
  },
  new RegExp(`is for ${foreign.cpu}, and this process is ${built.cpu}: .*install again`),
]
const WRONG = {
  'cut after the header': [
    (path) => writeFileSync(path, readFileSync(path).subarray(0, 1000)),
    /is damaged.*install again/,
  ],
  'cut in the middle': [
    (path) => writeFileSync(path, readFileSync(path).subarray(0, 300_000)),
    /is damaged.*it is cut.*install again/,
  ],
  'cut by one byte': [(path) => writeFileSync(path, readFileSync(path).subarray(0, -1)), /is damaged.*it is cut/],
  empty: [(path) => writeFileSync(path, ''), /is damaged.*install again/],
  'a text': [
    (path) => writeFileSync(path, 'version https://git-lfs.github.com/spec/v1\n'),
    /is damaged.*install again/,
  ],
  'for another architecture': OTHER_CPU,
  'another library': [(path) => copyFileSync(join(CHECKOUT, 'npm', built.name, helperFile), path), /./],
  'of another version': [
    (path) => replaced(path, version, version.replace(/^\d/, '9')),
    /is version '9\..*two versions are mixed; .*install again/,
  ],
}
if (built.libc === 'glibc') {
  WRONG['for a newer glibc'] = [
    (path) => {
      const newest = [...readFileSync(path, 'latin1').matchAll(/GLIBC_2\.\d\d/g)]
        .map(([one]) => one)
        .sort()
        .at(-1)
      replaced(path, newest, newest.replace('_2', '_9'))
    },
    /needs glibc 2\.17 or newer, and this system has an older one .*GLIBC_9/,
  ]
}
for (const [what, [change, pattern]] of Object.entries(WRONG)) {
  test(`bad addon: ${what}`, (t) => {
    const { at, addon } = installed(t)
    change(addon)
    const result = call(at)
    refused(t, result, pattern)
    if (/glibc|library/.test(what)) t.truthy(result.cause, 'the error of the loader is the cause')
  })
}

test('bad addon: for musl on glibc, or the other way round', (t) => {
  const { at, native, root } = installed(t)
  const other = platforms.find(({ cpu, libc }) => cpu === built.cpu && libc !== built.libc)
  const { whyNotLoaded } = require(join(root, 'dist/native/refusal.js'))
  const text = whyNotLoaded(join(native, ADDON), other, new Error('libc.so: invalid ELF header'))
  t.regex(text, new RegExp(`is for ${other.libc}, and this process runs on ${built.libc} .*install again`))
  t.truthy(at)
})

test('bad addon: a module that is none of ours', (t) => {
  const { at, addon } = installed(t)
  rmSync(addon)
  mkdirSync(addon)
  refused(t, call(at), /is damaged|could not be loaded|cannot be read/)
})

test('bad addon: a folder that this user must not read', (t) => {
  if (!has(t, NO_ROOT)) return
  const { at, native } = installed(t)
  chmodSync(at, 0o755)
  chmodSync(native, 0o700)
  chownSync(native, 0, 0)
  const drop = "process.setgid(65534); process.setuid(65534); process.chdir('/')"
  const closed = /linux-[\w-]+' cannot be read: .*EACCES.*; give this user the permission/
  refused(t, call(at, { before: `require('holdfast'); ${drop}` }), closed)
  refused(t, call(at, { before: `require('holdfast'); ${drop}`, extra: { HOLDFAST_BINARY_PATH: native } }), closed)
  chmodSync(native, 0o755)
  chmodSync(join(native, ADDON), 0o600)
  const result = call(at, { before: `require('holdfast'); ${drop}` })
  refused(t, result, /cannot be read: .*; give this user the permission/)
})

test('bad addon: one that is missing in its package, and a named pipe in its place', (t) => {
  const { at, addon } = installed(t)
  rmSync(addon)
  refused(t, call(at), /has no holdfast\..*, so that it is incomplete; .*install again/)
  execFileSync('mkfifo', [addon])
  refused(t, call(at), /is damaged, or no addon/)
})

test('an override that is relative is looked up once, from the working directory', (t) => {
  const { at, native } = installed(t)
  const elsewhere = join(at, '@holdfast', 'native')
  mkdirSync(join(at, '@holdfast'))
  renameSync(native, elsewhere)
  for (const path of ['@holdfast/native', './@holdfast/native', '@holdfast/../@holdfast/native/']) {
    const before = "require('holdfast').capabilities(); require('holdfast').resetHelper(); process.chdir('/');"
    works(t, call(at, { before, extra: { HOLDFAST_BINARY_PATH: path } }))
  }
})

// ---- a helper that is wrong
const CUT = 65_536
const WRONG_HELPERS = {
  cut: [
    (path) => writeFileSync(path, readFileSync(path).subarray(0, CUT)),
    /is damaged.*its end is missing.*install again/,
  ],
  'a script': [
    (path) => writeFileSync(path, '#!/bin/sh\nexit 0\n'),
    /is not of version .*or it is not the helper.*install again/,
  ],
  'another program': [
    (path) => copyFileSync('/bin/true', path),
    /is not of version .*or it is not the helper.*install again/,
  ],
  'for another architecture': OTHER_CPU,
}
const OLDER = (path) => replaced(path, version, version.replace(/^\d/, '9'))
const GUARD = `
  const child = require('node:child_process').spawn('sleep', ['10'], { detached: true })
  require('holdfast').guard(child).then(() => ({ stdout: 'guarded' }), ({ code, message }) => ({ code, message }))
    .then((result) => (child.kill('SIGKILL'), process.stdout.write(JSON.stringify(result))))
`
const ENGINE = `process.stdout.write(JSON.stringify({ asked: process.env.LEAN_CTX_SESSION_CONTAINMENT ?? null }))`

for (const [what, [change, pattern]] of Object.entries({
  ...WRONG_HELPERS,
  'of another version': [OLDER, /is not of version .*two versions are mixed.*install again/],
})) {
  test(`bad helper: ${what}: nothing becomes it`, (t) => {
    const { at, root, helper } = installed(t)
    rmSync(helper)
    copyFileSync(join(CHECKOUT, 'npm', built.name, helperFile), helper)
    change(helper)
    chmodSync(helper, 0o755)
    const line = [join(root, 'dist/cli.js'), 'run', '--', 'echo', 'ran']
    const { status, stdout, stderr } = spawnSync(process.execPath, line, {
      encoding: 'utf8',
      env: { ...process.env, ...env },
    })
    t.deepEqual([status, stdout], [125, ''])
    t.regex(stderr, pattern)
    const guarded = call(at, { body: GUARD })
    t.is(guarded.code, 'ERR_HOLDFAST_NO_HELPER')
    t.regex(guarded.message, pattern)
    const extra = { LEAN_CTX_SESSION_CONTAINMENT: '1' }
    t.deepEqual(call(at, { args: ['--import', 'holdfast/engine'], body: ENGINE, extra }), { asked: null })
  })
}

test('bad addon: a file system that is mounted with noexec', (t) => {
  if (!has(t, NO_MOUNT)) return
  const { at } = installed(t)
  const under = [
    'unshare',
    '--mount',
    'sh',
    '-c',
    `mount --bind '${at}' '${at}' && mount -o remount,bind,noexec '${at}' && exec "$0" "$@"`,
  ]
  refused(t, call(at, { under }), /mounted with noexec .*install it elsewhere/)
})

test('a read-only file system, and a full /tmp, are no hindrance', (t) => {
  if (!has(t, NO_MOUNT)) return
  const { at } = installed(t)
  const mounts = `mount --bind '${at}' '${at}' && mount -o remount,bind,ro '${at}'`
  works(t, call(at, { under: ['unshare', '--mount', 'sh', '-c', `${mounts} && exec "$0" "$@"`] }))
  // The project is in a /tmp that is hidden by the small one, and moved out of it before.
  const full = `mkdir -p /mnt && mount --bind '${at}' /mnt && mount -t tmpfs -o size=4k none /tmp; head -c 8192 /dev/zero > /tmp/full 2>/dev/null; cd /mnt && exec "$0" "$@"`
  works(t, call(at, { under: ['unshare', '--mount', 'sh', '-c', full] }))
})

test('a helper that lost its executable bit is repaired', (t) => {
  const { at, helper } = installed(t)
  chmodSync(helper, 0o644)
  works(t, call(at))
})

// ---- places
test('paths with spaces, quotes, %, other alphabets, and of 200 characters', (t) => {
  const names = [
    'with space',
    `it's "quoted"`,
    '100%25 %41',
    'ünïcødé-日本語-🦀',
    'x'.repeat(200),
    '#hash?query',
    '$HOME `id`',
  ]
  for (const name of names) {
    const at = join(folder(t), name)
    mkdirSync(at)
    installed(t, { at })
    works(t, call(at))
  }
})

test('NODE_PATH, --preserve-symlinks, and a package that is linked', (t) => {
  const { at, root } = installed(t)
  const elsewhere = folder(t)
  works(t, call(elsewhere, { extra: { NODE_PATH: join(at, 'node_modules') } }))
  mkdirSync(join(elsewhere, 'node_modules'))
  symlinkSync(root, join(elsewhere, 'node_modules/holdfast'))
  works(t, call(elsewhere))
  // The link is where it is resolved from then, and there is no package beside it.
  refused(t, call(elsewhere, { args: ['--preserve-symlinks'] }), /is not installed/)
  symlinkSync(join(at, 'node_modules/@holdfast'), join(elsewhere, 'node_modules/@holdfast'))
  works(t, call(elsewhere, { args: ['--preserve-symlinks'] }))
})

test('two versions in one process', (t) => {
  const { at } = installed(t)
  const other = installed(t)
  const later = version.replace(/^\d/, '9')
  replaced(join(other.root, 'dist/native/version.js'), version, later)
  replaced(other.addon, version, later)
  const body = `
    const [one, two] = [require('holdfast'), require(${JSON.stringify(other.root)})]
    const said = (holdfast) => holdfast.run('echo', ['works']).then(({ stdout }) => stdout, ({ message }) => message)
    Promise.all([said(one), said(two), said(one)]).then((all) => process.stdout.write(JSON.stringify(all)))
  `
  t.deepEqual(call(at, { body }), ['works\n', 'works\n', 'works\n'])
})

// ---- archives
const asElectron = "Object.defineProperty(process.versions, 'electron', { value: '25.0.0' })"

test('inside an asar the unpacked files are taken, once, whatever the archive is called', (t) => {
  for (const archive of ['app.asar', 'extension.v2.asar']) {
    const at = folder(t)
    const { native } = installed(t, { at: join(at, archive) })
    const unpacked = join(at, `${archive}.unpacked`)
    refused(
      t,
      call(join(at, archive), { before: asElectron }),
      /inside an archive.*asarUnpack: \['\*\*\/node_modules\/@holdfast\/\*\*'\]/,
    )
    // A folder of that name, where there are no archives.
    works(t, call(join(at, archive)))
    mkdirSync(join(unpacked, 'node_modules/@holdfast'), { recursive: true })
    renameSync(native, join(unpacked, 'node_modules', packageOf(built)))
    mkdirSync(native)
    copyFileSync(join(CHECKOUT, 'npm', built.name, 'package.json'), join(native, 'package.json'))
    works(t, call(join(at, archive), { before: asElectron }))
  }
  const { at } = installed(t, { at: join(folder(t), 'app.asar.unpacked') })
  works(t, call(at, { before: asElectron }))
})

// ---- permissions
test('node --permission: refused children are ERR_ACCESS_DENIED, and each refusal names its flag', (t) => {
  const { at } = installed(t)
  const allowed = [PERMISSION, '--allow-fs-read=*']
  const children = call(at, { args: [...allowed] })
  refused(t, children, /start Node.js with --allow-child-process/, 'ERR_ACCESS_DENIED')
  const both = ['--allow-child-process', '--allow-addons'].filter((flag) =>
    process.allowedNodeEnvironmentFlags.has(flag),
  )
  if (both.length < 2 && MAJOR < 22) t.log('this Node.js has no --allow-addons')
  const addons = call(at, { args: [...allowed, '--allow-child-process'] })
  if (addons.stdout === undefined) refused(t, addons, /under --permission with --allow-addons/)
  const flags = both.includes('--allow-addons') ? both : ['--allow-child-process']
  const read = [PERMISSION, `--allow-fs-read=${join(at, 'node_modules/holdfast')}/*`, ...flags]
  const unread = call(at, { args: read })
  if (unread.stdout === undefined) refused(t, unread, /--allow-fs-read=/)
})

test('what is no error of a file says what its cause was', (t) => {
  const { at } = installed(t)
  const before = `require('node:module')._extensions['.node'] = () => { throw new Error('the cause') }`
  const result = call(at, { before })
  refused(t, result, /could not be loaded: the cause/)
  t.is(result.cause, 'the cause')
})
