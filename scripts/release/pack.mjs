// Builds and packs all that is published, into dist-packages/: a package for each platform, and the root. With them a
// list of what is compiled in (CycloneDX). Nothing is left there that scripts/release/check.mjs refuses.
//   --only NAME    one platform (several times for several), and the root
//   --twice        everything is built a second time, elsewhere; different bytes are a failure
//   --target DIR   where it is built; default: target/release-pack
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { checkPlatform, checkRoot } from './check.mjs'
import { platforms } from './manifests.mjs'
import { sbom } from './sbom.mjs'
import { pack, stagePlatform, stageRoot } from './stage.mjs'
import { build, ToolchainError } from './toolchain.mjs'

process.chdir(join(dirname(fileURLToPath(import.meta.url)), '../..'))

const INTO = 'dist-packages'
const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    twice: { type: 'boolean' },
    target: { type: 'string', default: 'target/release-pack' },
  },
})
const main = JSON.parse(readFileSync('package.json', 'utf8'))
const chosen = platforms.filter(({ name }) => values.only?.includes(name) ?? true)
const unknown = values.only?.filter((name) => !platforms.some((platform) => platform.name === name)) ?? []

try {
  if (unknown.length > 0) throw new ToolchainError(`no such platform: ${unknown.join(', ')}`)
  rmSync(INTO, { recursive: true, force: true })
  const tarballs = packAll(values.target, INTO)
  const differing = values.twice ? differences(tarballs, packAll(`${values.target}-again`, join(INTO, 'again'))) : []
  writeFileSync(join(INTO, `holdfast-${main.version}.cdx.json`), `${JSON.stringify(sbom(main), null, 2)}\n`)
  for (const name of differing) console.error(`${name}: a second build has other bytes`)
  if (differing.length > 0) process.exitCode = 1
} catch (error) {
  if (!(error instanceof ToolchainError)) throw error
  console.error(`release:pack: ${error.message}`)
  process.exitCode = 1
}

function packAll(target, into) {
  const tarballs = chosen.map((platform) => {
    console.log(`${platform.name} …`)
    mkdirSync(target, { recursive: true })
    const folder = join(target, 'stage', platform.name)
    stagePlatform(platform, main, build(platform, target), folder)
    return report(pack(folder, into), (bytes) => checkPlatform(bytes, platform, main))
  })
  const folder = join(target, 'stage/holdfast')
  stageRoot(main, folder)
  return [...tarballs, report(pack(folder, into), (bytes) => checkRoot(bytes, main, existsSync))]
}

/** A package that must not be published is not left where it could be. */
function report(tarball, check) {
  const bytes = readFileSync(tarball)
  const problems = check(bytes)
  for (const problem of problems) console.error(`REFUSED  ${basename(tarball)}: ${problem}`)
  if (problems.length > 0) {
    rmSync(tarball)
    process.exitCode = 1
  } else {
    console.log(`ok  ${String(bytes.length).padStart(7)} bytes  ${sha256(bytes).slice(0, 16)}  ${basename(tarball)}`)
  }
  return tarball
}

function differences(some, others) {
  const same = (one, other) => existsSync(one) && existsSync(other) && readFileSync(one).equals(readFileSync(other))
  return some.filter((one, index) => !same(one, others[index])).map((one) => basename(one))
}

function sha256(bytes) {
  return createHash('sha256').update(bytes).digest('hex')
}
