// What an editor offers for the options: asked of TypeScript's own language server, as an editor does.
import { spawn } from 'node:child_process'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from 'vscode-jsonrpc/node.js'
import test from './support/test.mjs'

const ROOT = new URL('..', import.meta.url)
const TSC = fileURLToPath(new URL('node_modules/typescript/bin/tsc', ROOT))
/** The place of the question is marked by |. */
const SOURCES = {
  'run, completion': `import { run } from 'holdfast'; run('x', [], { | })`,
  'run, hover': `import { run } from 'holdfast'; run('x', [], { gr|ace: 5 })`,
  'run without arguments, hover': `import { run } from 'holdfast'; run('x', { en|coding: 'buffer' })`,
  'spawn, completion': `import { spawn } from 'holdfast'; spawn('x', [], { | })`,
  'spawn with stdio, hover': `import { spawn } from 'holdfast'; spawn('x', [], { stdio: ['pipe', 'pipe', 'ignore'], gr|ace: 5 })`,
  'guard, completion': `import { guard } from 'holdfast'; guard(0 as never, { | })`,
}

test.before('the language server', async (t) => {
  const server = spawn(process.execPath, [TSC, '--lsp', '--stdio'], { stdio: ['pipe', 'pipe', 'ignore'] })
  const connection = createMessageConnection(
    new StreamMessageReader(server.stdout),
    new StreamMessageWriter(server.stdin),
  )
  connection.onRequest('workspace/configuration', ({ items }) => items.map(() => null))
  connection.onRequest('client/registerCapability', () => null)
  connection.listen()
  const textDocument = {
    completion: { completionItem: { tagSupport: { valueSet: [1] } } },
    hover: { contentFormat: ['markdown'] },
  }
  await connection.sendRequest('initialize', {
    processId: process.pid,
    rootUri: `${ROOT}`,
    capabilities: { textDocument },
  })
  await connection.sendNotification('initialized', {})
  t.context = { connection, server }
})

test.after.always('the language server', ({ context: { connection, server } = {} }) => {
  connection?.dispose()
  server?.kill()
})

let files = 0
async function ask({ connection }, question, name) {
  const marked = SOURCES[name]
  const position = { line: 0, character: marked.indexOf('|') }
  const uri = `${pathToFileURL(fileURLToPath(new URL(`__test__/types/editor-${++files}.ts`, ROOT)))}`
  const document = { uri, languageId: 'typescript', version: 1, text: marked.replace('|', '') }
  await connection.sendNotification('textDocument/didOpen', { textDocument: document })
  return connection.sendRequest(`textDocument/${question}`, { textDocument: { uri }, position })
}

const DEPRECATED = 1
const OFFERED = {
  'run, completion': ['cwd', 'timeout', 'grace', 'encoding', 'input', 'maxOutput', 'check', 'onOutput'],
  'spawn, completion': ['cwd', 'timeout', 'grace', 'stdio', 'background'],
  'guard, completion': ['signal', 'background'],
}
const STRUCK_THROUGH = { 'run, completion': ['limits', 'pty', 'spare'] }

for (const [name, offered] of Object.entries(OFFERED)) {
  test(`options complete in an editor: ${name}`, async (t) => {
    const answer = await ask(t.context, 'completion', name)
    const items = answer.items ?? answer
    const labels = items.map(({ label }) => label.replace('?', ''))
    for (const option of offered) t.true(labels.includes(option), `${option} in ${labels}`)
    const struck = items.filter(({ tags }) => tags?.includes(DEPRECATED)).map(({ label }) => label.replace('?', ''))
    if (STRUCK_THROUGH[name]) t.deepEqual(struck.sort(), STRUCK_THROUGH[name])
  })
}

const SHOWN = {
  'run, hover': /from `killSignal` to SIGKILL/,
  'run without arguments, hover': /'buffer' for bytes/,
  'spawn with stdio, hover': /from `killSignal` to SIGKILL/,
}
for (const [name, text] of Object.entries(SHOWN)) {
  test(`options show their documentation in an editor: ${name}`, async (t) => {
    const { contents } = await ask(t.context, 'hover', name)
    t.regex(contents.value, text)
  })
}
