// The check of imports (scripts/check-imports.mjs) finds what it is to find: a direction that is wrong, and circles.
import { circles, namesOfTheGround, rust, typeScript, wrongWays } from '../scripts/check-imports.mjs'
import test from './support/test.mjs'

const files = (texts) => new Map(Object.entries(texts))

test('a folder of src must not import one above it, not even a type', (t) => {
  const graph = typeScript(
    files({
      'report/errors.ts': "import type { Native } from '../native/addon'",
      'native/addon.ts': "import { errors } from '../report/errors'",
      'cli/main.ts': "const native = require('../native/addon')",
    }),
  )
  t.deepEqual(wrongWays('src', graph), ['src/report/errors.ts imports src/native/addon.ts, which is above it'])
})

test('a folder of src that has no floor is a problem', (t) => {
  t.is(wrongWays('src', typeScript(files({ 'new/file.ts': '' }))).length, 1)
})

test('a floor of the core must not use one above it, wherever that is re-exported', (t) => {
  const graph = rust(
    files({
      'lib.rs': 'mod ends;\nmod sys;',
      'ends/mod.rs': 'pub mod ladder;\npub use ladder::BUDGET;',
      'ends/ladder.rs': 'use crate::sys::Pid;\npub const BUDGET: u32 = 5;',
      'sys/mod.rs': 'mod unix;\npub use unix::*;',
      'sys/unix/mod.rs': 'pub struct Pid;\nconst A: u32 = crate::ends::BUDGET;',
    }),
  )
  t.deepEqual(wrongWays('core', graph), ['core::sys::unix imports core::ends::ladder, which is above it'])
})

test('no file above sys names the system: its libraries, or descriptors by their numbers', (t) => {
  const sources = files({
    'sys/unix/pid.rs': 'pub fn own() -> i32 { unsafe { libc::getpid() } }',
    'ends/group.rs': 'fn wait(fd: RawFd) { rustix::event::poll(fd); rustix::io::read(fd); }',
    'host/reactor.rs': 'use std::os::fd::OwnedFd;',
    'host/unix/call.rs': 'use std::os::fd::OwnedFd;',
    'ends/tree.rs': '// libc::kill\nfn kill() {}\n#[cfg(test)]\nmod tests {\n    use libc::SIGKILL;\n}\n',
  })
  t.deepEqual(namesOfTheGround(sources), [
    'core: ends/group.rs names RawFd, which only sys/ may',
    'core: ends/group.rs names rustix::, which only sys/ may',
    'core: host/reactor.rs names std::os::fd, which only sys/ may',
  ])
})

test('no file above sys is compiled for one platform only, but for the choice of a folder in host', (t) => {
  const choice = '#[cfg(unix)]\nmod unix;\n#[cfg(unix)]\nuse unix as os;\n'
  const sources = files({
    'sys/mod.rs': '#[cfg(target_os = "linux")]\nmod linux;\n',
    'host/mod.rs': `${choice}#[cfg(windows)]\nfn close() {}\n`,
    'host/reactor.rs': choice,
    'roles/run.rs': 'fn end() { if cfg!(target_os = "linux") {} }',
    'ends/group.rs': '#[cfg(all(feature = "stops", not(unix)))]\nfn look() {}\n// cfg(unix)\n',
    'ends/tree.rs': '#[cfg(feature = "stops")]\nfn stop() {}\n#[cfg(test)]\nmod tests {\n}\n',
  })
  t.deepEqual(namesOfTheGround(sources), [
    'core: host/mod.rs names cfg(windows), which only sys/ may',
    'core: host/reactor.rs names cfg(unix), which only sys/ may',
    'core: roles/run.rs names cfg!(target_os), which only sys/ may',
    'core: ends/group.rs names cfg(all(feature = "stops", not(unix), which only sys/ may',
  ])
})

test('a circle of TypeScript files is found, by whatever kind of import', (t) => {
  const graph = typeScript(
    files({
      'call/a.ts': "import { b } from './b'",
      'call/b.ts': "export { c } from './c'",
      'call/c.ts': "type A = typeof import('./a')",
      'call/d.ts': "import { a } from './a'",
    }),
  )
  t.deepEqual(circles(graph), [['call/a.ts', 'call/b.ts', 'call/c.ts']])
})

test('a circle of Rust modules is found through re-exports, groups and paths', (t) => {
  const graph = rust(
    files({
      'lib.rs': 'pub mod ends; mod sys; pub use ends::End;',
      'ends.rs': 'use crate::sys::{self, os::{Handle, Pid}};\npub struct End;',
      'sys/mod.rs': 'mod os;\npub use os::*;',
      'sys/os.rs': 'pub struct Handle;\npub fn end() -> crate::End {}',
    }),
  )
  t.deepEqual(circles(graph), [['ends', 'sys::os']])
})

test('no circle: comments, the tests of a Rust module, and what a parent passes on', (t) => {
  const graph = rust(
    files({
      'lib.rs': 'mod a;\nmod b;\npub use a::A;',
      'a.rs': '//! See [`B`](crate::b::B).\npub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n',
      'b.rs': 'use crate::A;\npub struct B;',
    }),
  )
  t.deepEqual(circles(graph), [])
})
