// Every npm package and every crate that a build or a test brings in has a licence that licences.json allows.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'

const json = (path) => JSON.parse(readFileSync(path, 'utf8'))
const { allow } = json('licences.json')

/** SPDX expressions in the small: OR, AND, parentheses, and the old `MIT/Apache-2.0`. */
function allowed(expression) {
  const tokens = expression.replaceAll('/', ' OR ').match(/[()]|[^\s()]+/g) ?? []
  const any = () => {
    let result = all()
    while (tokens[0] === 'OR') {
      tokens.shift()
      result = all() || result
    }
    return result
  }
  const all = () => {
    let result = one()
    while (tokens[0] === 'AND') {
      tokens.shift()
      result = one() && result
    }
    return result
  }
  const one = () => {
    const token = tokens.shift()
    if (token === '(') {
      const result = any()
      return tokens.shift() === ')' && result
    }
    // `A WITH exception` grants more than `A` does.
    if (tokens[0] === 'WITH') tokens.splice(0, 2)
    return allow.includes(token)
  }
  return any() && tokens.length === 0
}

const found = []
for (const [path, entry] of Object.entries(json('package-lock.json').packages)) {
  if (path === '' || entry.link) continue
  const manifest = `${path}/package.json`
  const license = entry.license ?? (existsSync(manifest) ? json(manifest).license : undefined)
  found.push([path, entry.version, license])
}
const metadata = execFileSync('cargo', ['metadata', '--format-version=1', '--locked'], { maxBuffer: 1 << 28 })
for (const crate of JSON.parse(metadata).packages) found.push([`crate ${crate.name}`, crate.version, crate.license])

const refused = found.filter(([, , license]) => typeof license !== 'string' || !allowed(license))
for (const [name, version, license] of refused) {
  console.error(`${name} ${version}: ${JSON.stringify(license)} is not in licences.json`)
}
console.log(`${found.length} packages and crates, ${refused.length} refused`)
if (refused.length > 0) process.exitCode = 1
