// C84: what a listener makes its user do is done before the next event, whatever arrives at once. Every row is run with
// child_process as well: what arrives there must arrive here.
import childProcess from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setImmediate } from 'node:timers/promises'
import { run, spawn } from '../dist/index.js'
import { within } from './support/command-line.mjs'
import { isAlive, pidOf, stat, until } from './support/facts.mjs'
import { programOf } from './support/fixtures.mjs'
import { startHost } from './support/host.mjs'
import { suite } from './support/suite.mjs'
import test from './support/test.mjs'

const { env } = suite(test)
const ROUNDS = 10
const starters = {
  holdfast: (file, args, options) => spawn(file, args, { env, ...options }),
  child_process: (file, args, options) => childProcess.spawn(file, args, { env, ...options }),
}

/** What a user does between an event and the next listener. */
const pauses = {
  nothing: async () => {},
  'twenty microtasks': async () => {
    for (let turn = 0; turn < 20; turn++) await undefined
  },
  nextTick: () => new Promise((resolve) => process.nextTick(resolve)),
  setImmediate: () => setImmediate(),
}

async function textOf(stream) {
  let text = ''
  for await (const chunk of stream) text += chunk
  return text
}
function heard(stream) {
  const chunks = []
  stream.on('data', (chunk) => chunks.push(chunk))
  return () => Buffer.concat(chunks).toString()
}
const consumers = {
  data: async (child) => {
    const text = heard(child.stdout)
    await once(child, 'close')
    return text()
  },
  readable: async (child) => {
    let text = ''
    child.stdout.on('readable', () => {
      for (let chunk = child.stdout.read(); chunk !== null; chunk = child.stdout.read()) text += chunk
    })
    await once(child, 'close')
    return text
  },
  'for await, and close after it': async (child) => {
    const text = await textOf(child.stdout)
    await once(child, 'close')
    return text
  },
  readline: async (child) => {
    const lines = []
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(`${line}\n`))
    await once(child, 'close')
    return lines.join('')
  },
}
const ECHO = ['echo', ['important']]

for (const [pause, wait] of Object.entries(pauses)) {
  for (const [consumer, consume] of Object.entries(consumers)) {
    test(`a listener after \`spawn\` and ${pause} gets the output: ${consumer} (C84)`, async (t) => {
      for (const start of Object.values(starters)) {
        for (let round = 0; round < ROUNDS; round++) {
          const child = start(...ECHO)
          await once(child, 'spawn')
          await wait()
          const text = await within(consume(child), 'close')
          // With a setImmediate between, child_process delivers it unless the command was quicker.
          if (start === starters.holdfast || pause !== 'setImmediate') t.is(text, 'important\n')
        }
      }
    })
  }

  /** From event to event: each is to come to a listener that was added after the one before, and `pause`. */
  const chains = {
    'exit, close': async (child) => {
      await once(child, 'exit')
      await wait()
      // Without pipes, child_process emits both at once.
      await once(child, 'close')
    },
    'data, close': async (child) => {
      await once(child.stdout, 'data')
      await wait()
      await once(child, 'close')
    },
    'end of stdout, close': async (child) => {
      await textOf(child.stdout)
      await wait()
      await once(child, 'close')
    },
  }
  for (const [title, chain] of Object.entries(chains)) {
    test(`${title}, with ${pause} between (C84)`, async (t) => {
      for (const start of Object.values(starters)) {
        for (let round = 0; round < ROUNDS; round++) await within(chain(start(...ECHO)), title)
      }
      t.pass()
    })
  }

  test(`of holdfast, with ${pause} between: spawn, data, exit, close, ended (C84)`, async (t) => {
    for (const options of [{}, { stdio: 'ignore' }, { background: 'keep' }]) {
      for (let round = 0; round < ROUNDS; round++) {
        const child = starters.holdfast(...ECHO, options)
        const events = ['spawn', ...(options.stdio ? [] : ['data']), 'exit', 'close', 'ended']
        for (const event of events) {
          await within(once(event === 'data' ? child.stdout : child, event), event)
          await wait()
        }
        t.is((await child.ended).outcome, 'ended')
      }
    }
  })

  test(`a listener after \`exit\` and ${pause} gets what nobody has read (C84)`, async (t) => {
    // Here child_process may have thrown it away by then.
    for (let round = 0; round < ROUNDS; round++) {
      const child = starters.holdfast(...ECHO)
      await within(once(child, 'exit'), 'exit')
      await wait()
      t.is(await within(consumers.data(child), 'close'), 'important\n')
    }
  })

  test(`two that end at once, awaited one after the other, with ${pause} between (C84)`, async (t) => {
    for (let round = 0; round < ROUNDS; round++) {
      const [first, second] = [1, 2].map(() => starters.holdfast('true', [], { stdio: 'ignore' }))
      const pids = [first, second].map((child) => pidOf(child))
      // Both ends are there before the loop has its turn.
      const end = Date.now() + 10_000
      while (pids.some(isAlive) && Date.now() < end);
      for (const child of [first, second]) {
        if (child.exitCode === null) await within(once(child, 'exit'), 'exit')
        await wait()
      }
      t.deepEqual([first.exitCode, second.exitCode], [0, 0])
    }
  })
}

test('a start that fails: error, close, ended, each heard by who awaited the one before (C84)', async (t) => {
  for (const start of Object.values(starters)) {
    const child = start('holdfast-no-such-program')
    const [error] = await within(once(child, 'error'), 'error').catch((error) => [error])
    t.is(error.code, 'ENOENT')
    await within(once(child, 'close'), 'close')
    if (child.ended) t.is((await child.ended).reason, 'not-started')
  }
})

test('all of it is there before the loop has its turn: nothing is lost (C84)', async (t) => {
  for (const consume of Object.values(consumers)) {
    const child = starters.holdfast(...ECHO)
    const pid = pidOf(child)
    const end = Date.now() + 10_000
    while (isAlive(pid) && Date.now() < end);
    await once(child, 'spawn')
    await setImmediate()
    t.is(await within(consume(child), 'close'), 'important\n')
  }
})

test('the order is kept, and each event has a turn of its own (C84)', async (t) => {
  const child = starters.holdfast('sh', ['-c', 'echo out; echo err >&2'])
  const seen = []
  let turn = 0
  let isOver = false
  const count = async () => {
    while (!isOver) {
      turn++
      await setImmediate()
    }
  }
  void count()
  for (const event of ['spawn', 'exit', 'close', 'ended']) child.on(event, () => seen.push([event, turn]))
  child.stdout.on('data', () => seen.push(['data', turn]))
  await child.ended
  isOver = true
  t.deepEqual(
    seen.map(([event]) => event),
    ['spawn', 'data', 'exit', 'close', 'ended'],
  )
  const turns = seen.map(([, at]) => at)
  t.deepEqual(
    turns,
    [...new Set(turns)].sort((one, other) => one - other),
    'no two in one',
  )
})

test('output that nobody listens for holds nothing up, and run() has all of its own (C84)', async (t) => {
  const child = starters.holdfast('seq', ['1000'])
  await within(once(child, 'close'), 'close')
  t.is((await run('seq', ['1000'], { env })).stdout.split('\n').length, 1001)
})

test('an event that is being kept for the next turn is no live process: kill() and end() know (C84)', async (t) => {
  const child = starters.holdfast(...ECHO)
  const pid = pidOf(child)
  let report
  child.once('spawn', () => {
    const end = Date.now() + 10_000
    while (stat(pid) !== undefined && Date.now() < end);
    report = child.end()
  })
  t.is(((await report) ?? (await child.ended)).outcome, 'ended')
  t.false(child.kill())
  await until(() => !isAlive(pid), 'the end')
})

/** The host's events without `exited`, as where the command itself survives; `ended` says for which reason. */
const WITHOUT_EXIT = (reason) => programOf('events/without-exit', { reason })
test('a command that is itself among the survivors has no `exit`; a lost keeper gives null and null', async (t) => {
  const survivors = [{ pid: 99, name: 'set-uid' }]
  for (const [reason, exits] of [
    ['end', []],
    ['keeper-gone', [['exit', null, null]]],
  ]) {
    const host = startHost(WITHOUT_EXIT(reason), { env })
    t.teardown(() => host.kill())
    t.deepEqual(await within(host.next(), 'the end'), {
      seen: [['spawn', null, null], ...exits, ['close', null, null], ['ended']],
      survivors,
      result: [null, null, false, survivors],
    })
    await host.exited
  }
})
