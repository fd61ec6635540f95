/**
 * Finds addon and helper: in the folder that HOLDFAST_BINARY_PATH names, else in the platform package, else beside a
 * checkout. An override that is wrong is an error, never a reason to look elsewhere. The helper is looked for in the
 * package: an addon inside an archive is loaded from a temporary copy, beside which there is nothing.
 */
import { accessSync, chmodSync, constants, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { codes, HoldfastError } from '../report/errors'
import { FILES } from '../report/messages'
import type { Native } from './addon'
import { libcOfProcess, readElf } from './executable'
import { addonOf, helperFile, type Platform, packageOf, platforms } from './platforms'
import { isRefusedChildren, isRefusedToRead, whyNotLoaded, whyNotToLoad } from './refusal'
import { version } from './version'

const OVERRIDE = 'HOLDFAST_BINARY_PATH'
/** For Electron's packagers. */
const UNPACKED = '**/node_modules/@holdfast/**'

export interface HelperFile {
  readonly path: string
  /** '' when the file can be executed. */
  readonly problem: string
}
export interface Loaded {
  readonly native: Native
  readonly helper: HelperFile
}
interface Located {
  readonly folder: string
  readonly platform: Platform
}

/** This file, or what it was bundled into. An ES module has no such name, and neither has its program a better one. */
const HERE = typeof __filename === 'string' ? __filename : (process.argv[1] ?? process.execPath)
/** Not `require`, of which a bundler would make its own. */
const requireHere = createRequire(HERE)
/** The package's folder: this file is two below it, in dist/. */
const ROOT = join(dirname(HERE), '..', '..')

/** @throws HoldfastError whose message has what is wrong, and what to do */
export function load(): Loaded {
  if (isRefusedChildren()) throw failure(FILES.childrenRefused, { code: codes.accessDenied })
  const { folder, platform } = locate()
  const path = join(folder, addonOf(platform))
  const problem = whyNotToLoad(path)
  if (problem !== '') throw failure(problem)
  let native: Native
  try {
    native = requireHere(path) as Native
  } catch (error) {
    throw failure(whyNotLoaded(path, platform, error as Error), { cause: error })
  }
  if (typeof native.version !== 'function') throw failure(FILES.notOurs(path))
  if (native.version() !== version) throw failure(FILES.version(path, native.version(), version))
  return { native, helper: helperIn(folder) }
}

/** The helper and the version of what it came with, from files alone. */
export function inspectHelper(): HelperFile & { readonly version: string } {
  const { folder } = locate()
  return { ...helperIn(folder), version: versionIn(folder) ?? version }
}

/** @throws HoldfastError */
function locate(): Located {
  const here = platforms.filter(({ os, cpu }) => os === process.platform && cpu === process.arch)
  const libc = here.length > 1 ? libcOfProcess() : undefined
  const fitting = libc === undefined ? here : here.filter((one) => one.libc === libc)
  const [first] = fitting
  if (first === undefined) {
    const known = platforms.map(({ name }) => name)
    throw failure(FILES.platform(`${process.platform}-${process.arch}`, known))
  }
  const override = process.env[OVERRIDE]
  // Once: the working directory may change, and Node.js would look a bare name up elsewhere.
  if (override) return overridden(resolve(override), fitting, first)

  const tried: string[] = []
  for (const platform of fitting) {
    for (const found of [packageFolder(platform), join(ROOT, 'npm', platform.name)]) {
      if (found === undefined) {
        tried.push(packageOf(platform))
        continue
      }
      const folder = outOfArchive(found)
      if (exists(join(folder, addonOf(platform)))) return { folder: outsideOfZip(folder, platform), platform }
      if (folder !== found && exists(join(found, addonOf(platform)))) {
        throw failure(FILES.archived(join(found, addonOf(platform)), UNPACKED))
      }
      tried.push(folder)
    }
  }
  throw whyMissing(first, tried)
}

function overridden(folder: string, fitting: readonly Platform[], first: Platform): Located {
  const platform = fitting.find((one) => exists(join(folder, addonOf(one))))
  if (platform !== undefined) return { folder, platform }
  if (isRefusedToRead(folder)) throw failure(FILES.readRefused(folder))
  const { names, refused } = listed(folder)
  if (refused !== undefined) throw failure(FILES.unreadable(folder, refused.message), { cause: refused })
  const [found] = names.filter((name) => /^holdfast\..*\.node$/.test(name))
  if (found !== undefined) throw failure(FILES.overrideForeign(OVERRIDE, folder, addonOf(first), found))
  throw failure(FILES.override(OVERRIDE, folder, addonOf(first)))
}

function whyMissing(platform: Platform, tried: readonly string[]): HoldfastError {
  const name = packageOf(platform)
  const packages = join(dirname(ROOT), '@holdfast')
  if (isRefusedToRead(packages)) return failure(FILES.readRefused(packages))
  for (const folder of [packages, join(dirname(ROOT), name)]) {
    const { names, refused } = listed(folder)
    if (refused !== undefined) return failure(FILES.unreadable(folder, refused.message), { cause: refused })
    if (folder !== packages && names.length > 0) return failure(FILES.incomplete(folder, addonOf(platform)))
  }
  const others = platforms.filter((one) => packageFolder(one) !== undefined).map(packageOf)
  if (others.length > 0) return failure(FILES.foreign(name, others))
  return failure(isBundled() ? FILES.bundled(name, OVERRIDE) : FILES.missing(name, tried))
}

/** What is in a folder, or why this user must not see it. */
function listed(folder: string): { readonly names: readonly string[]; readonly refused?: Error } {
  try {
    return { names: readdirSync(folder) }
  } catch (error) {
    const isRefused = (error as NodeJS.ErrnoException).code === 'EACCES'
    return isRefused ? { names: [], refused: error as Error } : { names: [] }
  }
}

function isBundled(): boolean {
  return !exists(join(ROOT, 'package.json')) || !exists(join(ROOT, 'dist', 'native'))
}

function packageFolder(platform: Platform): string | undefined {
  try {
    return dirname(requireHere.resolve(`${packageOf(platform)}/package.json`))
  } catch {
    return undefined
  }
}

/**
 * Electron shows files inside an archive, but the system cannot execute them there. Once: never `.unpacked.unpacked`.
 * Elsewhere a folder may be named so, and then its files are where they seem to be.
 */
function outOfArchive(path: string): string {
  const unpacked = path.replace(/(\.asar)(?=[\\/])/, '$1.unpacked')
  return process.versions.electron === undefined && !exists(unpacked) ? path : unpacked
}

/** Yarn's Plug'n'Play shows files inside a zip archive in the same way. */
function outsideOfZip(folder: string, platform: Platform): string {
  if (process.versions.pnp !== undefined && /\.zip[\\/]/.test(folder)) {
    throw failure(FILES.zipped(join(folder, addonOf(platform)), packageOf(platform)))
  }
  return folder
}

/** Some installers drop the executable bit. */
function helperIn(folder: string): HelperFile {
  const path = join(folder, helperFile)
  if (!exists(path)) return { path, problem: FILES.helperMissing(path) }
  if (isExecutable(path)) return { path, problem: '' }
  try {
    chmodSync(path, 0o755)
  } catch (error) {
    return { path, problem: FILES.helperNotExecutable(path, (error as Error).message) }
  }
  return { path, problem: isExecutable(path) ? '' : FILES.helperNotExecuted(path) }
}

/**
 * For what becomes the helper, or starts one that says nothing of itself: whether it is the helper of this version, as its
 * own text says, and all there. What is cut would end the process by a signal, and another program do something else.
 */
export function verified({ path, problem }: HelperFile): HelperFile {
  return { path, problem: problem === '' ? whyNotTheHelper(path) : problem }
}

function whyNotTheHelper(path: string): string {
  try {
    const elf = readElf(path)
    if (elf?.isCut) return FILES.helperDamaged(path, 'its end is missing')
    if (elf !== undefined && elf.cpu !== process.arch) return FILES.architecture(path, elf.cpu, process.arch)
    return readFileSync(path).includes(`holdfast-helper ${version}: `) ? '' : FILES.helperVersion(path, version)
  } catch {
    // It can be executed without being read.
    return ''
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') return false
    // Deno asks for permission to know the user, and its mode has to do.
    return ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o111) !== 0
  }
}

/** What must not be looked at is not there. */
function exists(path: string): boolean {
  try {
    return existsSync(path)
  } catch {
    return false
  }
}

function versionIn(folder: string): string | undefined {
  try {
    return (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string }).version
  } catch {
    return undefined
  }
}

function failure(message: string, { code = codes.noHelper, cause }: { code?: string; cause?: unknown } = {}) {
  return new HoldfastError(message, { code, cause, step: 'helper' })
}
