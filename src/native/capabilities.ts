/** What this machine can do: from files alone, and by trying. */
import type { Capabilities } from '../../index'
import { noDescriptor, notOpened } from '../report/errors'
import { inspectHelper, load } from './load'
import { version } from './version'

export function capabilities(): Capabilities {
  try {
    const { path, version, problem } = inspectHelper()
    return problem === '' ? able({ path, version, probed: false }) : unable({ path, version, probed: false, problem })
  } catch (error) {
    return unable({ path: '', version, probed: false, problem: notOpened(error).message })
  }
}

export async function probe(): Promise<Capabilities> {
  const { helper } = capabilities()
  try {
    const { native } = load()
    if (helper.problem !== undefined) return unable({ ...helper, probed: true })
    const { mechanism, errno, problem } = native.probe(helper.path)
    const why = noDescriptor(errno) ?? problem
    if (why !== '') return unable({ ...helper, probed: true, problem: why })
    return mechanism === 'group' ? lessAble({ ...helper, probed: true }) : able({ ...helper, probed: true })
  } catch (error) {
    return unable({ ...helper, probed: true, problem: notOpened(error).message })
  }
}

/** Linux is the one platform so far: load() refuses the others. */
function able(helper: Capabilities['helper']): Capabilities {
  return { ...platform, mechanism: 'subreaper', hostDeath: 'everything', escapees: 'ended', proof: 'kernel', helper }
}

/** Where the kernel, or a filter, refuses subreapers: a keeper has its command's group. */
function lessAble(helper: Capabilities['helper']): Capabilities {
  const proof = 'process-table'
  return { ...platform, mechanism: 'group', hostDeath: 'group', escapees: 'not-seen', proof, helper }
}

function unable(helper: Capabilities['helper']): Capabilities {
  return { ...platform, mechanism: 'none', hostDeath: 'none', escapees: 'not-seen', proof: 'none', helper }
}

const platform = { platform: `${process.platform}-${process.arch}` }
