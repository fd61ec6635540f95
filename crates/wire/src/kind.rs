//! The kinds of frames: one number space for all directions, so that a frame on the wrong socket is never taken for
//! another.

pub const SPEC: u8 = 1;
pub const SIGNAL: u8 = 2;
pub const END: u8 = 3;
pub const HAND_OVER: u8 = 4;
pub const STARTER: u8 = 5;
pub const LAST: u8 = 6;
pub const TERMINAL: u8 = 7;
pub const CONTINUED: u8 = 8;

pub const STARTED: u8 = 18;
pub const FAILED: u8 = 19;
pub const EXITED: u8 = 20;
pub const TAKEN: u8 = 21;
pub const ENDED: u8 = 22;
pub const STOPPED: u8 = 23;
pub const NOT_TAKEN: u8 = 24;

pub const WANT: u8 = 32;

pub const HELLO: u8 = 48;
pub const KEEPER: u8 = 49;
pub const NO_KEEPER: u8 = 50;
pub const KEEPER_ENDED: u8 = 51;

/// What makes the receiver start a process.
pub const STARTING: [u8; 2] = [SPEC, WANT];
