// All that the page can do.
const { contextBridge, ipcRenderer } = require('electron')

contextBridge.exposeInMainWorld('commands', {
  start: (command) => ipcRenderer.invoke('start', command),
  stop: () => ipcRenderer.invoke('stop'),
  kill: () => ipcRenderer.invoke('kill'),
  onEvent: (listener) => ipcRenderer.on('event', (_, event) => listener(event)),
})
