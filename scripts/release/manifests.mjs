// What the manifests and README files below npm/ say: written by scripts/release/version.mjs, compared by
// scripts/check-manifests.mjs.
import native from '../../src/native/platforms.js'

export const { platforms, helperFile, packageOf, addonOf } = native

/** @param main the manifest of the root package */
export function manifestOf(platform, { version, license, engines, homepage, repository }) {
  return {
    name: packageOf(platform),
    version,
    description: `${summaryOf(platform)}: the N-API addon and the helper executable.`,
    license,
    homepage,
    repository: { ...repository, directory: `npm/${platform.name}` },
    os: [platform.os],
    cpu: [platform.cpu],
    libc: [platform.libc],
    files: [addonOf(platform), helperFile, 'THIRD-PARTY-NOTICES'],
    engines,
    preferUnplugged: true,
  }
}

export function readmeOf(platform, { homepage }) {
  return `# ${packageOf(platform)}

${summaryOf(platform).replace('holdfast', `[holdfast](${homepage})`)}: the N-API addon, and the executable \`${helperFile}\`. holdfast installs it by itself; there is no use for it on its own.
`
}

const summaryOf = ({ cpu, libc }) => `The native parts of holdfast for Linux on ${cpu} with ${libc}`

/** Its page. */
export const repositoryOf = ({ repository }) => repository.url.replace(/^git\+/, '').replace(/\.git$/, '')
