// What Electron's packagers leave outside of the archive with their defaults, by the library that they use and their own
// globs, is all that a call needs.
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import asar from '@electron/asar'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const { platforms, packageOf, addonOf, helperFile } = createRequire(import.meta.url)('../dist/native/platforms.js')
const CHECKOUT = fileURLToPath(new URL('..', import.meta.url))
const built = platforms.find((one) => existsSync(join(CHECKOUT, 'npm', one.name, addonOf(one))))
const NATIVE = join('node_modules', packageOf(built))

const PACKAGERS = {
  'electron-forge, auto-unpack-natives': { unpack: '**/{.**,**}/**/*.node' },
  'electron-forge, auto-unpack-natives before 7.5': { unpack: '**/*.node' },
  // It unpacks the whole package in which there is a file with this ending.
  'electron-builder': { unpackDir: `**/${NATIVE}` },
  'what the error text says': { unpack: '**/node_modules/@holdfast/**' },
}

/** An application with the package installed. */
function application(t) {
  const app = join(folder(t), 'app')
  const root = join(app, 'node_modules/holdfast')
  cpSync(join(CHECKOUT, 'dist'), join(root, 'dist'), { recursive: true })
  copyFileSync(join(CHECKOUT, 'package.json'), join(root, 'package.json'))
  mkdirSync(join(app, NATIVE), { recursive: true })
  for (const name of [addonOf(built), helperFile, 'package.json']) {
    copyFileSync(join(CHECKOUT, 'npm', built.name, name), join(app, NATIVE, name))
  }
  writeFileSync(join(app, 'package.json'), '{"name":"app","main":"main.js"}')
  return app
}

const BODY = `
  Object.defineProperty(process.versions, 'electron', { value: '25.0.0' })
  const { run, capabilities } = require('holdfast')
  run('echo', ['works'])
    .then(({ stdout }) => stdout, ({ message }) => message)
    .then((text) => process.stdout.write(JSON.stringify({ text, helper: capabilities().helper.path })))
`

for (const [packager, options] of Object.entries(PACKAGERS)) {
  test(`${packager}: addon and helper are outside of the archive, and a call works`, async (t) => {
    const app = application(t)
    const archive = `${app}.asar`
    await asar.createPackageWithOptions(app, archive, options)
    const outside = join(`${archive}.unpacked`, NATIVE)
    for (const name of [addonOf(built), helperFile]) {
      t.true(asar.statFile(archive, join(NATIVE, name)).unpacked, name)
      t.true(existsSync(join(outside, name)), name)
    }
    t.is(statSync(join(outside, helperFile)).mode & 0o111, 0o111)

    // As Electron shows it: a folder with all files, of which those outside of the archive seem to be inside too.
    asar.uncache(archive)
    asar.extractAll(archive, `${app}.shown`)
    rmSync(archive)
    renameSync(`${app}.shown`, archive)
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', BODY], { cwd: archive, env, encoding: 'utf8' })
    t.deepEqual(JSON.parse(stdout || '{}'), { text: 'works\n', helper: join(outside, helperFile) }, stderr)
  })
}

test('a packager that unpacks nothing: the error names the pattern for each', async (t) => {
  const app = application(t)
  await asar.createPackageWithOptions(app, `${app}.asar`, {})
  t.false(existsSync(`${app}.asar.unpacked`))
  rmSync(`${app}.asar`)
  renameSync(app, `${app}.asar`)
  const { stdout } = spawnSync(process.execPath, ['-e', BODY], { cwd: `${app}.asar`, env, encoding: 'utf8' })
  t.regex(
    JSON.parse(stdout).text,
    /is inside an archive.*asarUnpack.*electron-builder.*packagerConfig\.asar\.unpack.*electron-forge/,
  )
})
