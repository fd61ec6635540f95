//! Starting the helper from the host, as spawn helper or guard: posix_spawn(3), which shares the host's memory until exec instead of
//! copying its page tables.
#![expect(unsafe_code, reason = "posix_spawn has no safe wrapper that sets session, mask and descriptors")]

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::ptr;

use super::process::Pid;

const DEV_NULL: &CStr = c"/dev/null";

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
pub enum Standing {
    /// In a session of its own.
    Session,
    /// In this group of our session.
    Group(Pid),
}

/// Starts the helper with these arguments, an empty environment, and /dev/null on 0 to 2 but for the places named: each
/// a number there, and a descriptor here. The caller owns the child and reaps it.
pub fn start_helper(
    path: &Path,
    args: &[CString],
    places: &[(RawFd, BorrowedFd<'_>)],
    standing: Standing,
) -> io::Result<Pid> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    let mut actions = MaybeUninit::uninit();
    // SAFETY: initialises the object.
    check(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
    // SAFETY: initialised above.
    let mut actions = Actions(unsafe { actions.assume_init() });
    for fd in 0..=2 {
        // SAFETY: an initialised object and a string that it copies.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(&mut actions.0, fd, DEV_NULL.as_ptr(), libc::O_RDWR, 0)
        })?;
    }
    let mut copies = Vec::new();
    for &(number, descriptor) in places {
        // Away from the numbers that are written to.
        let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, 10)?;
        // SAFETY: an initialised object.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut actions.0, copy.as_raw_fd(), number) })?;
        copies.push(copy);
    }

    let mut attributes = MaybeUninit::uninit();
    // SAFETY: initialises the object.
    check(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: initialised above.
    let mut attributes = Attributes(unsafe { attributes.assume_init() });
    let mut none = MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: an initialised object and set.
    check(unsafe { libc::posix_spawnattr_setsigmask(&mut attributes.0, none.as_ptr()) })?;
    let stands = match standing {
        Standing::Session => libc::POSIX_SPAWN_SETSID,
        Standing::Group(group) => {
            // SAFETY: an initialised object.
            check(unsafe { libc::posix_spawnattr_setpgroup(&mut attributes.0, group.raw()) })?;
            libc::POSIX_SPAWN_SETPGROUP as libc::c_short
        }
    };
    let flags = libc::POSIX_SPAWN_SETSIGMASK as libc::c_short | stands;
    // SAFETY: an initialised object.
    check(unsafe { libc::posix_spawnattr_setflags(&mut attributes.0, flags) })?;

    let all = [c"holdfast-helper".as_ptr()].into_iter().chain(args.iter().map(|arg| arg.as_ptr()));
    let args: Vec<_> = all.map(<*const c_char>::cast_mut).chain([ptr::null_mut()]).collect();
    let variables = crate::stops::passed_on();
    let env: Vec<_> =
        variables.iter().map(|variable| variable.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect();
    let mut pid = 0;
    // SAFETY: initialised objects, NUL-terminated strings, null-terminated arrays.
    check(unsafe {
        libc::posix_spawn(&mut pid, path.as_ptr(), &actions.0, &attributes.0, args.as_ptr(), env.as_ptr())
    })?;
    Pid::new(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}
