// examples/electron, packed as asar and run under Xvfb: driven as a user does, killed, and nothing is left.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import asar from '@electron/asar'
import { addonOf, helperFile, platforms } from '../scripts/release/manifests.mjs'
import { stagePlatform, stageRoot } from '../scripts/release/stage.mjs'
import { marked, until } from './support/facts.mjs'
import { folder, has, suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env, mark } = suite(test)
process.chdir(fileURLToPath(new URL('..', import.meta.url)))

const main = createRequire(import.meta.url)('../package.json')
const built = platforms.find((platform) => existsSync(join('npm', platform.name, addonOf(platform))))
const CACHED = 'target/electron/electron'
const electron = process.env.ELECTRON_PATH ?? (existsSync(CACHED) ? CACHED : undefined)
const reason = whyNot()

function whyNot() {
  if (electron === undefined) return `no Electron: ELECTRON_PATH names none, and there is no ${CACHED}`
  return spawnSync('Xvfb', ['-help']).error ? 'Xvfb is missing' : ''
}

/** Electron with the example in the place of its application; only what a packager's defaults leave outside is outside. */
async function packaged(t) {
  const at = folder(t)
  const app = join(at, 'app')
  cpSync('examples/electron', app, { recursive: true })
  stageRoot(main, join(app, 'node_modules/holdfast'))
  const from = (name) => join('npm', built.name, name)
  const native = { addon: from(addonOf(built)), helper: from(helperFile) }
  stagePlatform(built, main, native, join(app, 'node_modules/@holdfast', built.name))
  const copy = join(at, 'electron')
  if (spawnSync('cp', ['-al', dirname(electron), copy]).status !== 0) {
    rmSync(copy, { recursive: true, force: true })
    cpSync(dirname(electron), copy, { recursive: true })
  }
  rmSync(join(copy, 'resources'), { recursive: true, force: true })
  mkdirSync(join(copy, 'resources'))
  await asar.createPackageWithOptions(app, join(copy, 'resources/app.asar'), { unpack: '**/{.**,**}/**/*.node' })
  return join(copy, basename(electron))
}

async function screen(t) {
  // timeout(1), for a test that is itself ended: nobody else would end the server then.
  const screen = ['-displayfd', '3', '-screen', '0', '1000x700x24', '-nolisten', 'tcp']
  const xvfb = spawn('timeout', ['120', 'Xvfb', ...screen], { env, stdio: ['ignore', 'ignore', 'ignore', 'pipe'] })
  t.teardown(() => xvfb.kill())
  const [number] = await once(xvfb.stdio[3].setEncoding('utf8'), 'data')
  return `:${number.trim()}`
}

/** The window, by the protocol of its developer tools over two pipes. */
async function open(t, program, display) {
  const args = ['--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', `--user-data-dir=${folder(t)}`]
  const child = spawn(program, args, {
    env: { ...env, DISPLAY: display },
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const [answers, sessions] = [new Map(), []]
  let [text, last] = ['', 0]
  child.stdio[4].setEncoding('utf8').on('data', (data) => {
    const messages = (text + data).split('\0')
    text = messages.pop()
    for (const { id, result, error } of messages.map((one) => JSON.parse(one))) {
      if (id !== undefined) answers.get(id)?.(result ?? error)
    }
  })
  child.stdio[3].on('error', () => {})
  const ask = (method, params = {}) => {
    child.stdio[3].write(`${JSON.stringify({ id: ++last, method, params, sessionId: sessions[0] })}\0`)
    return new Promise((resolve) => answers.set(last, resolve))
  }
  let page
  const isThere = async () => {
    page = (await ask('Target.getTargets')).targetInfos.find(
      ({ type, url }) => type === 'page' && url.startsWith('file:'),
    )
    return page !== undefined
  }
  for (const end = Date.now() + 30_000; !(await isThere()); ) {
    if (Date.now() > end) throw new Error('no window')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  sessions.push((await ask('Target.attachToTarget', { targetId: page.targetId, flatten: true })).sessionId)
  const evaluate = async (expression) =>
    (await ask('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })).result?.value
  const shows = async (id, pattern) => {
    for (const end = Date.now() + 20_000; ; ) {
      const shown = await evaluate(`document.getElementById('${id}')?.textContent`)
      if (pattern.test(shown)) return shown
      if (Date.now() > end) throw new Error(`${id} shows ${shown}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  return { child, ask, shows, click: (id) => evaluate(`document.getElementById('${id}').click()`) }
}

test('the Electron example: a log, a live tree, stop, and SIGKILL of the application, after which nothing is left', async (t) => {
  if (!has(t, reason)) return
  const [program, display] = await Promise.all([packaged(t), screen(t)])
  const window = await open(t, program, display)
  await window.shows('tree', /^nothing$/)
  await window.click('start')
  await window.shows('log', /line 1\nline 2\nline 3\n/)
  // The one in a session of its own, too.
  const tree = await window.shows('tree', /^holdfast-helper \d+[\s\S]*bash \d+[\s\S]*sleep \d+[\s\S]*sleep \d+/)
  const { data } = await window.ask('Page.captureScreenshot', { format: 'png' })
  writeFileSync('target/electron-example.png', Buffer.from(data, 'base64'))
  t.log('a picture of it: target/electron-example.png')
  await window.click('stop')
  await window.shows('tree', /^nothing$/)
  await window.shows('log', /-- ended; ended with it: (sleep, sleep|sleep)/)

  await window.click('start')
  const again = await window.shows('tree', /sleep \d+[\s\S]*sleep \d+/)
  t.not(again, tree)
  const exited = once(window.child, 'exit')
  // Nobody is left to answer it.
  window.click('kill').catch(() => {})
  t.deepEqual(await exited, [null, 'SIGKILL'])
  const isOurs = (pid) => again.includes(` ${pid}`)
  await until(() => !marked(mark).some(isOurs), 'the end of what ran')
  t.deepEqual(marked(mark).filter(isOurs), [])
  t.true(readdirSync('target').includes('electron-example.png'))
})
