// Which folder may import which, in src/ and in the crate `core`; what only the ground of that crate may name; and that no
// module imports itself by way of others: there, and in the crate `wire`. An import of types alone counts like any other.
// A re-export counts for the module that uses it. Tests in a Rust module do not count.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * Folders from the top to the ground: each imports itself and those behind it. Files beside the folders are entries: they
 * import what they like, and are not imported.
 */
export const FLOORS = {
  src: ['cli', 'engine', 'call', 'guard', 'pipe', 'options', 'native', 'report'],
  core: ['host', 'roles', 'ends', 'channel', 'sys'],
  'core::sys': ['linux', 'unix'],
}

/** What only the ground of `core` may name: the system's libraries, and descriptors by their numbers. */
const OF_THE_GROUND = /\b(?:libc|rustix)::|\b(?:RawFd|AsRawFd|FromRawFd|IntoRawFd|as_raw_fd|from_raw_fd|into_raw_fd)\b/g
const GROUND = 'sys/'
/** What is compiled for some platforms only. */
const FOR_A_PLATFORM = /\bcfg!?\([^\]\n]*?\b(?:target_\w+|unix|windows)\b/g
/** The one place above the ground that may choose: which folder is `os`. */
const CHOICE = { file: 'host/mod.rs', lines: /^#\[cfg\(.*\)\]\n(?:mod \w+;|use \w+ as os;)$/gm }
/** In the folder of `host` itself, which is the same for every system, what only one of them has. */
const OF_ONE_SYSTEM = /\bstd::os::\w+/g
const OF_EVERY_SYSTEM = /^host\/\w+\.rs$/

function crates() {
  const graphs = ['core', 'wire'].map((crate) => [crate, rust(read(`crates/${crate}/src`, '.rs'))])
  return Object.fromEntries(graphs)
}

/** The files below a folder: path in it, and text. */
function read(folder, extension) {
  const names = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(extension))
  return new Map(names.sort().map((name) => [name, readFileSync(join(folder, name), 'utf8')]))
}

// ---- directions
/** Imports that go up, in a graph whose paths begin with the name of a part that has floors. */
export function wrongWays(part, graph) {
  const floors = FLOORS[part]
  const separator = part === 'src' ? '/' : '::'
  const floorOf = (file) => {
    const [folder, ...rest] = file.split(separator)
    // A Rust module is its folder's name, or that of a file that may become one.
    if (rest.length === 0 && !floors.includes(folder)) return -1
    const floor = floors.indexOf(folder)
    return floor < 0 ? undefined : floor
  }
  const problems = []
  for (const [file, imports] of graph) {
    const from = floorOf(file)
    if (from === undefined)
      problems.push(`${part}${separator}${file}: its folder is not among the floors of scripts/check-imports.mjs`)
    for (const other of imports) {
      if (floorOf(other) < from)
        problems.push(`${part}${separator}${file} imports ${part}${separator}${other}, which is above it`)
    }
  }
  return problems
}

/** What files above the ground name that is the ground's, in whatever place of a line of code. */
export function namesOfTheGround(files) {
  const above = [...files].filter(([file]) => !file.startsWith(GROUND))
  return above.flatMap(([file, text]) => {
    const code = withoutTests(text)
    const names = code.match(OF_THE_GROUND) ?? []
    if (OF_EVERY_SYSTEM.test(file)) names.push(...(code.match(OF_ONE_SYSTEM) ?? []))
    const chosen = file === CHOICE.file ? code.replace(CHOICE.lines, '') : code
    names.push(...(chosen.match(FOR_A_PLATFORM) ?? []).map((condition) => `${condition})`))
    return [...new Set(names)].map((name) => `core: ${file} names ${name}, which only ${GROUND} may`)
  })
}

/** The part of a graph that is below one module, without its name. */
function below(module, graph) {
  const inside = (name) => name.startsWith(`${module}::`)
  const short = (name) => name.slice(module.length + 2)
  const kept = [...graph].filter(([name]) => inside(name))
  return new Map(kept.map(([name, imports]) => [short(name), new Set([...imports].filter(inside).map(short))]))
}

// ---- circles
function circleProblems(graphs) {
  return Object.entries(graphs).flatMap(([name, graph]) =>
    circles(graph).map((one) => `these import one another: ${name}: ${one.join(', ')}`),
  )
}

/** The strongly connected parts of more than one module (Tarjan), each in alphabetical order. */
export function circles(graph) {
  const [number, lowest, stack, found] = [new Map(), new Map(), [], []]
  const visit = (node) => {
    number.set(node, number.size)
    lowest.set(node, number.get(node))
    stack.push(node)
    for (const next of graph.get(node) ?? []) {
      if (!number.has(next)) visit(next)
      if (stack.includes(next)) lowest.set(node, Math.min(lowest.get(node), lowest.get(next)))
    }
    if (lowest.get(node) !== number.get(node)) return
    const part = stack.splice(stack.indexOf(node))
    if (part.length > 1) found.push(part.sort())
  }
  for (const node of graph.keys()) if (!number.has(node)) visit(node)
  return found
}

// ---- TypeScript
/** Per file the files that it imports, requires or names in a type. */
export function typeScript(files) {
  const graph = new Map()
  for (const [file, text] of files) {
    const names = [...text.matchAll(/(?:\bfrom|\bimport|\brequire\(|\bimport\()\s*['"](\.[^'"]+)['"]/g)]
    const imports = names.map(([, name]) => `${join(dirname(file), name)}.ts`).filter((other) => files.has(other))
    graph.set(file, new Set(imports))
  }
  return graph
}

// ---- Rust
/** Per module (a file) the modules whose items it uses, wherever they are re-exported. */
export function rust(files) {
  const modules = new Map()
  for (const [file, text] of files) {
    const name = file.replace(/(^|\/)(lib|main|mod)?\.rs$/, '').replace(/\.rs$/, '')
    modules.set(name.replaceAll('/', '::'), parse(text))
  }
  const graph = new Map()
  for (const [name, module] of modules) {
    const paths = [...module.uses.filter(({ isExport }) => !isExport), ...module.paths]
    const used = paths.map(({ path }) => resolve(modules, name, path)).filter((other) => other !== undefined)
    graph.set(
      name === '' ? 'lib' : name,
      new Set(used.filter((other) => other !== name).map((other) => other || 'lib')),
    )
  }
  return graph
}

/** Nor comments. */
function withoutTests(source) {
  return source.replace(/^#\[cfg\(test\)\]\n(?:pub )?mod \w+ \{\n[\s\S]*?^\}/gm, '').replace(/^\s*\/\/.*$/gm, '')
}

function parse(source) {
  const text = withoutTests(source)
  const uses = []
  const body = text.replace(/(\bpub(?:\([^)]*\))? )?\buse ([\w:{}*,\s]+);/g, (_, isExport, tree) => {
    for (const path of leaves(tree.replace(/\s+as\s+(\w+)/g, '::@$1').replace(/\s+/g, ''))) {
      const alias = path.at(-1).startsWith('@') ? path.pop().slice(1) : undefined
      if (path.at(-1) === 'self') path.pop()
      uses.push({ isExport: isExport !== undefined, path, name: alias ?? path.at(-1) })
    }
    return ''
  })
  const paths = [...body.matchAll(/(?<![\w:])([a-z_]\w*(?:::\w+)+)/g)].map(([, path]) => ({ path: path.split('::') }))
  const items = [...body.matchAll(/\b(?:fn|struct|enum|union|trait|type|const|static|macro_rules!)\s+(?:mut )?(\w+)/g)]
  return { uses, paths, items: new Set(items.map(([, item]) => item)) }
}

/** `a::{b, c::{d, e}}` as lists of segments. */
function leaves(tree) {
  const open = tree.indexOf('{')
  if (open < 0) return [tree.split('::')]
  const head = tree.slice(0, open).split('::').filter(Boolean)
  const parts = ['']
  let depth = 0
  for (const one of tree.slice(open + 1, tree.lastIndexOf('}'))) {
    if (one === '{') depth++
    if (one === '}') depth--
    if (one === ',' && depth === 0) parts.push('')
    else parts[parts.length - 1] += one
  }
  return parts.filter(Boolean).flatMap((part) => leaves(part).map((leaf) => [...head, ...leaf]))
}

/** The module that has what a path names, as seen from a module; undefined: of another crate, or a local name. */
function resolve(modules, from, [first, ...rest]) {
  if (first === 'crate') return walk(modules, '', rest)
  if (first === 'self') return walk(modules, from, rest)
  if (first === 'super') return resolve(modules, parentOf(from), ['self', ...rest])
  return modules.has(childOf(from, first)) ? walk(modules, from, [first, ...rest]) : undefined
}

function walk(modules, at, path, visited = new Set()) {
  const [first, ...rest] = path
  if (first === 'super') return walk(modules, parentOf(at), rest, visited)
  if (first === undefined || first === '*') return at
  if (modules.has(childOf(at, first))) return walk(modules, childOf(at, first), rest, visited)
  return exported(modules, at, first, rest, visited) ?? at
}

/** Where a name that a module passes on comes from; undefined: it is its own, or not known. */
function exported(modules, at, name, rest, visited) {
  const { items, uses } = modules.get(at)
  if (items.has(name) || visited.has(`${at} ${name}`)) return undefined
  visited.add(`${at} ${name}`)
  const named = uses.find((one) => one.name === name)
  if (named !== undefined) return resolve(modules, at, [...named.path, ...rest])
  for (const { path } of uses.filter((one) => one.name === '*')) {
    const source = resolve(modules, at, path.slice(0, -1))
    if (source === undefined) continue
    const found = walk(modules, source, [name], visited)
    if (found !== source || modules.get(found).items.has(name))
      return rest.length > 0 ? walk(modules, source, [name, ...rest]) : found
  }
  return undefined
}

function parentOf(module) {
  return module.split('::').slice(0, -1).join('::')
}

function childOf(module, name) {
  return module === '' ? name : `${module}::${name}`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const source = typeScript(read('src', '.ts'))
  const { core, wire } = crates()
  const problems = [
    ...wrongWays('src', source),
    ...wrongWays('core', core),
    ...wrongWays('core::sys', below('sys', core)),
    ...namesOfTheGround(read('crates/core/src', '.rs')),
    ...circleProblems({ src: source, core, wire }),
  ]
  for (const problem of problems) console.error(problem)
  if (problems.length > 0) process.exitCode = 1
  else for (const [part, floors] of Object.entries(FLOORS)) console.log(`${part}: ${floors.join(' > ')}`)
}
