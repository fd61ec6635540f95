/** What the addon reports of the end of a call, as its user sees it. */
import type { EndReport } from '../../index'
import type { CallEvent } from '../native/addon'
import { notices } from '../report/notices'

export interface Usage {
  userTime: number
  systemTime: number
  maxRss: number
}
export type Event<K extends CallEvent['kind']> = Extract<CallEvent, { kind: K }>

export const NOT_STARTED: Event<'ended'> = {
  kind: 'ended',
  outcome: 'ended',
  mechanism: 'none',
  by: 'host',
  reason: 'not-started',
  leftovers: [],
  leftoverCount: 0,
  survivors: [],
  settle: 'quiet',
  proofTime: 0,
  userTime: 0,
  systemTime: 0,
  maxRss: 0,
}

export function usageOf({ userTime, systemTime, maxRss }: Usage): Usage {
  return { userTime, systemTime, maxRss }
}

/** @param isIncomplete what was left still wrote to the call's pipes when its time was over */
export function reportOf(event: Event<'ended'>, isIncomplete = false): EndReport {
  const { outcome, mechanism, by, reason, leftovers, leftoverCount, survivors, proofTime } = event
  const notice = noticeOf(event) ?? (isIncomplete ? notices.background : undefined)
  return {
    outcome,
    mechanism,
    by,
    reason,
    leftovers,
    leftoverCount,
    released: [],
    survivors,
    proofTime,
    ...(notice !== undefined && { notice }),
  }
}

function noticeOf(event: Event<'ended'>): string | undefined {
  if (event.reason === 'not-started') return undefined
  const isLost = event.reason === 'keeper-gone' || event.reason === 'host-gone'
  if (event.by === 'host' && event.mechanism === 'none' && !isLost) return notices.helper
  return event.outcome === 'ended' || event.outcome === 'released' ? undefined : notices.end
}
