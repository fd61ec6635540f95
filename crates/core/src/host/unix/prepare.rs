//! Makes what a call needs before it is started: its pipes, its spec, and the descriptors that travel with the spec.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use holdfast_wire::{NO_DESCRIPTOR, Spec, Step, ToKeeper};

use super::super::request::{Place, Request};
use crate::sys::{self, Attributes, Failure};

/// What a pipe for output holds: no less than the socket pairs that Node.js makes for it (some 215 KiB), so that a
/// program that writes once, without waiting, loses no more here.
const PIPE_SIZE: usize = 256 * 1024;

/// What a call needs.
pub struct Prepared {
    pub spec: Vec<u8>,
    /// The working directory, then one for each place that has one, then the program, if it is one.
    pub descriptors: Vec<OwnedFd>,
    /// The host's ends, by place.
    pub pipes: Vec<Option<OwnedFd>>,
}

/// Makes the pipes and the spec. `is_enlarged`: pipes for output hold more than the system makes them for.
pub fn prepare(request: &Request<'_>, is_enlarged: bool) -> Result<Prepared, (Step, io::Error)> {
    let own_directory = sys::open_own_directory(request.cwd, request.stdio.len());
    let cwd_is_open = own_directory.is_some();
    let directory = own_directory.unwrap_or_else(|| {
        // An absolute directory does not need ours, which this user may not be allowed to search.
        let from = if request.cwd.starts_with('/') { "/" } else { "." };
        sys::open_directory(from)
    });
    let directory = directory.map_err(|error| (Step::Cwd, error))?;
    let mut descriptors = Vec::with_capacity(4);
    descriptors.push(directory);
    let mut places = Vec::with_capacity(request.stdio.len());
    let mut pipes = Vec::with_capacity(request.stdio.len());
    for (at, place) in request.stdio.iter().enumerate() {
        let (child, host) = ends(at, *place, is_enlarged).map_err(|error| (Step::Stdio, error))?;
        pipes.push(host);
        places.push(match child {
            Some(fd) => {
                descriptors.push(fd);
                descriptors.len() as u8 - 1
            }
            None if *place == Place::Stdout => places.get(1).copied().unwrap_or(NO_DESCRIPTOR),
            None => NO_DESCRIPTOR,
        });
    }
    let program = match sys::open_own_program(request.file, request.stdio.len()) {
        None => NO_DESCRIPTOR,
        Some(program) => {
            descriptors.push(program.map_err(|error| (Step::Program, error))?);
            descriptors.len() as u8 - 1
        }
    };
    if descriptors.len() > sys::MAX_DESCRIPTORS {
        return Err((Step::Stdio, io::Error::from_raw_os_error(sys::E2BIG)));
    }
    let attributes = Attributes::now();
    let umask = attributes.umask.map_err(|errno| (Step::Limits, io::Error::from_raw_os_error(errno)))?;
    let env = request.env.as_bytes();
    let spec = Spec {
        file: request.file.as_bytes(),
        args: request.args.as_bytes(),
        env,
        cwd: request.cwd.as_bytes(),
        places: &places,
        descriptors: descriptors.len() as u32,
        umask,
        nice: attributes.nice,
        nofile: attributes.nofile,
        uid: request.uid,
        gid: request.gid,
        lifetime: request.lifetime,
        same_group: false,
        detached: request.detached,
        cwd_is_open,
        program,
    };
    let mut bytes = Vec::with_capacity(env.len() + request.args.len() + 256);
    ToKeeper::put_spec(&mut bytes, &spec).map_err(|unfit| {
        let Failure { step, errno } = unfit.into();
        (step, io::Error::from_raw_os_error(errno))
    })?;
    Ok(Prepared { spec: bytes, descriptors, pipes })
}

/// The command's end and the host's end of a place.
fn ends(at: usize, place: Place, is_enlarged: bool) -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
    match place {
        Place::Ignore | Place::Stdout => Ok((None, None)),
        Place::Inherit(fd) => Ok((Some(sys::duplicate(fd)?), None)),
        Place::Pipe => {
            let (child, host) = match at {
                0 => sys::pipe()?,
                1 | 2 => {
                    let (read, write) = sys::pipe()?;
                    if is_enlarged {
                        sys::enlarge_pipe(read.as_fd(), PIPE_SIZE);
                    }
                    (write, read)
                }
                _ => sys::socket_pair()?,
            };
            // Only our end: the flag belongs to the open file, and the command's must block.
            sys::set_nonblocking(&host)?;
            Ok((Some(child), Some(host)))
        }
    }
}
