// What is published loads by every entry, with require and with import, and has one version.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import test from './support/test.mjs'

const require = createRequire(import.meta.url)
const CHECKOUT = fileURLToPath(new URL('..', import.meta.url))

for (const entry of ['holdfast', 'holdfast/session']) {
  test(`the ESM wrapper of ${entry} exports every name of the CommonJS build, and the same values`, async (t) => {
    const commonjs = require(entry)
    const { default: _, ...esm } = await import(entry)
    t.deepEqual(Object.keys(esm).sort(), Object.keys(commonjs).sort())
    for (const name of Object.keys(esm)) t.is(esm[name], commonjs[name], name)
  })
}

test('addon and package have one version', (t) => {
  const addon = require('@holdfast/linux-x64-gnu/holdfast.linux-x64-gnu.node')
  t.is(addon.version(), require('holdfast/package.json').version)
})

/** What npm would publish, among the packages of a project. */
function installed(t) {
  const project = mkdtempSync(join(tmpdir(), 'holdfast-package-'))
  t.teardown(() => rmSync(project, { recursive: true }))
  const env = { ...process.env, npm_config_cache: join(project, 'cache'), npm_config_update_notifier: 'false' }
  const packed = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', project], {
    cwd: CHECKOUT,
    env,
    encoding: 'utf8',
  })
  const [{ filename }] = JSON.parse(packed)
  const packages = join(project, 'node_modules')
  mkdirSync(join(packages, '@holdfast'), { recursive: true })
  execFileSync('tar', ['-xzf', join(project, filename), '-C', packages])
  renameSync(join(packages, 'package'), join(packages, 'holdfast'))
  symlinkSync(join(CHECKOUT, 'npm/linux-x64-gnu'), join(packages, '@holdfast/linux-x64-gnu'))
  return { project, folder: join(packages, 'holdfast') }
}

test('the packed package: every entry is there, loads with require and import, and works', (t) => {
  const { project, folder } = installed(t)
  const { exports, bin } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const files = [exports, bin].flatMap(function paths(value) {
    return typeof value === 'string' ? [value] : Object.values(value).flatMap(paths)
  })
  t.deepEqual(
    files.filter((file) => !existsSync(join(folder, file))),
    [],
  )

  const node = (...args) => execFileSync(process.execPath, args, { cwd: project, encoding: 'utf8' })
  const body = `startSession('echo', ['works']).then(async (session) => {
    for await (const chunk of session.stdout) process.stdout.write(chunk)
    process.stdout.write(run.name + String((await session.ended).outcome))
  })`
  const required = `require('holdfast/engine')
    const { run } = require('holdfast')
    const { startSession } = require('holdfast/session')`
  const imported = `import 'holdfast/engine'
    import { run } from 'holdfast'
    import { startSession } from 'holdfast/session'`
  const printed = 'works\nrunended'
  t.is(node('-e', `${required}\n${body}`), printed)
  t.is(node('--input-type=module', '-e', `${imported}\n${body}`), printed)
  t.is(node('--import', 'holdfast/engine', '--require', 'holdfast/engine', '-p', '1'), '1\n')
})
