//! Every message there is, with the fields at their edges, and a decoder that takes a frame for any direction.

use holdfast_wire::{
    Background, By, Decoder, EndFacts, Error, Exit, Frame, FromHelper, FromKeeper, Lifetime, MAX_NAMED,
    Mechanism, NO_DESCRIPTOR, Outcome, ProcessInfo, Reason, Settle, Spec, SpecView, Step, ToHelper, ToKeeper,
    Usage,
};

pub const OUTCOMES: [Outcome; 5] =
    [Outcome::Ended, Outcome::Released, Outcome::Unconfirmed, Outcome::Survivors, Outcome::Refused];
pub const MECHANISMS: [Mechanism; 3] = [Mechanism::Subreaper, Mechanism::Group, Mechanism::None];
pub const BYS: [By; 3] = [By::Keeper, By::Helper, By::Host];
pub const REASONS: [Reason; 7] = [
    Reason::Exit,
    Reason::Timeout,
    Reason::End,
    Reason::Release,
    Reason::HostGone,
    Reason::KeeperGone,
    Reason::NotStarted,
];
pub const STEPS: [Step; 9] = [
    Step::Cwd,
    Step::Program,
    Step::Interpreter,
    Step::Arguments,
    Step::Stdio,
    Step::Limits,
    Step::Credentials,
    Step::Helper,
    Step::ParentDeath,
];

/// Which end reads a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Keeper,
    HostFromKeeper,
    Helper,
    HostFromHelper,
}

pub const READERS: [Reader; 4] =
    [Reader::Keeper, Reader::HostFromKeeper, Reader::Helper, Reader::HostFromHelper];

/// Decodes a frame and writes what it says into text, so that two messages can be compared.
pub fn read(reader: Reader, frame: Frame) -> Result<String, Error> {
    Ok(match reader {
        Reader::Keeper => match ToKeeper::decode(frame)? {
            ToKeeper::Spec(view) => describe(&view),
            message => format!("{message:?}"),
        },
        Reader::HostFromKeeper => format!("{:?}", FromKeeper::decode(&frame)?),
        Reader::Helper => format!("{:?}", ToHelper::decode(&frame)?),
        Reader::HostFromHelper => format!("{:?}", FromHelper::decode(&frame)?),
    })
}

/// Every field of a spec, read through its accessors.
pub fn describe(view: &SpecView) -> String {
    format!(
        "{:?}",
        (
            (view.file(), view.cwd(), view.args().collect::<Vec<_>>()),
            (view.env().collect::<Vec<_>>(), view.places(), view.descriptors),
            (view.umask, view.nice, view.nofile, view.uid, view.gid),
            (view.lifetime, view.cwd_is_open, view.program, view.same_group, view.detached),
        )
    )
}

pub fn frames(bytes: &[u8]) -> Result<Vec<Frame>, Error> {
    let mut decoder = Decoder::default();
    decoder.feed(bytes);
    let mut list = Vec::new();
    while let Some(frame) = decoder.next_frame()? {
        list.push(frame);
    }
    Ok(list)
}

pub fn facts() -> EndFacts {
    EndFacts {
        outcome: Outcome::Ended,
        mechanism: Mechanism::Subreaper,
        by: By::Keeper,
        reason: Reason::Exit,
        proof_time: u64::MAX,
        usage: usage(),
        leftover_count: u32::MAX,
        leftovers: vec![process(2, b"sleep"), process(i32::MAX, b"")],
        survivors: vec![process(-1, &[0, 0xff, b'\n'])],
        settle: Settle::Quiet,
    }
}

pub fn process(pid: i32, name: &[u8]) -> ProcessInfo {
    ProcessInfo { pid, name: name.to_vec() }
}

pub fn usage() -> Usage {
    Usage { user: 1, system: u64::MAX, max_rss: 1 << 40 }
}

pub fn spec() -> Spec<'static> {
    Spec {
        file: b"sh",
        args: b"sh\0-c\0\0echo \xff",
        env: b"PATH=/bin\0EMPTY=\0MARK=m",
        cwd: b"some/where",
        places: &[NO_DESCRIPTOR, 1, 1, 2],
        descriptors: 3,
        umask: Some(0o22),
        nice: -20,
        nofile: u64::MAX,
        uid: None,
        gid: Some(u32::MAX),
        lifetime: Lifetime {
            timeout: u64::MAX,
            kill_signal: 15,
            grace: 2_000,
            background: Background::Keep,
            background_grace: 1,
            background_settle: 1 << 40,
        },
        same_group: true,
        detached: false,
        cwd_is_open: true,
        program: 2,
    }
}

pub fn from_keeper() -> Vec<FromKeeper> {
    let mut list = vec![FromKeeper::Started, FromKeeper::Stopped];
    list.extend(MECHANISMS.map(FromKeeper::Taken));
    list.extend(MECHANISMS.map(FromKeeper::NotTaken));
    for exit in [Exit::Code(0), Exit::Code(255), Exit::Code(-1), Exit::Signal(9), Exit::Signal(64)] {
        list.push(FromKeeper::Exited { exit, usage: usage() });
    }
    for step in STEPS {
        list.push(FromKeeper::Failed { step, errno: i32::MIN });
    }
    list.extend(every_facts().into_iter().map(FromKeeper::Ended));
    list
}

pub fn every_facts() -> Vec<EndFacts> {
    let mut list = vec![facts()];
    list.extend(OUTCOMES.map(|outcome| EndFacts { outcome, ..facts() }));
    list.extend(MECHANISMS.map(|mechanism| EndFacts { mechanism, ..facts() }));
    list.extend(BYS.map(|by| EndFacts { by, ..facts() }));
    list.extend(REASONS.map(|reason| EndFacts { reason, ..facts() }));
    list.extend([Settle::AtWork, Settle::Writing].map(|settle| EndFacts { settle, ..facts() }));
    list.push(EndFacts {
        leftovers: vec![process(7, b"fifteen letters"); MAX_NAMED],
        survivors: Vec::new(),
        ..facts()
    });
    list
}

pub fn from_helper() -> Vec<FromHelper> {
    let mut list = vec![
        FromHelper::Hello { version: b"0.1.0".to_vec(), mechanism: Mechanism::Subreaper },
        FromHelper::Hello { version: Vec::new(), mechanism: Mechanism::Group },
        FromHelper::Keeper(1234),
        FromHelper::NoKeeper(11),
    ];
    list.extend(every_facts().into_iter().map(|facts| FromHelper::KeeperEnded { keeper: 99, facts }));
    list
}

/// Every message as it stands on the wire, with the end that takes it.
pub fn corpus() -> Vec<(Reader, Vec<u8>)> {
    fn wire(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes);
        bytes
    }
    let mut list = vec![
        (Reader::Keeper, wire(|into| ToKeeper::put_spec(into, &spec()).unwrap())),
        (
            Reader::Keeper,
            wire(|into| {
                let bare = Spec {
                    env: b"",
                    cwd: b"",
                    places: &[],
                    umask: None,
                    lifetime: Lifetime { background: Background::End, ..spec().lifetime },
                    same_group: false,
                    detached: true,
                    cwd_is_open: false,
                    program: NO_DESCRIPTOR,
                    ..spec()
                };
                ToKeeper::put_spec(into, &bare).unwrap();
            }),
        ),
        (Reader::Keeper, wire(|into| ToKeeper::put_signal(into, 15, false))),
        (Reader::Keeper, wire(|into| ToKeeper::put_signal(into, -1, true))),
        (Reader::Keeper, wire(|into| ToKeeper::put_end(into, -1, -1))),
        (Reader::Keeper, wire(|into| ToKeeper::put_end(into, 9, i64::MAX))),
        (Reader::Keeper, wire(|into| ToKeeper::put_hand_over(into, 3))),
        (Reader::Keeper, wire(ToKeeper::put_starter)),
        (Reader::Keeper, wire(ToKeeper::put_last)),
        (Reader::Keeper, wire(|into| ToKeeper::put_terminal(into, 2))),
        (Reader::Keeper, wire(ToKeeper::put_continued)),
        (Reader::Helper, wire(|into| ToHelper::Want(0).put(into))),
        (Reader::Helper, wire(|into| ToHelper::Want(u32::MAX).put(into))),
    ];
    for message in from_keeper() {
        list.push((Reader::HostFromKeeper, wire(|into| message.put(into))));
    }
    for message in from_helper() {
        list.push((Reader::HostFromHelper, wire(|into| message.put(into))));
    }
    list
}
