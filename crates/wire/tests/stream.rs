//! Cutting a stream into frames: in any split, of any size, and with anything wrong in it.

mod common;

use common::{READERS, corpus, frames, read, spec};
use holdfast_wire::{Decoder, Error, Frame, MAX_MESSAGE, MAX_SPEC, ToHelper, ToKeeper};

const SPEC: u8 = 1;
const SIGNAL: u8 = 2;
const WANT: u8 = 32;

fn header(length: u32, kind: u8) -> Vec<u8> {
    [length.to_le_bytes().as_slice(), &[kind]].concat()
}

fn whole_stream() -> Vec<u8> {
    corpus().into_iter().flat_map(|(_, bytes)| bytes).collect()
}

#[test]
fn any_split_gives_the_same_frames() {
    let stream = whole_stream();
    let expected = frames(&stream).unwrap();
    assert_eq!(expected.len(), corpus().len());
    for at in 0..=stream.len() {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for part in [&stream[..at], &stream[at..]] {
            decoder.feed(part);
            while let Some(frame) = decoder.next_frame().unwrap() {
                found.push(frame);
            }
        }
        assert_eq!(found, expected, "split at {at}");
        assert!(decoder.is_empty());
    }
}

#[test]
fn byte_by_byte_gives_the_same_frames() {
    let stream = whole_stream();
    let mut decoder = Decoder::default();
    let mut found = Vec::new();
    for byte in &stream {
        decoder.feed(std::slice::from_ref(byte));
        while let Some(frame) = decoder.next_frame().unwrap() {
            found.push(frame);
        }
    }
    assert_eq!(found, frames(&stream).unwrap());
}

#[test]
fn a_decoder_knows_whether_it_holds_part_of_a_frame() {
    let mut bytes = Vec::new();
    ToHelper::Want(1).put(&mut bytes);
    for cut in 1..bytes.len() {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes[..cut]);
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(!decoder.is_empty(), "{cut} bytes are held");
        decoder.feed(&bytes[cut..]);
        assert!(decoder.next_frame().unwrap().is_some());
        assert!(decoder.is_empty());
    }
}

#[test]
fn a_frame_of_no_length_is_malformed() {
    assert_eq!(frames(&header(0, SIGNAL)), Err(Error::Malformed));
}

#[test]
fn a_frame_beyond_its_kinds_limit_is_refused_by_its_header_alone() {
    let at = |payload: usize, kind: u8| frames(&header(payload as u32 + 1, kind));
    for kind in (0..=u8::MAX).filter(|&kind| kind != SPEC) {
        assert_eq!(at(MAX_MESSAGE, kind), Ok(Vec::new()));
        assert_eq!(at(MAX_MESSAGE + 1, kind), Err(Error::Oversized));
    }
    assert_eq!(at(MAX_SPEC, SPEC), Ok(Vec::new()));
    assert_eq!(at(MAX_SPEC + 1, SPEC), Err(Error::Oversized));
    assert_eq!(frames(&header(u32::MAX, SPEC)), Err(Error::Oversized));
    assert_eq!(frames(&header(u32::MAX, SIGNAL)), Err(Error::Oversized));
}

#[test]
fn the_largest_message_is_taken() {
    let bytes = [header(MAX_MESSAGE as u32 + 1, SIGNAL), vec![7; MAX_MESSAGE]].concat();
    let expected = Frame { kind: SIGNAL, payload: vec![7; MAX_MESSAGE] };
    assert_eq!(frames(&bytes), Ok(vec![expected]));
}

#[test]
fn frames_in_front_of_a_bad_one_are_still_handed_out() {
    let mut bytes = Vec::new();
    ToKeeper::put_signal(&mut bytes, 15, true);
    bytes.extend(header(0, SIGNAL));
    let mut decoder = Decoder::default();
    decoder.feed(&bytes);
    assert!(decoder.next_frame().unwrap().is_some());
    assert_eq!(decoder.next_frame(), Err(Error::Malformed));
    // And it stays an error: nobody gets past it.
    assert_eq!(decoder.next_frame(), Err(Error::Malformed));
}

/// A spec is a start and a signal is none; `at` is how many bytes of them come before the sender changes.
#[test]
fn a_start_is_an_error_unless_all_of_it_came_from_the_first_sender() {
    let mut bytes = Vec::new();
    ToHelper::Want(1).put(&mut bytes);
    let start = bytes.len();
    ToKeeper::put_signal(&mut bytes, 15, true);
    let signal = bytes.len();
    for at in 0..=bytes.len() {
        for step in 1..=bytes.len() {
            let mut decoder = Decoder::default();
            let mut kinds = Vec::new();
            let fed = [&bytes[..at], &bytes[at..]].map(|part| part.chunks(step).collect::<Vec<_>>());
            let [before, after] = &fed;
            let mut failed = None;
            for (position, part) in before.iter().chain(after).enumerate() {
                if position >= before.len() {
                    decoder.distrust();
                }
                decoder.feed(part);
                while failed.is_none() {
                    match decoder.next_frame() {
                        Ok(Some(frame)) => kinds.push(frame.kind),
                        Ok(None) => break,
                        Err(error) => failed = Some(error),
                    }
                }
            }
            if at < start {
                assert_eq!((kinds, failed), (vec![], Some(Error::Distrusted)), "{at} by {step}");
            } else {
                assert_eq!((kinds, failed), (vec![WANT, SIGNAL], None), "{at} by {step}");
                // For good, also behind frames that were taken.
                decoder.feed(&bytes[..start]);
                let next = decoder.next_frame();
                let expected = if at < signal { Err(Error::Distrusted) } else { Ok(WANT) };
                assert_eq!(next.map(|frame| frame.unwrap().kind), expected, "{at} by {step}");
            }
        }
    }
}

/// Every byte of every message, with every other value: a message or an error, never a panic; and a message that
/// is read means the same when it is read again.
#[test]
fn one_wrong_byte_never_panics() {
    let mut errors = 0;
    let mut readable = 0;
    for (reader, bytes) in corpus() {
        // The large report differs from the others in its length only.
        let values: &[u8] =
            if bytes.len() > 1_000 { &[1, 0x80, 0xff] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 255, 0x55] };
        for at in 0..bytes.len() {
            for flip in values {
                let mut wrong = bytes.clone();
                wrong[at] ^= flip;
                match frames(&wrong) {
                    Err(_) => errors += 1,
                    // A length that grew: the frame is not whole, and the socket's end will show it.
                    Ok(list) if list.is_empty() => errors += 1,
                    Ok(list) => {
                        for frame in list {
                            let copy = Frame { kind: frame.kind, payload: frame.payload.clone() };
                            let first = read(reader, frame);
                            assert_eq!(first, read(reader, copy));
                            if first.is_ok() {
                                readable += 1;
                            } else {
                                errors += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    // Both kinds were met, or this test looked at nothing.
    assert!(errors > 1_000 && readable > 1_000, "{errors} errors, {readable} readable");
}

#[test]
fn every_value_of_every_byte_of_a_spec_never_panics() {
    let mut bytes = Vec::new();
    ToKeeper::put_spec(&mut bytes, &spec()).unwrap();
    let payload = &bytes[5..];
    for at in 0..payload.len() {
        for value in 0..=u8::MAX {
            let mut payload = payload.to_vec();
            payload[at] = value;
            let _ = read(common::Reader::Keeper, Frame { kind: SPEC, payload });
        }
    }
}

/// xorshift64*: the same bytes on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let kinds: Vec<u8> = corpus().iter().map(|(_, bytes)| bytes[4]).collect();
    for _ in 0..20_000 {
        let length = random.next() as usize % 128;
        let payload: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let _ = frames(&payload);
        let kind = kinds[random.next() as usize % kinds.len()];
        for reader in READERS {
            let payload = payload.clone();
            let _ = read(reader, Frame { kind, payload });
        }
    }
}
