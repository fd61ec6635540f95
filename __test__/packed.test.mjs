// What is published, as npm installs it: packed, installed without network into an empty project, with nothing in PATH but
// the runtime, and the README's first example run from there.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkPlatform, checkRoot } from '../scripts/release/check.mjs'
import { addonOf, helperFile, packageOf, platforms } from '../scripts/release/manifests.mjs'
import { pack, stagePlatform, stageRoot } from '../scripts/release/stage.mjs'
import { folder, suite } from './support/suite.mjs'
import test from './support/test.mjs'

suite(test)
process.chdir(fileURLToPath(new URL('..', import.meta.url)))

const main = JSON.parse(readFileSync('package.json', 'utf8'))
const built = platforms.find((platform) => existsSync(join('npm', platform.name, addonOf(platform))))

/** A folder for PATH, with these programs of ours and no others. */
function onlyThese(t, names) {
  const at = folder(t)
  for (const name of names) {
    const found = process.env.PATH.split(delimiter)
      .map((one) => join(one, name))
      .find(existsSync)
    symlinkSync(name === 'node' ? process.execPath : found, join(at, name))
  }
  return at
}

function npmCli() {
  if (process.env.npm_execpath?.endsWith('npm-cli.js')) return process.env.npm_execpath
  return realpathSync(execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim())
}

test('the packed tarballs: installed offline, with an empty PATH, they run the README’s first example', (t) => {
  const at = folder(t)
  stageRoot(main, join(at, 'root'))
  const from = (name) => join('npm', built.name, name)
  stagePlatform(built, main, { addon: from(addonOf(built)), helper: from(helperFile) }, join(at, 'platform'))
  const [root, platform] = [pack(join(at, 'root'), at), pack(join(at, 'platform'), at)]
  t.deepEqual(checkRoot(readFileSync(root), main, existsSync), [])
  // Linked against the glibc of this machine, and as large as a build of a checkout is.
  t.deepEqual(checkPlatform(readFileSync(platform), { ...built, floor: '999' }, main, { limit: false }), [])

  const project = join(at, 'project')
  mkdirSync(project)
  writeFileSync(join(project, 'package.json'), '{"private":true}')
  const npm = ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  const env = { PATH: onlyThese(t, ['node']), HOME: at, npm_config_cache: join(at, 'cache') }
  const options = { cwd: project, env, encoding: 'utf8' }
  const installed = spawnSync(process.execPath, [npmCli(), ...npm, root, platform], options)
  t.is(installed.status, 0, installed.stderr)
  t.true(existsSync(join(project, 'node_modules', packageOf(built), helperFile)))

  const readme = readFileSync(join(project, 'node_modules/holdfast/README.md'), 'utf8')
  const [, example] = /```js\n([\s\S]*?)```/.exec(readme)
  writeFileSync(join(project, 'example.js'), example)
  const PATH = onlyThese(t, ['bash', 'sleep'])
  const ran = spawnSync(process.execPath, ['example.js'], { ...options, env: { PATH } })
  t.regex(ran.stdout, /^done\n\nended\n\[ \{ pid: \d+, name: 'sleep' \} \]\n$/, ran.stderr)
  const cli = spawnSync(join(project, 'node_modules/.bin/holdfast'), ['doctor'], {
    ...options,
    env: { PATH: env.PATH },
  })
  // Its first line asks env(1) for node.
  t.is(JSON.parse(cli.stdout || '{}').probe?.mechanism, 'subreaper', cli.stderr)
})
