// What the pages name exists: files, headings, npm scripts, and the variables of the suites.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import test from './support/test.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const read = (path) => readFileSync(join(ROOT, path), 'utf8')
const below = (folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(ROOT.length))
const SOURCES = ['__test__', 'benchmark', 'crates', 'docs', 'examples', 'scripts', 'src'].flatMap(below)
const FILES = [...SOURCES, ...readdirSync(ROOT)]
const PAGES = FILES.filter((path) => path.endsWith('.md'))
/** They are about what was there when they were written. */
const isHistory = (page) => page.startsWith('docs/decisions/') || page === 'CHANGELOG.md'
const LIVING = PAGES.filter((page) => !isHistory(page))

/** Every match in every page, as [what is named, page]. */
const named = (pages, pattern) =>
  pages.flatMap((page) => [...read(page).matchAll(pattern)].map(([, name]) => [name, page]))

test('files that are named exist, whatever folder they are in', (t) => {
  const names = named(LIVING, /`([\w./-]+\.(?:rs|m?ts|mjs|cjs|md|json|toml))`/g)
  t.true(names.length > 60, `${names.length} names`)
  const isThere = (name) => FILES.some((path) => path === name || path.endsWith(`/${name}`))
  t.deepEqual(
    names.filter(([name]) => !isThere(name)),
    [],
  )
})

/** As GitHub makes it of a heading. */
const anchor = (heading) =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
const anchorsOf = (path) => [...read(path).matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchor(heading))

test('links lead to pages and headings that exist', (t) => {
  const links = named(PAGES, /\]\((?!https?:)([^)\s]+)\)/g)
  t.true(links.length > 60, `${links.length} links`)
  const isBroken = ([link, page]) => {
    const [path, heading] = link.split('#')
    const target = path === '' ? page : join(dirname(page), path)
    return !existsSync(join(ROOT, target)) || (heading !== undefined && !anchorsOf(target).includes(heading))
  }
  t.deepEqual(links.filter(isBroken), [])
})

test('npm scripts that are named exist', (t) => {
  const { scripts } = JSON.parse(read('package.json'))
  const names = named(LIVING, /`npm (?:run )?([\w:]+)/g).filter(([name]) => !['ci', 'install'].includes(name))
  t.true(names.length > 8, `${names.length} names`)
  t.deepEqual(
    names.filter(([name]) => !(name in scripts)),
    [],
  )
})

test('CONTRIBUTING.md has every variable that a suite reads, and no other', (t) => {
  const suites = SOURCES.filter((path) => /^__test__\/.*\.mjs$|^crates\/\w+\/(?:src|tests)\/.*\.rs$/.test(path))
  const READ = /(?:process\.env\.|["'])(HOLDFAST_[A-Z_]+)/g
  const inSuites = new Set(named([...suites, 'ava.config.mjs'], READ).map(([name]) => name))
  inSuites.add('HOLDFAST_BINARY_PATH')
  const described = new Set(named(['CONTRIBUTING.md'], /^\| `(HOLDFAST_[A-Z_]+)/gm).map(([name]) => name))
  t.deepEqual([...described].sort(), [...inSuites].sort())
})
