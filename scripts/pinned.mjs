// Tools that only long runs need: a package.json and its lockfile in the repository, installed below target/ when they are
// asked for. Not among the devDependencies, since they are large.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, readFileSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'

/**
 * @param {string} source folder with package.json and package-lock.json
 * @param {string} name of the folder below target/
 * @returns {string} that folder, absolute
 */
export function pinned(source, name) {
  const folder = resolve('target', name)
  const current = join(folder, 'package-lock.json')
  const isCurrent = existsSync(current) && readFileSync(current).equals(readFileSync(join(source, 'package-lock.json')))
  if (isCurrent && existsSync(join(folder, 'node_modules'))) return folder
  rmSync(folder, { recursive: true, force: true })
  cpSync(source, folder, { recursive: true })
  const npm = ['ci', '--loglevel=error', '--no-audit', '--no-fund', '--ignore-scripts']
  execFileSync('npm', npm, { cwd: folder, stdio: 'inherit' })
  return folder
}
