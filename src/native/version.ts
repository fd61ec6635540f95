/** The version of this package; addon and helper have the same. */
export const version = '0.1.0'
