//! What is written is what is read, and nothing but a whole message is a message.

mod common;

use common::{READERS, Reader, corpus, facts, frames, from_helper, from_keeper, process, read, spec};
use holdfast_wire::{
    Background, EndFacts, Error, Frame, FromHelper, FromKeeper, Lifetime, MAX_MESSAGE, MAX_NAME, MAX_NAMED,
    MAX_PROCESS_NAME, MAX_STRINGS, NO_DESCRIPTOR, Spec, Step, ToHelper, ToKeeper, Unfit,
};

fn one_frame(bytes: &[u8]) -> Frame {
    let mut list = frames(bytes).unwrap();
    assert_eq!(list.len(), 1);
    list.remove(0)
}

fn spec_bytes(spec: &Spec<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ToKeeper::put_spec(&mut bytes, spec).unwrap();
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
    ToKeeper::put_last(&mut bytes);
    ToKeeper::put_terminal(&mut bytes, 2);
    ToKeeper::put_continued(&mut bytes);
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
            "Last",
            "Terminal { signal: 2 }",
            "Continued",
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
    assert_eq!(view.lifetime, sent.lifetime);
    assert_eq!(view.lifetime.background, Background::Keep);
    // Two that stand side by side and differ, here the one way and below the other.
    assert_eq!((view.same_group, view.detached), (true, false));
    assert_eq!((view.cwd_is_open, view.program), (sent.cwd_is_open, sent.program));
    let other = Spec {
        same_group: false,
        detached: true,
        lifetime: Lifetime { background_settle: 0, ..sent.lifetime },
        ..sent
    };
    let ToKeeper::Spec(view) = ToKeeper::decode(one_frame(&spec_bytes(&other))).unwrap() else {
        panic!("not a spec");
    };
    assert_eq!((view.same_group, view.detached, view.lifetime.background_settle), (false, true, 0));
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

fn refusal(spec: &Spec<'_>) -> Option<Unfit> {
    let mut bytes = b"before".to_vec();
    let refusal = ToKeeper::put_spec(&mut bytes, spec).err();
    assert!(refusal.is_none() || bytes == b"before", "something was written");
    refusal
}

/// A keeper would start something else than was meant, or from a place that it was not given.
#[test]
fn a_spec_that_contradicts_itself_is_not_written_and_not_read() {
    let wrong: [(Spec<'_>, Step, &[u8], &[u8]); 3] = [
        (
            Spec { places: &[NO_DESCRIPTOR, 1, 3], ..spec() },
            Step::Stdio,
            &[NO_DESCRIPTOR, 1, 2],
            &[255, 1, 3],
        ),
        (Spec { file: b"s\0h", ..spec() }, Step::Program, b"\x03\0\0\0sh\0", b"\x03\0\0\0s\0\0"),
        (Spec { cwd: b"some\0where", ..spec() }, Step::Cwd, b"some/where", b"some\0where"),
    ];
    for (spec_to_write, step, right, wrong) in wrong {
        assert_eq!(refusal(&spec_to_write), Some(Unfit::Invalid(step)));
        // Written by something else all the same.
        let places: &[u8] = if step == Step::Stdio { right } else { &[] };
        let mut frame = one_frame(&spec_bytes(&Spec { places, ..spec() }));
        let at = frame.payload.windows(right.len()).position(|window| window == right).unwrap();
        frame.payload[at..at + wrong.len()].copy_from_slice(wrong);
        assert_eq!(ToKeeper::decode(frame).err(), Some(Error::Malformed), "{step:?}");
    }
    let bare = Spec { descriptors: 0, places: &[], program: NO_DESCRIPTOR, ..spec() };
    assert_eq!(refusal(&Spec { places: &[0], ..bare }), Some(Unfit::Invalid(Step::Stdio)));
    assert_eq!(refusal(&Spec { program: 0, ..bare }), Some(Unfit::Invalid(Step::Program)));
    for right in [Spec { places: &[2], ..spec() }, bare] {
        assert!(ToKeeper::decode(one_frame(&spec_bytes(&right))).is_ok(), "{right:?}");
    }
}

/// What is written can be read at every limit; what is beyond one is not written, and the step says which.
#[test]
fn a_spec_is_written_up_to_its_limits_and_never_beyond() {
    let name = |length: usize| vec![b'n'; length];
    let (most, many) = (name(MAX_NAME), vec![b'x'; MAX_STRINGS + 1]);
    let beyond = name(MAX_NAME + 1);
    let (args, env) = (MAX_STRINGS / 2, MAX_STRINGS - MAX_STRINGS / 2 - spec().places.len());
    for largest in [
        Spec { file: &most, cwd: &most, args: &many[..args], env: &many[..env], ..spec() },
        Spec { file: b"", cwd: b"", args: b"", env: b"", ..spec() },
        Spec { args: b"\0\0\0", env: b"=\0\0A", ..spec() },
        Spec { file: b"\xff/\xfe", cwd: b"\xc3\x28", ..spec() },
        Spec { descriptors: u32::MAX, places: &[0, 254, NO_DESCRIPTOR], ..spec() },
    ] {
        assert!(refusal(&largest).is_none());
        let ToKeeper::Spec(view) = ToKeeper::decode(one_frame(&spec_bytes(&largest))).unwrap() else {
            panic!("not a spec");
        };
        assert_eq!((view.file().to_bytes(), view.cwd().to_bytes()), (largest.file, largest.cwd));
        assert_eq!(view.places(), largest.places);
    }
    let rest = MAX_STRINGS - spec().places.len();
    for (spec, step) in [
        (Spec { file: &beyond, ..spec() }, Step::Program),
        (Spec { cwd: &beyond, ..spec() }, Step::Cwd),
        (Spec { file: &beyond, cwd: &beyond, args: &many, ..spec() }, Step::Cwd),
        (Spec { file: &beyond, args: &many, ..spec() }, Step::Program),
        (Spec { args: &many[..rest + 1], env: b"", ..spec() }, Step::Arguments),
        (Spec { env: &many[..rest + 1], args: b"", ..spec() }, Step::Arguments),
        (Spec { args: &many[..args + 1], env: &many[..env], ..spec() }, Step::Arguments),
    ] {
        assert_eq!(refusal(&spec), Some(Unfit::TooLong(step)));
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

    // Names likewise: however long, a report is no larger than a message may be.
    let named = |count| vec![process(i32::MAX, &vec![0xff; 1 << 20]); count];
    let long = EndFacts { leftovers: named(MAX_NAMED), survivors: named(MAX_NAMED), ..facts() };
    let mut largest = Vec::new();
    FromHelper::KeeperEnded { keeper: 1, facts: long }.put(&mut largest);
    assert!(largest.len() < MAX_MESSAGE, "{}", largest.len());
    let Ok(FromHelper::KeeperEnded { facts: read, .. }) = FromHelper::decode(&one_frame(&largest)) else {
        panic!("not an end");
    };
    assert!(read.survivors.iter().all(|process| process.name == vec![0xff; MAX_PROCESS_NAME]));

    // More than that, by somebody who writes it all the same, is refused before it is read.
    let mut frame = one_frame(&bytes);
    let count_at = 4 + 8 + 24 + 4;
    frame.payload[count_at..count_at + 4].copy_from_slice(&(MAX_NAMED as u32 + 1).to_le_bytes());
    assert_eq!(FromKeeper::decode(&frame), Err(Error::Malformed));
}
