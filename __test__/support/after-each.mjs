// What is to be tidied up after each test of a file. Its owner adds it here, suite() runs it.
export const afterEachTest = []
