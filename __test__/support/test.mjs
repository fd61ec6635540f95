// AVA's test(), by which the tests of a file run one after the other: they start, kill and count real processes. Files
// run side by side where ava.config.mjs says so.
import test from 'ava'

export default test.serial
