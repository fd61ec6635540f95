/**
 * Finds addon and helper: in the folder that HOLDFAST_BINARY_PATH names, else in the platform package, else
 * beside a checkout. An override that is wrong is an error, never a reason to look elsewhere.
 */
import { accessSync, chmodSync, constants, existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { codes, HoldfastError } from '../report/errors'
import { FILES } from '../report/messages'
import type { Native } from './addon'
import { helperFile } from './platforms'
import { version } from './version'

const OVERRIDE = 'HOLDFAST_BINARY_PATH'
/** The platform packages that there are, by `${platform}-${arch}`. */
const TARGETS: { readonly [platform: string]: string } = { 'linux-x64': 'linux-x64-gnu' }

export interface HelperFile {
  readonly path: string
  /** '' when the file can be executed. */
  readonly problem: string
}
export interface Loaded {
  readonly native: Native
  readonly helper: HelperFile
}

/** The package's folder: this file is two below it, in dist/. */
const ROOT = join(__dirname, '..', '..')

/** @throws HoldfastError that says what was tried */
export function load(): Loaded {
  const { folder, addon } = locate()
  const path = join(folder, addon)
  let native: Native
  try {
    native = require(path) as Native
  } catch (error) {
    throw failure(FILES.unloadable(path, (error as Error).message))
  }
  if (native.version() !== version) throw failure(FILES.version(path, native.version(), version))
  return { native, helper: helperIn(folder) }
}

/** The helper and the version of what it came with, from files alone. */
export function inspectHelper(): HelperFile & { readonly version: string } {
  const { folder } = locate()
  return { ...helperIn(folder), version: versionIn(folder) ?? version }
}

function locate(): { folder: string; addon: string } {
  const platform = `${process.platform}-${process.arch}`
  const target = TARGETS[platform]
  if (target === undefined) throw failure(FILES.platform(platform))
  const addon = `holdfast.${target}.node`

  const override = process.env[OVERRIDE]
  if (override) {
    if (!existsSync(join(override, addon))) throw failure(FILES.override(OVERRIDE, override, addon))
    return { folder: override, addon }
  }
  const tried: string[] = []
  for (const folder of [packageFolder(`@holdfast/${target}`, tried), join(ROOT, 'npm', target)]) {
    if (folder === undefined) continue
    const unpacked = outOfArchive(folder)
    if (existsSync(join(unpacked, addon))) return { folder: unpacked, addon }
    tried.push(unpacked)
  }
  throw failure(FILES.missing(addon, tried))
}

function packageFolder(name: string, tried: string[]): string | undefined {
  try {
    return dirname(require.resolve(`${name}/package.json`))
  } catch {
    tried.push(name)
    return undefined
  }
}

/** Electron shows files inside an archive, but the system cannot execute them there. Once: never `.unpacked.unpacked`. */
function outOfArchive(path: string): string {
  return path.replace(/([\\/]app\.asar)(?=[\\/])/, '$1.unpacked')
}

/** Some installers drop the executable bit. */
function helperIn(folder: string): HelperFile {
  const path = join(folder, helperFile)
  if (!existsSync(path)) return { path, problem: FILES.helperMissing(path) }
  if (isExecutable(path)) return { path, problem: '' }
  try {
    chmodSync(path, 0o755)
  } catch (error) {
    return { path, problem: FILES.helperNotExecutable(path, (error as Error).message) }
  }
  return { path, problem: isExecutable(path) ? '' : FILES.helperNotExecuted(path) }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
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

const failure = (message: string) => new HoldfastError(message, { code: codes.noHelper, step: 'helper' })
