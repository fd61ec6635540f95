/** Flat: what the addon takes, `KEY=VALUE` joined by NUL. Ours is read at each start, since it can change at any time. */
import { invalidVariable } from '../report/errors'

export function environmentOf(env: NodeJS.ProcessEnv): string {
  let flat = ''
  // Own names are the quickest way through process.env (for…in takes twice as long). Of a user's object inherited
  // ones count too, as in node:child_process.
  if (env === process.env) for (const key of Object.getOwnPropertyNames(env)) flat = add(flat, key, env[key])
  else for (const key in env) flat = add(flat, key, env[key])
  return flat
}

function add(flat: string, key: string, value: string | undefined): string {
  if (value === undefined) return flat
  // `${}`: the values of a user's object need not be strings.
  if (key === '' || key.includes('=') || key.includes('\0')) throw invalidVariable(key)
  if (`${value}`.includes('\0')) throw invalidVariable(key, `${value}`)
  return flat === '' ? `${key}=${value}` : `${flat}\0${key}=${value}`
}

/** With one variable set, or left out. */
export function withVariable(flat: string, name: string, value: string | undefined): string {
  const others = flat.split('\0').filter((pair) => pair !== '' && !pair.startsWith(`${name}=`))
  return (value === undefined ? others : [...others, `${name}=${value}`]).join('\0')
}
