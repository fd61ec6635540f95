// C10 to C19: calls that hang elsewhere, and output that is lost elsewhere.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { notices, run, spawn } from '../dist/index.js'
import { gone, holdLoop, isAlive, marked, newMark, until } from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { HOLDFAST, startHost } from './support/host.mjs'
import { folderOfFile, has, suite } from './support/suite.mjs'
import { NO_TERMINAL, openTerminal } from './support/terminal.mjs'
import test from './support/test.mjs'

const isLong = Boolean(process.env.HOLDFAST_LONG)
const MIB = 1024 * 1024
/** What is bounded by this would otherwise take the minute that fixtures live, or for ever. */
const AT_ONCE = 5000
const environment = (mark) => ({ ...process.env, MARK: mark })

const folder = folderOfFile(test)
suite(test, { patience: 0 })

/** Holds the event loop until the fact is there. */
function block(milliseconds, fact = () => true) {
  const end = Date.now() + milliseconds
  while (Date.now() < end || !fact()) {
    if (Date.now() > end + 10_000) throw new Error('what the loop was blocked for did not happen')
    holdLoop(2)
  }
}

const BACKGROUND = {
  'a background process does not hold the call (C10)': 'sleep 60 & echo done',
  'one that prints ten times a second does not (C11)':
    '(for i in $(seq 600); do echo tick; sleep 0.1; done) & echo done',
  'one that holds only stderr does not (C11)': 'sleep 60 </dev/null >/dev/null & echo done',
  'one that holds only stdin and stdout does not (C11)': 'sleep 60 2>/dev/null & echo done',
  'one in a session of its own does not (C11)': 'setsid sleep 60 & echo done',
}
for (const [title, script] of Object.entries(BACKGROUND)) {
  test(title, async (t) => {
    const mark = newMark()
    const result = await run('bash', ['-c', script], { env: environment(mark) })
    t.true(result.duration < AT_ONCE, `took ${result.duration} ms`)
    t.like(result, { exitCode: 0, signal: null, ok: true, stderr: '', timedOut: false, notices: [] })
    t.is(result.stdout.replaceAll('tick\n', ''), 'done\n')
    const { outcome, reason, leftovers, leftoverCount } = result.report
    t.deepEqual([outcome, reason], ['ended', 'exit'])
    // What was to sleep may not have come to its exec yet.
    t.true(leftoverCount >= 1)
    for (const { name } of leftovers) t.regex(name, /^(sleep|bash|setsid|seq)$/)
    t.deepEqual(marked(mark), [])
  })
}

test('the report names what was left (C10)', async (t) => {
  const script = 'sleep 60 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; echo $!'
  const { stdout, report } = await run('bash', ['-c', script])
  t.deepEqual(report.leftovers, [{ pid: Number(stdout), name: 'sleep' }])
  t.is(report.leftoverCount, 1)
  t.false(isAlive(Number(stdout)))
})

test('spawn(): `close` and `ended` come although the pipe is held (C10)', async (t) => {
  const mark = newMark()
  const child = spawn('bash', ['-c', 'sleep 60 & setsid sleep 60 & echo done'], { env: environment(mark) })
  const seen = []
  for (const event of ['spawn', 'exit', 'close', 'ended']) child.on(event, () => seen.push(event))
  let output = ''
  child.stdout.on('data', (bytes) => {
    output += bytes
  })
  const report = await Promise.race([child.ended, setTimeout(AT_ONCE, 'it hangs', { ref: false })])
  t.like(report, { outcome: 'ended', reason: 'exit', leftoverCount: 2 })
  t.deepEqual(seen, ['spawn', 'exit', 'close', 'ended'])
  t.is(output, 'done\n')
  t.deepEqual(marked(mark), [])
})

test('a timeout ends what ignores SIGTERM and what left the session (C12)', async (t) => {
  const mark = newMark()
  const [timeout, grace] = [300, 200]
  const result = await run('sh', ['-c', `sh -c 'trap "" TERM; setsid sleep 60 & echo up; sleep 60; :'; true`], {
    env: environment(mark),
    timeout,
    grace,
  })
  t.true(result.duration >= timeout)
  t.true(result.duration < timeout + grace + 1000, `took ${result.duration} ms`)
  t.like(result, { timedOut: true, ok: false, stdout: 'up\n', aborted: false, report: { reason: 'timeout' } })
  t.is(result.report.outcome, 'ended')
  t.deepEqual(marked(mark), [])
})

test('the deadline strikes while the event loop of the host is blocked (C13)', async (t) => {
  const host = startHost(programOf('hang/blocked-loop'))
  const pid = await host.next()
  const started = Date.now()
  t.true(isAlive(pid))
  let isBlocked = true
  const free = host.next().then((word) => {
    isBlocked = false
    return word
  })
  await gone([pid], 500 + 300 + 1000)
  const took = Date.now() - started
  t.true(isBlocked, 'seen from outside, before the loop was free')
  t.true(took >= 500, `not before its time: ${took} ms`)
  t.is(await free, 'the loop is free')
  t.deepEqual(await host.next(), { outcome: 'ended', reason: 'timeout', signal: 'SIGKILL' })
  await host.exited
})

test('two hundred commands side by side: every line of every one arrives (C14)', async (t) => {
  const results = await Promise.all(
    Array.from({ length: 200 }, (_, index) => run('sh', ['-c', `echo ${index} a; echo ${index} b; echo ${index} c`])),
  )
  results.forEach(({ stdout }, index) => {
    if (stdout !== `${index} a\n${index} b\n${index} c\n`) t.fail(`${index}: ${stdout}`)
  })
  const streams = Array.from({ length: 200 }, (_, index) => {
    const child = spawn('sh', ['-c', `echo ${index}; echo 2; echo 3 >&2`])
    child.texts = ['', '']
    child.stdout.on('data', (bytes) => {
      child.texts[0] += bytes
    })
    child.stderr.on('data', (bytes) => {
      child.texts[1] += bytes
    })
    return child
  })
  await Promise.all(streams.map(({ ended }) => ended))
  t.deepEqual(
    streams.map(({ texts }) => texts),
    streams.map((_, index) => [`${index}\n2\n`, '3\n']),
  )
})

test('every byte of 64 MiB arrives at a slow consumer (C14)', async (t) => {
  const script = `seq 1 9000000 | head -c ${64 * MIB}`
  const expected = execFileSync('sh', ['-c', `${script} | sha256sum`], { encoding: 'utf8' }).split(' ')[0]
  const rate = (isLong ? 4 : 40) * MIB
  const child = spawn('sh', ['-c', script])
  const hash = createHash('sha256')
  const began = Date.now()
  let count = 0
  for await (const bytes of child.stdout) {
    hash.update(bytes)
    count += bytes.length
    const ahead = (count / rate) * 1000 - (Date.now() - began)
    // The consumer is slow, that is what the case is about.
    if (ahead > 10) await setTimeout(ahead)
  }
  t.is(count, 64 * MIB)
  t.is(hash.digest('hex'), expected)
  t.like(await child.ended, { outcome: 'ended', reason: 'exit' })
  t.is(child.exitCode, 0)
})

test('a paused stream holds what the command left in it (C14)', async (t) => {
  const child = spawn('sh', ['-c', 'seq 1 10000'])
  child.stdout.pause()
  await child.ended
  let text = ''
  for await (const bytes of child.stdout) text += bytes
  const expected = execFileSync('seq', ['1', '10000'], { encoding: 'utf8' })
  // Not t.is(): the difference would fill the log.
  t.true(text === expected, `${text.length} of ${expected.length} bytes`)
})

test('the last line of a command that left while the loop was blocked arrives (C15)', async (t) => {
  const child = spawn('sh', ['-c', 'echo last'])
  let text = ''
  child.stdout.on('data', (bytes) => {
    text += bytes
  })
  const pending = run('sh', ['-c', 'sleep 60 & echo last; echo worst >&2'])
  block(1500, () => !isAlive(child.pid))
  await child.ended
  t.is(text, 'last\n')
  t.like(await pending, { stdout: 'last\n', stderr: 'worst\n', exitCode: 0 })
})

test('grep and cat with nothing on stdin return (C16)', async (t) => {
  t.like(await run('grep', ['x']), { exitCode: 1, stdout: '', stderr: '' })
  t.like(await run('cat'), { exitCode: 0, stdout: '' })
})

test('cat returns under a host whose own stdin is an open pipe (C16)', async (t) => {
  const host = startHost(`
    const { exitCode, stdout, report: { reason } } = await run('sh', ['-c', 'cat; readlink /proc/self/fd/0'], { timeout: 10_000 })
    report({ exitCode, stdout, reason })
    process.exit()
  `)
  t.deepEqual(await host.next(), { exitCode: 0, stdout: '/dev/null\n', reason: 'exit' })
  // Written to only now: it was open all the time.
  t.true(host.child.stdin.writable)
  await host.exited
})

test('a command cannot open the terminal of its host: what asks there for a password fails at once (C17)', async (t) => {
  if (!has(t, NO_TERMINAL)) return
  const host = join(folder, 'in-terminal.cjs')
  const script = 'read -r word </dev/tty; echo "read $?"; stty sane </dev/tty; echo "stty $?"'
  writeFileSync(
    host,
    `const fs = require('node:fs')
     fs.closeSync(fs.openSync('/dev/tty', 'r')) // the host itself can
     require(${JSON.stringify(HOLDFAST)}).run('sh', ['-c', ${JSON.stringify(script)}], { timeout: ${2 * AT_ONCE} })
       .then(({ stdout, timedOut, duration }) => console.log(JSON.stringify([stdout, timedOut, duration < ${AT_ONCE}]) + ';'))`,
  )
  const terminal = openTerminal(`exec ${process.execPath} ${host}`)
  const [, told] = await terminal.shows(/(\[.*\]);/)
  const [stdout, ...rest] = JSON.parse(told)
  t.regex(stdout, /^read [1-9]\d*\nstty [1-9]\d*\n$/)
  t.deepEqual(rest, [false, true])
})

test('output without end: memory stays flat, head and tail are there, the status is the command’s (C18)', async (t) => {
  const total = (isLong ? 8192 : 1024) * MIB
  const host = startHost(programOf('hang/output-without-end', { total, MIB }))
  const seen = await host.next()
  await host.exited
  t.log(`${total / MIB} MiB, host grew by ${(seen.grown / MIB).toFixed(1)} MiB`)
  // What the collector has not come to yet; kept output would be sixteen times as much, or more.
  t.true(seen.grown < 64 * MIB, `grew by ${seen.grown} bytes`)
  t.is(seen.start, 'head\ny\ny\n')
  t.is(seen.end, 'y\ny\ntail\n'.slice(-9))
  t.is(seen.marks, 1)
  t.is(seen.length - `\n${notices.cut}\n`.length + seen.dropped.stdout, total)
  t.true(seen.length <= MIB + 1024)
  t.deepEqual([seen.exitCode, seen.reason, seen.dropped.stderr], [7, 'exit', 0])
  t.deepEqual(seen.notices, [notices.cut])
})

test('yes that is ended by the timeout: head, tail, and what was dropped (C18)', async (t) => {
  const result = await run('yes', { timeout: isLong ? 5000 : 700, maxOutput: MIB })
  t.like(result, { timedOut: true, signal: 'SIGTERM', exitCode: null })
  t.true(result.dropped.stdout > 16 * MIB)
  t.true(result.stdout.startsWith('y\ny\n'))
  t.true(result.stdout.length <= MIB + 1024)
})

const WRITERS = {
  'a plain command': 'sleep 1; echo once >>"$0"',
  'one that ignores SIGTERM': 'trap "" TERM; sleep 1; echo once >>"$0"; exit 0',
  'one that writes from a session of its own': `setsid sh -c 'trap "" TERM; sleep 1; echo once >>"$0"' "$0" & wait`,
}
for (const [title, script] of Object.entries(WRITERS)) {
  test(`an aborted call resolves when it can no longer write: ${title} (C19)`, async (t) => {
    const mark = newMark()
    const file = join(folder, mark)
    const options = { env: environment(mark), grace: 100 }
    const result = await run('sh', ['-c', script, file], { ...options, signal: AbortSignal.timeout(100) })
    t.deepEqual(marked(mark), [], 'when it resolves, nobody is left to write')
    t.like(result, { aborted: true, ok: false, timedOut: false, report: { outcome: 'ended', reason: 'abort' } })
    // The second takes longer than the first would have: a first that lived on would have written by then.
    t.like(await run('sh', ['-c', script, file], options), { exitCode: 0, aborted: false })
    t.is(readFileSync(file, 'utf8'), 'once\n')
    await until(() => marked(mark).length === 0, 'end of both')
  })
}
