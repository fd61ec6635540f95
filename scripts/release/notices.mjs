// Writes THIRD-PARTY-NOTICES: the licence of everything that is compiled into addon and helper. With --check it only
// compares.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BESIDES, crates } from './crates.mjs'

process.chdir(join(dirname(fileURLToPath(import.meta.url)), '../..'))

const FILE = 'THIRD-PARTY-NOTICES'
const MIT = readFileSync('LICENSE', 'utf8').replace(/^[\s\S]*?(?=Permission is)/, '')

/** The texts that a crate brings, or MIT's with its authors. Of several licences to choose from MIT is taken. */
function textOf({ name, license, authors = [], folder }) {
  const names = folder === undefined ? [] : readdirSync(folder).filter((one) => /^(licen[cs]e|unlicense)/i.test(one))
  const isMit = /\bMIT\b/.test(license)
  const mit = names.filter((one) => /mit/i.test(one))
  const chosen = (isMit && mit.length > 0 ? mit : names).sort()
  if (chosen.length > 0) return chosen.map((one) => readFileSync(join(folder, one), 'utf8').trim()).join('\n\n')
  if (isMit) return `Copyright (c) ${authors.join(', ') || `the authors of ${name}`}\n\n${MIT.trim()}`
  return `See https://spdx.org/licenses/ for ${license}.`
}

const all = [...crates(), ...BESIDES]
const texts = new Map()
for (const crate of all) {
  const text = textOf(crate).replaceAll('\r\n', '\n')
  texts.set(text, [...(texts.get(text) ?? []), crate.name])
}
const rows = all.map(({ name, version, license, repository }) => `${name} ${version}: ${license}\n  ${repository}`)
const sections = [...texts].map(([text, names]) => `${'-'.repeat(80)}\n${names.join(', ')}\n\n${text}\n`)
const notices = `The native parts of holdfast contain these works.

${rows.join('\n')}

${sections.join('\n')}`

if (process.argv.includes('--check')) {
  if (readFileSync(FILE, 'utf8') !== notices) {
    console.error(`${FILE} is not that of Cargo.lock; run: node scripts/release/notices.mjs`)
    process.exitCode = 1
  } else {
    console.log(`${FILE}: ${all.length} works`)
  }
} else {
  writeFileSync(FILE, notices)
}
