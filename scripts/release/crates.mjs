// The crates that are compiled into addon and helper, and what they come with besides.
import { execFileSync } from 'node:child_process'
import { dirname } from 'node:path'

/** Not in Cargo.lock, and in every binary. */
export const BESIDES = [
  {
    name: 'rust-std',
    version: 'of the compiler',
    license: 'MIT OR Apache-2.0',
    authors: ['The Rust Project Developers'],
    repository: 'https://github.com/rust-lang/rust',
  },
  {
    name: 'musl',
    version: 'in the helper, and in addons for musl',
    license: 'MIT',
    authors: ['2005-2020 Rich Felker, et al.'],
    repository: 'https://musl.libc.org',
  },
  {
    name: 'libgcc_eh',
    version: 'in the helper, and in addons for musl',
    license: 'GPL-3.0-or-later WITH GCC-exception-3.1',
    authors: ['Free Software Foundation, Inc.'],
    repository: 'https://gcc.gnu.org',
  },
]

/** @returns entries of `cargo metadata`, by name; proc macros are among them, dependencies of build scripts are not */
export function crates() {
  const args = ['metadata', '--format-version=1', '--locked', '--filter-platform', 'x86_64-unknown-linux-gnu']
  const { packages, resolve, workspace_members } = JSON.parse(execFileSync('cargo', args, { maxBuffer: 1 << 28 }))
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]))
  const reached = new Set()
  const visit = (id) => {
    if (reached.has(id)) return
    reached.add(id)
    const compiledIn = ({ dep_kinds }) => dep_kinds.some(({ kind }) => kind === null)
    for (const { pkg } of nodes.get(id).deps.filter(compiledIn)) visit(pkg)
  }
  for (const id of workspace_members) visit(id)
  return packages
    .filter(({ id }) => reached.has(id) && !workspace_members.includes(id))
    .map((crate) => ({ ...crate, folder: dirname(crate.manifest_path) }))
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}
