const bridge = window.commands
const element = (id) => document.getElementById(id)

element('bar').addEventListener('submit', (event) => {
  event.preventDefault()
  const command = element('command').value
  write(`$ ${command}\n`)
  bridge.start(command)
})
element('stop').addEventListener('click', () => bridge.stop())
element('kill').addEventListener('click', () => bridge.kill())

bridge.onEvent(({ text, tree }) => {
  if (text !== undefined) write(text)
  if (tree !== undefined) show(tree)
})

function write(text) {
  const log = element('log')
  log.append(text)
  log.scrollTop = log.scrollHeight
}

function show(tree) {
  const lines = tree.map(({ pid, name, depth }) => `${'  '.repeat(depth)}${name} ${pid}`)
  element('tree').textContent = lines.join('\n') || 'nothing'
}
