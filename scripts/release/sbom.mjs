// What is in the packages, as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
import { BESIDES, crates } from './crates.mjs'
import { packageOf, platforms, repositoryOf } from './manifests.mjs'

/** @param main the root's manifest. Without a time or a random number: the same packages have the same list. */
export function sbom(main) {
  const own = (name) => ({
    type: 'library',
    'bom-ref': `pkg:npm/${name.replace('@', '%40')}@${main.version}`,
    name,
    version: main.version,
    purl: `pkg:npm/${name.replace('@', '%40')}@${main.version}`,
    licenses: [{ expression: main.license }],
  })
  const packages = platforms.map((platform) => own(packageOf(platform)))
  const compiledIn = [
    ...crates().map(({ name, version, license, repository }) => ({
      type: 'library',
      'bom-ref': `pkg:cargo/${name}@${version}`,
      name,
      version,
      purl: `pkg:cargo/${name}@${version}`,
      licenses: [{ expression: license.replaceAll('/', ' OR ') }],
      externalReferences: [{ type: 'vcs', url: repository }],
    })),
    ...BESIDES.map(({ name, license, repository }) => ({
      type: 'library',
      'bom-ref': name,
      name,
      licenses: [{ expression: license }],
      externalReferences: [{ type: 'website', url: repository }],
    })),
  ]
  const root = own(main.name)
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: { component: { ...root, externalReferences: [{ type: 'vcs', url: repositoryOf(main) }] } },
    components: [...packages, ...compiledIn],
    dependencies: [
      { ref: root['bom-ref'], dependsOn: packages.map((one) => one['bom-ref']) },
      ...packages.map((one) => ({ ref: one['bom-ref'], dependsOn: compiledIn.map((other) => other['bom-ref']) })),
    ],
  }
}
