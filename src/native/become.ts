/** This process becomes the helper, in one of its modes: nothing of Node stays in memory. */
import { systemCode } from '../report/errors'
import * as messages from '../report/messages'
import { channelVariables, inheritedDescriptors } from './inherit'
import { load, verified } from './load'

/** @throws Error or HoldfastError where it cannot; then nothing has changed */
export function becomeHelper(mode: string, args: readonly string[]): never {
  const loaded = load()
  const { native } = loaded
  const helper = verified(loaded.helper)
  if (helper.problem !== '') throw new Error(helper.problem)
  const env = [...Object.entries(process.env).map(([key, value]) => `${key}=${value}`), ...channelVariables()]
  const errno = native.execve(helper.path, ['holdfast-helper', mode, ...args], env, inheritedDescriptors())
  throw new Error(messages.notReplaced(helper.path, systemCode(errno)))
}
