// index.d.ts and session.d.ts compile, with no skipLibCheck, under every TypeScript and @types/node that they promise to. Long run only:
// it installs each pair into a folder of its own.
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const PAIRS = [
  ['5.4.5', '20.19.43'],
  ['5.9.3', '22'],
  ['6.0.3', '24'],
  ['7.0.2', '26'],
]
const DECLARATIONS = ['index.d.ts', 'session.d.ts', 'engine.d.ts']
const CONSUMER = `import './engine'
import { HoldfastError, run, spawn } from './index'
import { startSession } from './session'
spawn('true').stdout.pipe(process.stdout)
run('true').then((result) => result.stdout.trim(), (error) => HoldfastError.is(error))
startSession('engine').then((session) => session.stdout.pipe(process.stdout))
`

for (const [typescript, types] of PAIRS) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-types-'))
  try {
    writeFileSync(join(folder, 'package.json'), '{"private":true}')
    writeFileSync(join(folder, 'consumer.ts'), CONSUMER)
    for (const file of DECLARATIONS) copyFileSync(file, join(folder, file))
    const npm = ['install', '--loglevel=error', '--no-audit', '--no-fund', '--no-save']
    const tsc = ['node_modules/typescript/bin/tsc', '--noEmit', '--strict', '--target', 'es2022', '--module', 'node16']
    const ok =
      spawned('npm', [...npm, `typescript@${typescript}`, `@types/node@${types}`], folder) &&
      spawned(process.execPath, [...tsc, '--moduleResolution', 'node16', '--types', 'node', 'consumer.ts'], folder)
    console.log(`${ok ? 'ok    ' : 'FAILED'}  TypeScript ${typescript}, @types/node ${types}`)
    if (!ok) process.exitCode = 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function spawned(command, args, cwd) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' })
  if (status !== 0) console.error(stdout + stderr)
  return status === 0
}
