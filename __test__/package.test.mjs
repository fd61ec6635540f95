import { createRequire } from 'node:module'
import test from 'ava'

const require = createRequire(import.meta.url)

test('the ESM wrapper exports every name of the CommonJS build, and the same values', async (t) => {
  const commonjs = require('holdfast')
  const { default: _, ...esm } = await import('holdfast')
  t.deepEqual(Object.keys(esm).sort(), Object.keys(commonjs).sort())
  for (const name of Object.keys(esm)) t.is(esm[name], commonjs[name], name)
})

test('addon and package have one version', (t) => {
  const addon = require('@holdfast/linux-x64-gnu/holdfast.linux-x64-gnu.node')
  t.is(addon.version(), require('holdfast/package.json').version)
})
