//! Cutting a byte stream into frames.

use crate::Error;
use crate::kind;

/// Largest payload of a message.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// Largest payload of a spec. The kernel takes far less as arguments and environment.
pub const MAX_SPEC: usize = 64 * 1024 * 1024;

const HEADER: usize = 5;

/// One frame, whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: u8,
    /// The bytes after the kind.
    pub payload: Vec<u8>,
}

/// Collects bytes and hands out frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    /// Where in the buffer the bytes begin that may be of another sender.
    distrusted_from: Option<usize>,
}

impl Decoder {
    /// Adds what was read.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.clear();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// What is fed from now on may be of another sender: a frame that starts something is an error unless all of it
    /// came before. For good: a sender that has changed once may change back.
    pub fn distrust(&mut self) {
        self.distrusted_from.get_or_insert(self.buffer.len());
    }

    fn clear(&mut self) {
        self.buffer.clear();
        self.start = 0;
        self.distrusted_from = self.distrusted_from.map(|_| 0);
    }

    /// The next whole frame, if it is there.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        let bytes = &self.buffer[self.start..];
        let Some((header, rest)) = bytes.split_at_checked(HEADER) else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = header[4];
        let limit = if kind == kind::SPEC { MAX_SPEC } else { MAX_MESSAGE };
        let payload = length.checked_sub(1).ok_or(Error::Malformed)?;
        if payload > limit {
            return Err(Error::Oversized);
        }
        let end = self.start + HEADER + payload;
        if kind::STARTING.contains(&kind) && self.distrusted_from.is_some_and(|from| from < end) {
            return Err(Error::Distrusted);
        }
        let Some(payload) = rest.get(..payload) else {
            // One allocation for a large spec instead of many doublings.
            let missing = payload - rest.len();
            self.buffer.reserve(missing);
            return Ok(None);
        };
        let frame = Frame { kind, payload: payload.to_vec() };
        self.start = end;
        if self.start == self.buffer.len() {
            // A keeper lives for many calls: one large spec must not stay in its memory.
            if self.buffer.capacity() > MAX_MESSAGE {
                self.buffer = Vec::new();
            }
            self.clear();
        }
        Ok(Some(frame))
    }

    /// Whether nothing is left over: no bytes of a frame that is not whole.
    pub fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }
}

/// Appends a frame whose payload `fill` writes.
pub(crate) fn put_frame(into: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = into.len();
    into.extend([0, 0, 0, 0, kind]);
    fill(into);
    let length = (into.len() - at - 4) as u32;
    into[at..at + 4].copy_from_slice(&length.to_le_bytes());
}
