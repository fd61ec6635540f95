//! The spec: everything a keeper needs to start one command.

use std::ffi::CStr;
use std::ops::Range;

use crate::bytes::{Reader, put_string};
use crate::frame::MAX_SPEC;
use crate::lifetime::Lifetime;
use crate::report::Step;
use crate::{Error, Unfit};

/// A place of stdio without a descriptor: `/dev/null`.
pub const NO_DESCRIPTOR: u8 = u8::MAX;

/// Longest program name and working directory of a spec, in bytes. No system takes so much.
pub const MAX_NAME: usize = 64 * 1024;
/// Most bytes of a spec's arguments, environment and places together: [`MAX_SPEC`] without the names and the rest.
pub const MAX_STRINGS: usize = MAX_SPEC - 2 * MAX_NAME - 1024;

/// A spec to be written. Strings hold no NUL.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// Program; without a slash it is looked up in PATH of `env`.
    pub file: &'a [u8],
    /// NUL-joined, `argv[0]` first.
    pub args: &'a [u8],
    /// NUL-joined `KEY=VALUE`; empty for none.
    pub env: &'a [u8],
    /// Resolved against the first descriptor, which is the host's working directory; empty for that itself.
    pub cwd: &'a [u8],
    /// The first descriptor is the directory that `cwd` names.
    pub cwd_is_open: bool,
    /// Index of the descriptor that is the program, or [`NO_DESCRIPTOR`]: then `file` is.
    pub program: u8,
    /// For each place the index of its descriptor among those sent, or [`NO_DESCRIPTOR`].
    pub places: &'a [u8],
    /// Descriptors sent along, the working directory's included. With none the command starts where its keeper stands.
    pub descriptors: u32,
    /// File mode mask.
    pub umask: Option<u32>,
    /// Nice value.
    pub nice: i32,
    /// Soft limit on open files.
    pub nofile: u64,
    /// User, or the keeper's.
    pub uid: Option<u32>,
    /// Group, or the keeper's.
    pub gid: Option<u32>,
    /// When it ends, and how.
    pub lifetime: Lifetime,
    /// The command stays in the group and session it is started in (a terminal's).
    pub same_group: bool,
    /// The command leads a session and a group of its own.
    pub detached: bool,
}

impl Spec<'_> {
    /// Whether the other end can read it. An end that meets a frame which it cannot read takes its peer for lost, so
    /// what cannot be read must not be sent.
    pub(crate) fn check(&self) -> Result<(), Unfit> {
        for (step, name) in [(Step::Cwd, self.cwd), (Step::Program, self.file)] {
            if name.len() > MAX_NAME {
                return Err(Unfit::TooLong(step));
            }
            if name.contains(&0) {
                return Err(Unfit::Invalid(step));
            }
        }
        if !are_valid(&[self.program], self.descriptors) {
            return Err(Unfit::Invalid(Step::Program));
        }
        if !are_valid(self.places, self.descriptors) {
            return Err(Unfit::Invalid(Step::Stdio));
        }
        if self.args.len() + self.env.len() + self.places.len() > MAX_STRINGS {
            return Err(Unfit::TooLong(Step::Arguments));
        }
        Ok(())
    }

    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        into.extend(self.descriptors.to_le_bytes());
        put_optional(into, self.umask);
        into.extend(self.nice.to_le_bytes());
        into.extend(self.nofile.to_le_bytes());
        put_optional(into, self.uid);
        put_optional(into, self.gid);
        self.lifetime.put(into);
        into.push(u8::from(self.same_group));
        into.push(u8::from(self.detached));
        into.push(u8::from(self.cwd_is_open));
        into.push(self.program);
        put_string(into, self.places);
        for strings in [self.file, self.cwd, self.args, self.env] {
            into.extend((strings.len() as u32 + 1).to_le_bytes());
            into.extend(strings);
            into.push(0);
        }
    }
}

fn put_optional(into: &mut Vec<u8>, value: Option<u32>) {
    into.push(u8::from(value.is_some()));
    into.extend(value.unwrap_or(0).to_le_bytes());
}

fn read_optional(reader: &mut Reader<'_>) -> Result<Option<u32>, Error> {
    let there = reader.u8()? != 0;
    let value = reader.u32()?;
    Ok(there.then_some(value))
}

/// A spec as received. It owns its bytes; the strings are read in place, each ends with a NUL.
#[derive(Debug)]
pub struct SpecView {
    bytes: Vec<u8>,
    file: Range<usize>,
    cwd: Range<usize>,
    args: Range<usize>,
    env: Range<usize>,
    places: Range<usize>,
    /// See [`Spec::descriptors`].
    pub descriptors: u32,
    /// See [`Spec::umask`].
    pub umask: Option<u32>,
    /// See [`Spec::nice`].
    pub nice: i32,
    /// See [`Spec::nofile`].
    pub nofile: u64,
    /// See [`Spec::uid`].
    pub uid: Option<u32>,
    /// See [`Spec::gid`].
    pub gid: Option<u32>,
    /// See [`Spec::lifetime`].
    pub lifetime: Lifetime,
    /// See [`Spec::same_group`].
    pub same_group: bool,
    /// See [`Spec::detached`].
    pub detached: bool,
    /// See [`Spec::cwd_is_open`].
    pub cwd_is_open: bool,
    /// See [`Spec::program`].
    pub program: u8,
}

impl SpecView {
    pub(crate) fn decode(bytes: Vec<u8>) -> Result<Self, Error> {
        let mut reader = Reader(&bytes);
        let descriptors = reader.u32()?;
        let umask = read_optional(&mut reader)?;
        let nice = reader.i32()?;
        let nofile = reader.u64()?;
        let uid = read_optional(&mut reader)?;
        let gid = read_optional(&mut reader)?;
        let lifetime = Lifetime::read(&mut reader)?;
        let same_group = reader.u8()? != 0;
        let detached = reader.u8()? != 0;
        let cwd_is_open = reader.u8()? != 0;
        let program = reader.u8()?;
        let mut range = |nul: bool| -> Result<Range<usize>, Error> {
            let string = reader.string()?;
            if nul && string.last() != Some(&0) {
                return Err(Error::Malformed);
            }
            let end = bytes.len() - reader.0.len();
            Ok(end - string.len()..end)
        };
        let places = range(false)?;
        let file = range(true)?;
        let cwd = range(true)?;
        let args = range(true)?;
        let env = range(true)?;
        reader.end()?;
        let valid = are_valid(&bytes[places.clone()], descriptors) && are_valid(&[program], descriptors);
        if !valid || single(&bytes[file.clone()]).is_none() || single(&bytes[cwd.clone()]).is_none() {
            return Err(Error::Malformed);
        }
        Ok(SpecView {
            file,
            cwd,
            args,
            env,
            places,
            descriptors,
            umask,
            nice,
            nofile,
            uid,
            gid,
            lifetime,
            same_group,
            detached,
            cwd_is_open,
            program,
            bytes,
        })
    }

    /// See [`Spec::file`].
    pub fn file(&self) -> &CStr {
        single(&self.bytes[self.file.clone()]).unwrap_or_default()
    }

    /// See [`Spec::cwd`].
    pub fn cwd(&self) -> &CStr {
        single(&self.bytes[self.cwd.clone()]).unwrap_or_default()
    }

    /// See [`Spec::args`].
    pub fn args(&self) -> impl Iterator<Item = &CStr> {
        strings(&self.bytes[self.args.clone()])
    }

    /// See [`Spec::env`].
    pub fn env(&self) -> impl Iterator<Item = &CStr> {
        strings(&self.bytes[self.env.clone()]).filter(|string| !string.is_empty())
    }

    /// See [`Spec::places`].
    pub fn places(&self) -> &[u8] {
        &self.bytes[self.places.clone()]
    }
}

fn are_valid(places: &[u8], descriptors: u32) -> bool {
    places.iter().all(|&index| index == NO_DESCRIPTOR || u32::from(index) < descriptors)
}

fn single(bytes: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_with_nul(bytes).ok()
}

fn strings(bytes: &[u8]) -> impl Iterator<Item = &CStr> {
    bytes.split_inclusive(|&byte| byte == 0).filter_map(single)
}
