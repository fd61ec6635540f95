/**
 * The fixed texts of the contract: nothing of a run in them (no ids, no times, no names), so that they can be
 * logged or shown to a model as they are.
 */
export const notices = {
  end: 'What this command started could not be shown to have ended; some of it may still be running.',
  helper:
    'This command ran without containment, because the holdfast helper could not be started; what it started may still be running.',
  unclear: 'It cannot be known whether this command was started. It was not started a second time.',
  release: 'What this command left running could not be released; it may have been ended.',
  background:
    "What this command left running still wrote output when its time (backgroundSettle) was over, and was ended, so that the output may be incomplete; wait for it in the command, raise backgroundSettle, or let it run on with background: 'keep'.",
  cut: '[holdfast: output beyond the limit was left out here]',
} as const
