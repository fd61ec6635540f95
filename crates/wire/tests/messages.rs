//! What is written is what is read, and nothing but a whole message is a message.

mod common;

use common::{READERS, Reader, corpus, facts, frames, from_helper, from_keeper, process, read, spec};
use holdfast_wire::{
    Background, EndFacts, Error, Frame, FromHelper, FromKeeper, MAX_NAMED, Spec, ToHelper, ToKeeper,
};

fn one_frame(bytes: &[u8]) -> Frame {
    let mut list = frames(bytes).unwrap();
    assert_eq!(list.len(), 1);
    list.remove(0)
}

fn spec_bytes(spec: &Spec<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ToKeeper::put_spec(&mut bytes, spec);
    bytes
}

#[test]
fn every_message_of_a_keeper_comes_back() {
    for message in from_keeper() {
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        assert_eq!(FromKeeper::decode(&one_frame(&bytes)), Ok(message));
    }
}

#[test]
fn every_message_of_a_helper_comes_back() {
    for message in from_helper() {
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        assert_eq!(FromHelper::decode(&one_frame(&bytes)), Ok(message));
    }
}

#[test]
fn every_message_to_a_helper_comes_back() {
    for count in [0, 1, u32::MAX] {
        let mut bytes = Vec::new();
        ToHelper::Want(count).put(&mut bytes);
        assert_eq!(ToHelper::decode(&one_frame(&bytes)), Ok(ToHelper::Want(count)));
    }
}

#[test]
fn every_message_to_a_keeper_comes_back() {
    let mut bytes = Vec::new();
    ToKeeper::put_signal(&mut bytes, 64, true);
    ToKeeper::put_signal(&mut bytes, -7, false);
    ToKeeper::put_end(&mut bytes, -1, -1);
    ToKeeper::put_end(&mut bytes, 9, i64::MAX);
    ToKeeper::put_hand_over(&mut bytes, u32::MAX);
    ToKeeper::put_starter(&mut bytes);
    let shown: Vec<String> =
        frames(&bytes).unwrap().into_iter().map(|frame| read(Reader::Keeper, frame).unwrap()).collect();
    assert_eq!(
        shown,
        [
            "Signal { signal: 64, group: true }",
            "Signal { signal: -7, group: false }",
            "End { signal: -1, grace: -1 }",
            "End { signal: 9, grace: 9223372036854775807 }",
            "HandOver { count: 4294967295 }",
            "Starter",
        ]
    );
}

#[test]
fn a_spec_comes_back_field_by_field() {
    let sent = spec();
    let ToKeeper::Spec(view) = ToKeeper::decode(one_frame(&spec_bytes(&sent))).unwrap() else {
        panic!("not a spec");
    };
    let strings = |list: Vec<&std::ffi::CStr>| -> Vec<Vec<u8>> {
        list.into_iter().map(|string| string.to_bytes().to_vec()).collect()
    };
    assert_eq!(view.file().to_bytes(), sent.file);
    assert_eq!(view.cwd().to_bytes(), sent.cwd);
    // The empty argument in the middle is an argument.
    assert_eq!(
        strings(view.args().collect()),
        [b"sh".to_vec(), b"-c".to_vec(), Vec::new(), b"echo \xff".to_vec()]
    );
    assert_eq!(
        strings(view.env().collect()),
        [b"PATH=/bin".to_vec(), b"EMPTY=".to_vec(), b"MARK=m".to_vec()]
    );
    assert_eq!(view.places(), sent.places);
    assert_eq!(view.descriptors, sent.descriptors);
    assert_eq!((view.umask, view.uid, view.gid), (sent.umask, sent.uid, sent.gid));
    assert_eq!((view.nice, view.nofile), (sent.nice, sent.nofile));
    assert_eq!((view.timeout, view.grace), (sent.timeout, sent.grace));
    assert_eq!((view.kill_signal, view.same_group), (sent.kill_signal, sent.same_group));
    assert_eq!(view.background, Background::Keep);
    assert_eq!(view.background_grace, sent.background_grace);
}

#[test]
fn a_spec_without_environment_has_none() {
    let sent = Spec { env: b"", cwd: b"", ..spec() };
    let ToKeeper::Spec(view) = ToKeeper::decode(one_frame(&spec_bytes(&sent))).unwrap() else {
        panic!("not a spec");
    };
    assert_eq!(view.env().count(), 0);
    assert!(view.cwd().is_empty());
}

#[test]
fn a_large_spec_comes_back() {
    let arguments = [b"sh".as_slice(), &vec![b'x'; 3 << 20]].join(&0);
    let sent = Spec { args: &arguments, ..spec() };
    let ToKeeper::Spec(view) = ToKeeper::decode(one_frame(&spec_bytes(&sent))).unwrap() else {
        panic!("not a spec");
    };
    assert_eq!(view.args().nth(1).unwrap().to_bytes().len(), 3 << 20);
}

/// A keeper would start something else than was meant, or from a place that it was not given.
#[test]
fn a_spec_that_contradicts_itself_is_refused() {
    let wrong = [
        Spec { places: &[3], ..spec() },
        Spec { descriptors: 0, places: &[0], ..spec() },
        Spec { file: b"s\0h", ..spec() },
        Spec { cwd: b"some\0where", ..spec() },
    ];
    for spec in &wrong {
        let frame = one_frame(&spec_bytes(spec));
        assert_eq!(ToKeeper::decode(frame).err(), Some(Error::Malformed), "{spec:?}");
    }
    for right in [Spec { places: &[2], ..spec() }, Spec { descriptors: 0, places: &[], ..spec() }] {
        assert!(ToKeeper::decode(one_frame(&spec_bytes(&right))).is_ok(), "{right:?}");
    }
}

#[test]
fn a_message_cut_at_any_byte_is_no_message() {
    for (reader, bytes) in corpus() {
        // As a stream: there is no frame yet.
        for cut in 0..bytes.len() {
            assert_eq!(frames(&bytes[..cut]), Ok(Vec::new()), "{reader:?} cut at {cut}");
        }
        // As a frame whose length agrees with the cut.
        let whole = one_frame(&bytes);
        for cut in 0..whole.payload.len() {
            let frame = Frame { kind: whole.kind, payload: whole.payload[..cut].to_vec() };
            assert_eq!(
                read(reader, frame),
                Err(Error::Malformed),
                "{reader:?} kind {} payload cut at {cut}",
                whole.kind
            );
        }
    }
}

#[test]
fn a_message_that_goes_on_is_no_message() {
    for (reader, bytes) in corpus() {
        let mut frame = one_frame(&bytes);
        frame.payload.push(0);
        assert_eq!(read(reader, frame), Err(Error::Malformed));
    }
}

#[test]
fn a_message_on_the_wrong_socket_is_an_unknown_kind() {
    for (right, bytes) in corpus() {
        for wrong in READERS.into_iter().filter(|&reader| reader != right) {
            let frame = one_frame(&bytes);
            let kind = frame.kind;
            assert_eq!(read(wrong, frame), Err(Error::UnknownKind(kind)), "{right:?} read by {wrong:?}");
        }
    }
}

#[test]
fn a_kind_that_is_no_message_is_unknown_whatever_follows() {
    let known: Vec<u8> = corpus().iter().map(|(_, bytes)| bytes[4]).collect();
    for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
        for reader in READERS {
            for payload in [Vec::new(), vec![0; 64]] {
                assert_eq!(read(reader, Frame { kind, payload }), Err(Error::UnknownKind(kind)));
            }
        }
    }
}

#[test]
fn a_word_beyond_its_list_is_malformed() {
    let mut bytes = Vec::new();
    FromKeeper::Ended(facts()).put(&mut bytes);
    // outcome, mechanism, by, reason: the first bytes of the payload.
    for (at, words) in [(0, 5), (1, 3), (2, 3), (3, 7)] {
        for word in 0..=u8::MAX {
            let mut frame = one_frame(&bytes);
            frame.payload[at] = word;
            assert_eq!(FromKeeper::decode(&frame).is_ok(), word < words, "byte {at} is {word}");
        }
    }
}

#[test]
fn a_report_names_no_more_than_the_limit() {
    let many = EndFacts {
        leftovers: vec![process(2, b"x"); MAX_NAMED + 5],
        survivors: vec![process(3, b"y"); MAX_NAMED + 5],
        ..facts()
    };
    let mut bytes = Vec::new();
    FromKeeper::Ended(many).put(&mut bytes);
    let Ok(FromKeeper::Ended(read)) = FromKeeper::decode(&one_frame(&bytes)) else {
        panic!("not an end");
    };
    assert_eq!((read.leftovers.len(), read.survivors.len()), (MAX_NAMED, MAX_NAMED));

    // More than that, by somebody who writes it all the same, is refused before it is read.
    let mut frame = one_frame(&bytes);
    let count_at = 4 + 8 + 24 + 4;
    frame.payload[count_at..count_at + 4].copy_from_slice(&(MAX_NAMED as u32 + 1).to_le_bytes());
    assert_eq!(FromKeeper::decode(&frame), Err(Error::Malformed));
}
