//! Starting the helper from the host, as spawn helper or guard: posix_spawn(3), which shares the host's memory until
//! exec instead of copying its page tables.
#![expect(unsafe_code, reason = "posix_spawn has no safe wrapper that sets session, mask and descriptors")]

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

use super::pid::{Pid, is_in_our_session};
use super::signals::block_all_signals;
use super::stops;

/// What the process is called, whatever the path.
const NAME: &CStr = c"holdfast-helper";

struct Actions(libc::posix_spawn_file_actions_t);

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised by start_helper.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised by start_helper.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Where the new process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In a session of its own.
    Session,
    /// In this group of our session.
    Group(Pid),
}

/// Starts the helper with these arguments, an empty environment, and /dev/null on 0 to 2 but for the places named: each
/// a number there, and a descriptor here. The caller owns the child and reaps it.
pub fn start_helper(
    path: &Path,
    args: &[&str],
    places: &[(RawFd, BorrowedFd<'_>)],
    placement: Placement,
) -> io::Result<Pid> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // Away from the numbers that are written to.
    let copy = |descriptor| rustix::io::fcntl_dupfd_cloexec(descriptor, 10);
    let null = copy(null.as_fd())?;
    let mut moves: Vec<(RawFd, OwnedFd)> = Vec::new();
    for number in 0..=2 {
        moves.push((number, null.try_clone()?));
    }
    for &(number, descriptor) in places {
        moves.push((number, copy(descriptor)?));
    }
    match spawn(path, args, &moves, placement) {
        // A sandbox that refuses clone3(2) so that the C library does not fall back on what went before it.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && !is_elsewhere(placement) => {
            fork(path, args, moves, placement)
        }
        other => other,
    }
}

/// A group of another session, or none: no process can join it.
fn is_elsewhere(placement: Placement) -> bool {
    matches!(placement, Placement::Group(group) if !is_in_our_session(group))
}

fn spawn(path: &Path, args: &[&str], moves: &[(RawFd, OwnedFd)], placement: Placement) -> io::Result<Pid> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    let args = args.iter().map(|&arg| CString::new(arg)).collect::<Result<Vec<_>, _>>()?;
    let mut actions = MaybeUninit::uninit();
    // SAFETY: initialises the object.
    check(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
    // SAFETY: initialised above.
    let mut actions = Actions(unsafe { actions.assume_init() });
    for (number, descriptor) in moves {
        let from = descriptor.as_raw_fd();
        // SAFETY: an initialised object.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut actions.0, from, *number) })?;
    }

    let mut attributes = MaybeUninit::uninit();
    // SAFETY: initialises the object.
    check(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: initialised above.
    let mut attributes = Attributes(unsafe { attributes.assume_init() });
    // Blocked from the first instruction: what comes before the mode blocks it would end the process.
    let mut all = MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: an initialised object and set.
    check(unsafe { libc::posix_spawnattr_setsigmask(&mut attributes.0, all.as_ptr()) })?;
    let stands = match placement {
        Placement::Session => libc::POSIX_SPAWN_SETSID,
        Placement::Group(group) => {
            // SAFETY: an initialised object.
            check(unsafe { libc::posix_spawnattr_setpgroup(&mut attributes.0, group.raw()) })?;
            libc::POSIX_SPAWN_SETPGROUP as libc::c_short
        }
    };
    let flags = libc::POSIX_SPAWN_SETSIGMASK as libc::c_short | stands;
    // SAFETY: an initialised object.
    check(unsafe { libc::posix_spawnattr_setflags(&mut attributes.0, flags) })?;

    let pointers = |list: &[CString]| -> Vec<*mut c_char> {
        list.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
    };
    let args = [vec![NAME.into()], args].concat();
    let (args, variables) = (pointers(&args), stops::passed_on());
    let env = pointers(&variables);
    let mut pid = 0;
    // SAFETY: initialised objects, NUL-terminated strings that outlive the call, null-terminated arrays.
    check(unsafe {
        libc::posix_spawn(&mut pid, path.as_ptr(), &actions.0, &attributes.0, args.as_ptr(), env.as_ptr())
    })?;
    Pid::new(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// Has the standard library start it by fork(2) and not by posix_spawn(3).
pub fn by_fork(command: &mut Command) -> &mut Command {
    // SAFETY: does nothing.
    unsafe { command.pre_exec(|| Ok(())) }
}

/// Starts it by fork(2), which copies the host's page tables.
fn fork(path: &Path, args: &[&str], moves: Vec<(RawFd, OwnedFd)>, placement: Placement) -> io::Result<Pid> {
    let mut command = Command::new(path);
    command.arg0(NAME.to_str().unwrap_or_default()).args(args).env_clear();
    let prepare = move || {
        block_all_signals();
        match placement {
            Placement::Session => rustix::process::setsid().map(|_| ())?,
            Placement::Group(group) => rustix::process::setpgid(None, group.rustix())?,
        }
        for (number, descriptor) in &moves {
            // SAFETY: in the new process, which has no owner of these numbers, before it is another program.
            if unsafe { libc::dup2(descriptor.as_raw_fd(), *number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: system calls only, and no memory is allocated.
    unsafe { command.pre_exec(prepare) };
    Pid::new(command.spawn()?.id() as i32).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}
