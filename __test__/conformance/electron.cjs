// Runs main.cjs in a process of Electron: `electron . main`, `utility` or `renderer`.
const { app, BrowserWindow, utilityProcess } = require('electron')
const { join } = require('node:path')

const where = process.argv.at(-1)
const MAIN = join(__dirname, 'main.cjs')

app.whenReady().then(() => {
  if (where === 'main') {
    require(MAIN)
  } else if (where === 'utility') {
    utilityProcess.fork(MAIN, [], { stdio: 'inherit' }).on('exit', (code) => app.exit(code))
  } else {
    const window = new BrowserWindow({
      show: false,
      webPreferences: { nodeIntegration: true, nodeIntegrationInWorker: true, contextIsolation: false, sandbox: false },
    })
    window.webContents.on('render-process-gone', (_, { exitCode }) => app.exit(exitCode))
    window
      .loadURL('data:text/html,')
      .then(() => window.webContents.executeJavaScript(`require(${JSON.stringify(MAIN)}); 0`))
  }
})
