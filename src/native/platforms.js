/**
 * The platforms for which there is a package, and how their packages and files are named. Plain JavaScript, since the
 * scripts that build and pack read it before anything is built.
 */

/**
 * @typedef {object} Platform
 * @property {string} name of the folder below npm/, and of the package without its scope
 * @property {string} os as `process.platform`
 * @property {string} cpu as `process.arch`
 * @property {'glibc' | 'musl'} libc
 * @property {string} target of the Rust compiler
 * @property {string} floor the oldest glibc that the addon runs with; '' for musl
 */

/** @type {readonly Platform[]} */
const platforms = [
  {
    name: 'linux-x64-gnu',
    os: 'linux',
    cpu: 'x64',
    libc: 'glibc',
    target: 'x86_64-unknown-linux-gnu',
    floor: '2.17',
  },
  { name: 'linux-x64-musl', os: 'linux', cpu: 'x64', libc: 'musl', target: 'x86_64-unknown-linux-musl', floor: '' },
  {
    name: 'linux-arm64-gnu',
    os: 'linux',
    cpu: 'arm64',
    libc: 'glibc',
    target: 'aarch64-unknown-linux-gnu',
    floor: '2.17',
  },
  {
    name: 'linux-arm64-musl',
    os: 'linux',
    cpu: 'arm64',
    libc: 'musl',
    target: 'aarch64-unknown-linux-musl',
    floor: '',
  },
]

/** An executable. By this ending Electron's packagers know what must stay outside of the archive. */
const helperFile = 'holdfast-helper.node'

/** @param {Platform} platform */
const packageOf = ({ name }) => `@holdfast/${name}`
/** @param {Platform} platform */
const addonOf = ({ name }) => `holdfast.${name}.node`

module.exports = { platforms, helperFile, packageOf, addonOf }
