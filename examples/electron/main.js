// A window in which commands are started and stopped. What they start is gone when this application is, however it ends.
const { app, BrowserWindow, ipcMain } = require('electron')
const { readdirSync, readFileSync } = require('node:fs')
const { join } = require('node:path')
const { endAll, running, spawn } = require('holdfast')

const calls = new Map()
let isEnded = false

app.whenReady().then(() => {
  const window = new BrowserWindow({
    width: 900,
    height: 600,
    webPreferences: { preload: join(__dirname, 'preload.js') },
  })
  const tell = (event) => window.isDestroyed() || window.webContents.send('event', event)

  ipcMain.handle('start', (_, command) => {
    const child = spawn('bash', ['-c', command], { stdio: ['ignore', 'pipe', 'stdout'] })
    const { id } = child
    calls.set(id, child)
    child.stdout.setEncoding('utf8').on('data', (text) => tell({ id, text }))
    child.on('error', ({ message }) => tell({ id, text: `${message}\n` }))
    child.ended.then(({ outcome, leftovers }) => {
      calls.delete(id)
      const left = leftovers.map(({ name }) => name).join(', ')
      tell({ id, text: `-- ${outcome}${left === '' ? '' : `; ended with it: ${left}`}\n` })
    })
    return id
  })
  ipcMain.handle('stop', () => endAll().then((reports) => reports.length))
  // As a crash would, or the out-of-memory killer: nothing is done before.
  ipcMain.handle('kill', () => process.kill(process.pid, 'SIGKILL'))

  const watching = setInterval(() => tell({ tree: running().flatMap(({ pid }) => treeOf(parentOf(pid), 0)) }), 250)
  window.on('closed', () => clearInterval(watching))
  window.loadFile(join(__dirname, 'index.html'))
})

app.on('window-all-closed', () => app.quit())
app.on('before-quit', (event) => {
  if (isEnded) return
  event.preventDefault()
  endAll({ scope: 'process' }).finally(() => {
    isEnded = true
    app.quit()
  })
})

/** A call's keeper and all below it. Of a process that has just gone there is nothing to show. */
function treeOf(pid, depth) {
  try {
    const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
    const children = readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean),
    )
    return [{ pid: Number(pid), name, depth }, ...children.flatMap((child) => treeOf(child, depth + 1))]
  } catch {
    return []
  }
}

function parentOf(pid) {
  try {
    return Number(/^PPid:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
  } catch {
    return 0
  }
}
