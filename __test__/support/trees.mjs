// Random trees of processes for fixtures/tree.c, and what the process table holds of them.
import { readFileSync } from 'node:fs'
import { allPids } from './facts.mjs'
import { randomOf } from './random.mjs'

const isRoot = process.getuid() === 0

/** What brings the end about, each as often as its weight. */
const CAUSES = {
  /** The first process exits by itself. */
  exit: 3,
  timeout: 2,
  'end, no grace': 3,
  'end, short grace': 3,
  /** All heed SIGTERM; the grace is longer than the test waits. */
  'end, all heed': 2,
  abort: 2,
  'first process killed': 2,
  'keeper killed': 2,
  'helper killed, end': 1,
  'host killed': 3,
}
const MOST = 12
const SHORT = 25

/**
 * All of a round by its seed: { seed, program, kind, cause, grace, leftovers }. `namespaces`: 'pid' and 'user', where they
 * can be had.
 */
export function plan(seed, namespaces) {
  const random = randomOf(seed)
  const cause = pick(random, CAUSES)
  const grace = { 'end, no grace': 0, 'end, short grace': SHORT, 'end, all heed': 60_000 }[cause] ?? random(2) * SHORT
  const nodes = grow(random)
  const kind = {
    pid: namespaces.includes('pid') && random(2) === 0,
    user: namespaces.includes('user') && random(3) === 0,
  }
  for (const node of nodes) dress(random, node, kind, cause)
  // In any case one, where there is a process with a child.
  const parents = nodes.filter((node) => node.children.length > 0)
  if (kind.pid && parents.length > 0) enterPid(parents[random(parents.length)])
  return { seed, program: textOf(nodes[0]), kind: kindOf(nodes), cause, grace, leftovers: leftoversOf(nodes) }
}

function pick(random, weights) {
  let ticket = random(Object.values(weights).reduce((sum, weight) => sum + weight, 0))
  for (const [name, weight] of Object.entries(weights)) {
    if (ticket < weight) return name
    ticket -= weight
  }
}

function grow(random) {
  const nodes = [{ children: [] }]
  const parentOf = [() => nodes.length - 1, () => 0, () => random(nodes.length)][random(3)]
  for (let more = random(MOST); more > 0; more--) {
    const parent = nodes[random(4) === 0 ? random(nodes.length) : parentOf()]
    const node = { parent, children: [] }
    parent.children.push(node)
    nodes.push(node)
  }
  return nodes
}

const ROLES = { '': 8, i: 4, h: 3, t: 3, f: 2, b: 1, q: 1 }

/** Gives it its letters. Its parent has its own already. */
function dress(random, node, kind, cause) {
  const isFirst = node.parent === undefined
  let role = pick(random, ROLES)
  if (cause === 'end, all heed' && ['i', 'f', 'b'].includes(role)) role = 'h'
  if (isFirst && ['b', 'q'].includes(role)) role = 'h'
  if (isFirst && cause === 'exit') role = 'e'
  // Where it is the first in the namespace, it ends that by leaving.
  const isInit = node.parent?.letters.includes('p') && node.parent.children[0] === node
  if (isInit && ['b', 'q'].includes(role)) role = 'h'
  node.letters = role
  if (random(4) === 0) node.letters += 's'
  if (random(4) === 0 && !isFirst && !isInit) node.letters += 'd'
  if (random(10) === 0) node.letters += 'l'
  if (random(10) === 0) node.letters += 'c'
  if (kind.user && random(3) === 0) node.letters += 'u'
  if (kind.pid && random(3) === 0 && node.children.length > 0) enterPid(node)
}

/** Its children are in a pid namespace. */
function enterPid(node) {
  if (node.letters.includes('p')) return
  // A process that has called unshare(2) can start no thread, and one that is not root needs a user namespace for it.
  node.letters = `${node.letters.replace('l', '')}${isRoot || node.letters.includes('u') ? '' : 'u'}p`
  const [init] = node.children
  if (init.letters !== undefined) init.letters = init.letters.replace(/[bdq]/g, '')
}

const textOf = ({ letters, children }) => `(${letters}${children.map(textOf).join('')})`

/** Of its namespaces. 'pid, forked': as by `unshare --fork`, every namespace has one process with a parent outside. */
function kindOf(nodes) {
  const outside = nodes.filter(({ letters }) => letters.includes('p')).map(({ children }) => children.length)
  const pid = outside.length === 0 ? [] : [Math.max(...outside) > 1 ? 'pid' : 'pid, forked']
  const user = nodes.some(({ letters }) => letters.includes('u')) ? ['user'] : []
  return [...pid, ...user].join(', ') || 'plain'
}

/** How many a report may count, [least, most]: one that exits at once may be dead when the end begins. */
function leftoversOf(nodes) {
  const hasAny = (letters) => nodes.some((node) => letters.some((letter) => node.letters.includes(letter)))
  const others = nodes.slice(1)
  if (hasAny(['f', 'b'])) return [0, Number.POSITIVE_INFINITY]
  return [others.filter(({ letters }) => !letters.includes('q')).length, others.length]
}

/** Every process of this tree that the process table holds, dead or alive: { pid, name, state, isAlive }. */
export function members(name) {
  return allPids().flatMap((pid) => {
    let text
    try {
      text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    } catch {
      return []
    }
    const [from, to] = [text.indexOf('('), text.lastIndexOf(')')]
    if (!text.startsWith(`${name}.`, from + 1)) return []
    const fields = text.slice(to + 2).split(' ')
    const isAlive = !('ZX'.includes(fields[0]) && Number(fields[17]) <= 1)
    return [{ pid, name: text.slice(from + 1, to), state: fields[0], ppid: Number(fields[1]), isAlive }]
  })
}
