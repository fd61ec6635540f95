// Draws family.svg and race.svg beside this file: `node docs/design/drawings.mjs`. No packages needed.
// Each drawing has a ground of its own and follows the reader's light or dark setting.
import { writeFileSync } from 'node:fs'

const STYLE = `
    .ground { fill: #ffffff; stroke: #d0d7de }
    .box { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5 }
    .contained { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
    .dead { fill: none; stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 4 3 }
    .foreign { fill: #ffebe9; stroke: #cf222e; stroke-width: 1.5 }
    .area { fill: none; stroke: #0969da; stroke-dasharray: 6 4 }
    .line { fill: none; stroke: #57606a; stroke-width: 1.5 }
    .talk { fill: none; stroke: #8250df; stroke-width: 1.5; stroke-dasharray: 6 4 }
    .move { fill: none; stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 2 4 }
    .hit { fill: none; stroke: #cf222e; stroke-width: 2.5 }
    .good { fill: none; stroke: #1a7f37; stroke-width: 2.5 }
    text { font: 13px 'DejaVu Sans', Verdana, sans-serif; fill: #1f2328 }
    .title { font-weight: bold }
    .small { font-size: 11.5px; fill: #57606a }
    .head-line { fill: #57606a } .head-talk { fill: #8250df } .head-move { fill: #bc4c00 }
    .head-hit { fill: #cf222e } .head-good { fill: #1a7f37 }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #0d1117; stroke: #30363d }
      .box { fill: #161b22; stroke: #8b949e }
      .contained { fill: #0c2d4d; stroke: #58a6ff }
      .dead { stroke: #8b949e }
      .foreign { fill: #3c1618; stroke: #ff7b72 }
      .area { stroke: #58a6ff }
      .line { stroke: #8b949e } .head-line { fill: #8b949e }
      .talk { stroke: #bc8cff } .head-talk { fill: #bc8cff }
      .move { stroke: #f0883e } .head-move { fill: #f0883e }
      .hit { stroke: #ff7b72 } .head-hit { fill: #ff7b72 }
      .good { stroke: #56d364 } .head-good { fill: #56d364 }
      text { fill: #e6edf3 }
      .small { fill: #9da7b3 }
    }`

const safe = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const text = (x, y, line, kind = '', anchor = 'start') =>
  `<text x="${x}" y="${y}" class="${kind}" text-anchor="${anchor}">${safe(line)}</text>`

/** A box with a bold first line and small ones below it. */
function box(x, y, width, height, kind, [title, ...lines]) {
  const middle = x + width / 2
  const top = y + height / 2 - (lines.length * 16) / 2 + 5
  return [
    `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6" class="${kind}"/>`,
    text(middle, top, title, 'title', 'middle'),
    ...lines.map((line, index) => text(middle, top + 16 * (index + 1), line, 'small', 'middle')),
  ].join('\n  ')
}

const path = (kind, d) => `<path d="${d}" class="${kind}" marker-end="url(#${kind})"/>`
const legend = (x, y, kind, line) => `${path(kind, `M${x} ${y} h38`)}\n  ${text(x + 50, y + 4, line, 'small')}`

function drawing(name, width, height, title, parts) {
  const heads = ['line', 'talk', 'move', 'hit', 'good'].map(
    (kind) =>
      `<marker id="${kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" ` +
      `markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z" class="head-${kind}"/></marker>`,
  )
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${title}">
  <!-- Made by drawings.mjs. -->
  <title>${title}</title>
  <style>${STYLE}
  </style>
  <defs>${heads.join('')}</defs>
  <rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8" class="ground"/>
  ${parts.join('\n  ')}
</svg>
`
  writeFileSync(new URL(`${name}.svg`, import.meta.url), svg)
}

drawing('family', 900, 630, 'Who is whose parent in holdfast', [
  box(330, 20, 240, 56, 'box', ['host', 'your Node.js program, with the addon']),
  box(330, 130, 240, 56, 'box', ['spawn helper', 'subreaper, one for each host']),
  box(70, 244, 240, 56, 'box', ['keeper of call 1', 'subreaper, in a group of its own']),
  box(370, 244, 200, 56, 'box', ['keeper of call 2', 'the same']),
  box(630, 244, 200, 56, 'box', ['idle keeper', 'forked ahead of need']),
  '<rect x="30" y="330" width="320" height="206" rx="8" class="area"/>',
  text(42, 526, 'the brood of call 1', 'small'),
  box(110, 350, 160, 56, 'contained', ['command', 'in a group made for it']),
  box(50, 446, 120, 56, 'contained', ['child', 'in the group']),
  box(206, 446, 128, 56, 'contained', ['daemon', 'own session']),
  box(390, 350, 160, 56, 'contained', ['command', 'of call 2']),

  path('line', 'M450 76 V129'),
  path('line', 'M400 186 C400 216 190 210 190 243'),
  path('line', 'M450 186 C450 210 470 216 470 243'),
  path('line', 'M500 186 C500 216 730 210 730 243'),
  path('line', 'M190 300 V349'),
  path('line', 'M150 406 L114 445'),
  path('line', 'M230 406 L262 445'),
  path('line', 'M470 300 V349'),

  path('talk', 'M330 48 C120 48 100 130 100 243'),
  text(60, 60, 'control socket', 'small'),
  path('talk', 'M570 48 C612 76 614 214 545 243'),
  path('talk', 'M570 36 C790 36 800 130 800 243'),

  path('move', 'M322 446 C342 400 330 330 290 301'),
  text(358, 430, 'when its parent is gone,', 'small'),
  text(358, 446, "it becomes the keeper's child", 'small'),

  legend(40, 566, 'line', 'is the parent of'),
  legend(240, 566, 'talk', 'talk directly, one socket for each keeper'),
  legend(40, 596, 'move', 'an orphan moves up, whatever group or session it is in'),
])

const TIME = [60, 250, 440, 630, 820]

/** One line of the race: what each column of time holds. */
function lane(y, title, note) {
  return [text(40, y, title, 'title'), text(40, y + 18, note, 'small')]
}

drawing('race', 900, 500, 'The race of kill(-pid), and how a pin closes it', [
  ...lane(
    36,
    'Without a pin',
    'The number 4711 is free as soon as its last owner is reaped. Whoever comes next may get it.',
  ),
  box(TIME[0], 70, 170, 60, 'contained', ['command, pid 4711', 'leads group 4711']),
  box(TIME[1], 70, 170, 60, 'dead', ['exits, is reaped', '4711 is free']),
  box(TIME[2], 70, 170, 60, 'foreign', ['somebody else', 'gets pid, group 4711']),
  box(TIME[3], 70, 210, 60, 'foreign', ['somebody else is hit', 'nobody can tell']),
  path('line', 'M230 100 H249'),
  path('line', 'M420 100 H439'),
  path('line', 'M610 100 H629'),
  path('hit', 'M735 172 V132'),
  text(735, 190, 'kill(-4711, SIGKILL)', '', 'middle'),

  '<path d="M40 222 H860" class="line" stroke-opacity="0.4"/>',

  ...lane(
    256,
    'With a pin',
    'The group is led by a child of the keeper that exited and is not reaped. It keeps its number, and the group keeps it too.',
  ),
  box(TIME[0], 290, 170, 60, 'dead', ['the pin, pid 4711', 'a zombie, leads group 4711']),
  box(TIME[1], 290, 170, 60, 'contained', ['command, pid 4712', 'joins group 4711']),
  box(TIME[2], 290, 170, 60, 'contained', ['what it left', 'still in group 4711']),
  box(TIME[3], 290, 210, 60, 'dead', ['all dead, all reaped', 'only now 4711 is free']),
  path('line', 'M230 320 H249'),
  path('line', 'M420 320 H439'),
  path('line', 'M610 320 H629'),
  path('good', 'M525 392 V352'),
  text(525, 410, 'kill(-4711, SIGKILL)', '', 'middle'),
  path('line', 'M335 392 V352'),
  text(335, 410, 'waitid: pin still ours?', '', 'middle'),
  path('line', 'M735 392 V352'),
  text(735, 410, 'waitid: ECHILD', '', 'middle'),
  '<path d="M60 446 H836" class="line" marker-end="url(#line)"/>',
  text(840, 450, 'time', 'small'),
  text(
    60,
    472,
    'The check comes immediately before the signal, and only the keeper can reap: nothing can happen between them.',
    'small',
  ),
])
