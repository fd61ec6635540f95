// One command changes the version everywhere, and the check finds each place that was left out.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { folder } from './support/suite.mjs'
import test from './support/test.mjs'

const CHECKOUT = fileURLToPath(new URL('..', import.meta.url))
const PLACES = ['package.json', 'package-lock.json', 'Cargo.toml', 'Cargo.lock', 'src/native/version.ts']

/** The part of a checkout that has a version. */
function checkout(t) {
  const at = folder(t)
  for (const name of [...PLACES, 'scripts', 'src/native', 'npm']) {
    mkdirSync(join(at, name, '..'), { recursive: true })
    cpSync(join(CHECKOUT, name), join(at, name), { recursive: true, filter: (path) => !path.endsWith('.node') })
  }
  for (const crate of ['wire', 'core', 'helper', 'node']) {
    cpSync(join(CHECKOUT, 'crates', crate, 'Cargo.toml'), join(at, 'crates', crate, 'Cargo.toml'))
    for (const name of ['lib.rs', 'main.rs']) {
      mkdirSync(join(at, 'crates', crate, 'src'), { recursive: true })
      writeFileSync(join(at, 'crates', crate, 'src', name), '')
    }
  }
  const node = (...args) => spawnSync(process.execPath, args, { cwd: at, encoding: 'utf8' })
  return {
    at,
    set: (version) => node('scripts/release/version.mjs', version),
    check: () => node('scripts/check-manifests.mjs'),
  }
}

test('one command changes every version, and the check agrees', (t) => {
  const { at, set, check } = checkout(t)
  t.is(check().status, 0, check().stderr)
  t.is(set('12.3.4-beta.1').status, 0)
  for (const place of [...PLACES, 'npm/linux-x64-musl/package.json']) {
    t.true(readFileSync(join(at, place), 'utf8').includes('12.3.4-beta.1'), place)
  }
  t.is(check().status, 0, check().stderr)
  const { status, stderr } = set('12.3')
  t.is(status, 1)
  t.regex(stderr, /no version: 12\.3/)
})

test('a place that has another version is found', (t) => {
  const { at, check } = checkout(t)
  const { version } = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'))
  for (const place of [
    'npm/linux-arm64-gnu/package.json',
    'Cargo.toml',
    'src/native/version.ts',
    'package-lock.json',
  ]) {
    const text = readFileSync(join(at, place), 'utf8')
    writeFileSync(join(at, place), text.replaceAll(version, '99.0.0'))
    t.is(check().status, 1, place)
    writeFileSync(join(at, place), text)
  }
})
