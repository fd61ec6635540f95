// How addon and helper of each platform are built on an x64 machine with glibc.
//
// The standard library is built along, without its printer of stack traces (docs/decisions/0033). That needs its source:
// rustup's component rust-src, or a distribution's package. The addon for glibc is linked against an old glibc by the
// toolchains of napi-rs; for musl, and for the helper, against the musl of the distribution.
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { pinned } from '../pinned.mjs'

export class ToolchainError extends Error {}

const HERE = dirname(fileURLToPath(import.meta.url))
const ARCHITECTURES = { x64: 'x86_64', arm64: 'aarch64' }

/**
 * @param {string} folder for everything that is built; of its own for each build
 * @returns {Promise<{ addon: string, helper: string }>} paths
 */
export function build(platform, folder) {
  const rust = findRust()
  const architecture = ARCHITECTURES[platform.cpu]
  const musl = `${architecture}-unknown-linux-musl`
  const unwinder = buildUnwinder(architecture, folder)
  // Nothing of the machine that built it is to be in it, so that another one's build is the same.
  const remap = [
    [process.cwd(), '/holdfast'],
    [resolve(folder), '/target'],
    [process.env.CARGO_HOME ?? join(homedir(), '.cargo'), '/cargo'],
    [rust.library, '/rust'],
  ].flatMap(([from, to]) => ['--remap-path-prefix', `${from}=${to}`])
  const search = ['-L', `native=${unwinder}`, '-C', 'link-self-contained=no']

  const helper = cargo(rust, folder, {
    target: musl,
    linker: muslLinker(architecture, folder),
    flags: [...remap, ...search, '-C', 'target-feature=+crt-static', '-C', 'relocation-model=static'],
    args: ['--package', 'holdfast-helper', '--bin', 'holdfast-helper', '--profile', 'helper'],
    std: ['std,panic_abort', ''],
    made: ['helper', 'holdfast-helper'],
  })
  const addon = cargo(rust, folder, {
    target: platform.target,
    linker: platform.libc === 'musl' ? muslLinker(architecture, folder) : oldGlibcLinker(architecture),
    flags: platform.libc === 'musl' ? [...remap, ...search, '-C', 'target-feature=-crt-static'] : remap,
    args: ['--package', 'holdfast-node', '--release'],
    std: ['std,panic_unwind', 'panic-unwind'],
    made: ['release', 'libholdfast_node.so'],
  })
  return { addon, helper }
}

function cargo(rust, folder, { target, linker, flags, args, std: [crates, features], made }) {
  const upper = target.toUpperCase().replaceAll('-', '_')
  // Flags of the one are not the other's: a folder for each, else everything is built anew each time.
  const targetFolder = join(resolve(folder), made[0])
  const env = {
    ...process.env,
    RUSTC: rust.rustc,
    // The flags of cargo below are not stable yet.
    RUSTC_BOOTSTRAP: '1',
    CARGO_TARGET_DIR: targetFolder,
    CARGO_INCREMENTAL: '0',
    CARGO_ENCODED_RUSTFLAGS: flags.join('\x1f'),
    [`CARGO_TARGET_${upper}_LINKER`]: linker,
  }
  const unstable = [`-Zbuild-std=${crates}`, `-Zbuild-std-features=${features}`]
  const { status, stderr } = spawnSync(rust.cargo, ['build', '--locked', '--target', target, ...args, ...unstable], {
    env,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: ['ignore', 'inherit', 'pipe'],
  })
  if (status !== 0) throw new ToolchainError(`cargo build for ${target} failed:\n${stderr}`)
  return join(targetFolder, target, ...made)
}

/** A cargo and its compiler whose standard library can be built. */
function findRust() {
  const tried = []
  for (const folder of [...(process.env.PATH ?? '').split(':'), '/usr/bin']) {
    const [cargo, rustc] = [join(folder, 'cargo'), join(folder, 'rustc')]
    if (!existsSync(cargo) || !existsSync(rustc) || tried.includes(rustc)) continue
    tried.push(rustc)
    const sysroot = execFileSync(rustc, ['--print', 'sysroot'], { encoding: 'utf8' }).trim()
    const library = join(sysroot, 'lib/rustlib/src/rust/library')
    if (existsSync(join(library, 'Cargo.lock'))) return { cargo, rustc, library }
  }
  throw new ToolchainError(
    `no Rust toolchain has the source of its standard library (tried: ${tried.join(', ')}): rustup component add rust-src`,
  )
}

/** musl-gcc for any architecture. */
function muslLinker(architecture, folder) {
  const specs = `/usr/lib/${architecture}-linux-musl/musl-gcc.specs`
  need(specs, architecture === 'x86_64' ? 'musl-tools' : 'musl-dev:arm64')
  const path = join(resolve(folder), `${architecture}-linux-musl-gcc`)
  writeFileSync(path, `#!/bin/sh\nexec ${architecture}-linux-gnu-gcc "$@" -specs ${specs}\n`)
  chmodSync(path, 0o755)
  return path
}

/** Rust's name for it is libunwind where it is linked statically, and libgcc_s where it is not. */
function buildUnwinder(architecture, folder) {
  const gcc = `${architecture}-linux-gnu-gcc`
  const system = dirname(printed(gcc, ['-print-libgcc-file-name'], 'gcc-aarch64-linux-gnu'))
  const out = join(resolve(folder), 'unwind', architecture)
  mkdirSync(out, { recursive: true })
  const object = join(out, 'find-object.o')
  const headers = [
    '-nostdinc',
    '-isystem',
    `/usr/include/${architecture}-linux-musl`,
    '-isystem',
    join(system, 'include'),
  ]
  execFileSync(gcc, ['-Os', '-fPIC', ...headers, '-c', join(HERE, 'find-object.c'), '-o', object])
  for (const name of ['libunwind.a', 'libgcc_s.a']) {
    cpSync(join(system, 'libgcc_eh.a'), join(out, name))
    execFileSync(`${architecture}-linux-gnu-ar`, ['rD', join(out, name), object], { stdio: 'ignore' })
  }
  return out
}

function oldGlibcLinker(architecture) {
  const folder = join(
    pinned(join(HERE, 'tools'), 'release-tools'),
    'node_modules/@napi-rs',
    `cross-toolchain-x64-target-${architecture}`,
  )
  const linker = join(folder, 'bin', `${architecture}-unknown-linux-gnu-gcc`)
  if (!existsSync(linker)) {
    const [archive] = readdirSync(folder).filter((name) => name.endsWith('.tar.xz'))
    execFileSync('tar', ['-xJf', join(folder, archive), '-C', folder])
  }
  return linker
}

function need(path, what) {
  if (!existsSync(path)) throw new ToolchainError(`${path} is missing (Debian: ${what})`)
}

function printed(command, args, what) {
  try {
    return execFileSync(command, args, { encoding: 'utf8' }).trim()
  } catch (error) {
    throw new ToolchainError(`${command} does not run (Debian: ${what}): ${error.message}`)
  }
}
