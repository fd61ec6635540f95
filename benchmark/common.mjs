// What the groups share. A group is a module of its own process: it is given `{ programs, ballast }` and sends its rows.
import childProcess from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { execa } from 'execa'
import { x } from 'tinyexec'
import holdfast from '../dist/index.js'

export const given = JSON.parse(process.argv[2])

export async function report(rows) {
  await new Promise((resolve) => process.send(rows, resolve))
  process.disconnect()
}

const TRUE = '/bin/true'
const CALLS_OF_A_TURN = 4
export const closed = (child) => once(child, 'close')

/** By name: how each starts `/bin/true`, and how its user learns of the end. */
export const contenders = {
  holdfast: [(options) => holdfast.spawn(TRUE, [], options), (child) => child.ended],
  child_process: [(options) => childProcess.spawn(TRUE, [], options), closed],
  execa: [() => execa(TRUE), (result) => result],
  tinyexec: [() => x(TRUE), (result) => result],
}

/** A turn of the loop in which nothing is left to do. */
export const quiet = () => new Promise((resolve) => setTimeout(resolve, 1))

/** Runs a program of ours to its end and returns the number that it prints. */
export async function printed(program, ...args) {
  const child = childProcess.spawn(program, args.map(String), { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (more) => {
    text += more
  })
  const [code] = await closed(child)
  if (code !== 0) throw new Error(`${program} ${args.join(' ')}: ${code}`)
  return Number(text)
}

/** Resolves at the first output of a child; rejects when there is none. */
export async function ready(child) {
  const spoke = await Promise.race([once(child.stdout, 'data').then(() => true), closed(child).then(() => false)])
  if (!spoke) throw new Error(`${child.spawnfile} ended without a word (status ${child.exitCode})`)
}

/** Our own calls of `program 1`, which sleeps. */
export async function sleepingCalls(count) {
  const children = Array.from({ length: count }, () =>
    holdfast.spawn(given.programs.tree, ['1'], { stdio: 'ignore', grace: 0 }),
  )
  await Promise.all(children.map((child) => once(child, 'spawn')))
  return children
}

export const endCalls = (children) => Promise.all(children.map((child) => child.end({ grace: 0 })))

export function childrenOf(pid) {
  const tasks = readdirSync(`/proc/${pid}/task`)
  const lists = tasks.map((task) => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'))
  return lists.join('').split(' ').filter(Boolean).map(Number)
}

const isHelper = (pid) => readFileSync(`/proc/${pid}/comm`, 'utf8') === 'holdfast-helper\n'

/** The helper of a host, and that helper's keepers. */
export function familyOf(host) {
  const helper = childrenOf(host).find(isHelper)
  return { helper, keepers: childrenOf(helper).filter(isHelper) }
}

/** In kB. Needs root, because helper and keepers are not dumpable. */
export function pss(pid) {
  return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1])
}

/**
 * Contenders take turns of a few calls each. The first call of a turn does not count: it pays for what the one before
 * left behind, such as the page faults after a fork of the host.
 * @param measure given a contender, resolves to its samples by measure
 */
export async function inTurns(names, rounds, measure) {
  const samples = {}
  for (let round = -1; round < rounds; round++) {
    for (const name of names) {
      for (let call = -1; call < CALLS_OF_A_TURN; call++) {
        const found = await measure(name)
        if (round < 0 || call < 0) continue
        for (const [what, sample] of Object.entries(found)) {
          samples[what] ??= {}
          samples[what][name] ??= []
          samples[what][name].push(sample)
        }
      }
    }
  }
  return samples
}
