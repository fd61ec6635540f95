/** Why the addon was not loaded, and what to do, in a sentence. */
import { dirname } from 'node:path'
import { FILES } from '../report/messages'
import { type Elf, libcOfProcess, readElf } from './executable'
import type { Platform } from './platforms'

/** With --permission; in no declaration of Node.js 20. */
interface Permission {
  has(scope: string, reference?: string): boolean
}
const permission = (): Permission | undefined => (process as { permission?: Permission }).permission

/** Node's permission model refuses to start children. It does not cover the addon, so it is checked here. */
export const isRefusedChildren = (): boolean => permission()?.has('child') === false
/** It refuses to read there, and shows it as a file that does not exist. */
export const isRefusedToRead = (folder: string): boolean => permission()?.has('fs.read', folder) === false

/** What can be seen without loading it. '' where there is nothing. */
export function whyNotToLoad(path: string): string {
  let elf: Elf | undefined
  try {
    elf = readElf(path)
  } catch (error) {
    return isOfDeno(error as Error)
      ? FILES.deno(dirname(path), (error as Error).message)
      : FILES.unreadable(path, (error as Error).message)
  }
  if (elf === undefined || elf.isCut) return FILES.damaged(path, elf === undefined ? 'no ELF file' : 'it is cut')
  return elf.cpu === process.arch ? '' : FILES.architecture(path, elf.cpu, process.arch)
}

/** @param error of dlopen(3), or of the runtime that did not call it */
export function whyNotLoaded(path: string, platform: Platform, error: Error & { code?: string }): string {
  const { message, code } = error
  if (code === 'ERR_DLOPEN_DISABLED') return FILES.addonsRefused(message)
  if (isOfDeno(error)) return FILES.deno(dirname(path), message)
  const libc = libcOfProcess()
  if (libc !== undefined && libc !== platform.libc) return FILES.otherLibc(path, platform.libc, libc, message)
  if (/version [`']?GLIBC_[\d.]+'? not found/.test(message)) return FILES.oldGlibc(path, platform.floor, message)
  if (/failed to map segment|Operation not permitted/i.test(message)) return FILES.noexec(path, message)
  return FILES.unloadable(path, message)
}

const isOfDeno = ({ name }: Error) => name === 'NotCapable' || name === 'PermissionDenied'
