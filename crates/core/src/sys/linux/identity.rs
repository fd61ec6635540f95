//! What the host is at the moment of a call, and becoming another program.
#![expect(unsafe_code, reason = "getresuid, getresgid and execve have no safe wrapper")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::OnceLock;

use rustix::process::Gid;

/// Who the host is. Helper and keepers are a snapshot of it; one that differs gets no further call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    uids: [u32; 3],
    gids: [u32; 3],
    groups: Vec<Gid>,
}

impl Identity {
    /// Of the calling thread.
    pub fn now() -> Identity {
        let mut gids = [0; 3];
        let [real, effective, saved] = &mut gids;
        // SAFETY: three valid pointers to gid_t.
        unsafe { libc::getresgid(real, effective, saved) };
        Identity { uids: own_uids(), gids, groups: rustix::process::getgroups().unwrap_or_default() }
    }
}

/// Real, effective and saved user id of the calling thread.
pub(super) fn own_uids() -> [u32; 3] {
    let mut uids = [0; 3];
    let [real, effective, saved] = &mut uids;
    // SAFETY: three valid pointers to uid_t.
    unsafe { libc::getresuid(real, effective, saved) };
    uids
}

/// What a child would inherit, read anew for every call.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// None where it cannot be read without setting it: the helper's is used. An errno where no descriptor was free to
    /// read it by.
    pub umask: Result<Option<u32>, i32>,
    /// Nice value.
    pub nice: i32,
    /// Soft limit on open files.
    pub nofile: u64,
}

impl Attributes {
    /// Of this process.
    pub fn now() -> Attributes {
        let nofile = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Attributes {
            umask: umask(),
            nice: rustix::process::getpriority_process(None).unwrap_or(0),
            nofile: nofile.unwrap_or(u64::MAX),
        }
    }
}

/// umask(2) can only be read by setting it, which another thread would notice.
fn umask() -> Result<Option<u32>, i32> {
    static STATUS: OnceLock<Option<File>> = OnceLock::new();
    let file = match STATUS.get() {
        Some(file) => file,
        None => {
            let opened = match File::open("/proc/self/status") {
                Ok(file) => Some(file),
                Err(error) => match error.raw_os_error() {
                    // Not for good: the next call may have one.
                    Some(errno @ (libc::EMFILE | libc::ENFILE)) => return Err(errno),
                    _ => None,
                },
            };
            STATUS.get_or_init(|| opened)
        }
    };
    Ok(file.as_ref().and_then(umask_in))
}

fn umask_in(status: &File) -> Option<u32> {
    let mut text = [0; 256];
    let read = status.read_at(&mut text, 0).ok()?;
    let line = text[..read].split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:\t"))?;
    u32::from_str_radix(std::str::from_utf8(line).ok()?, 8).ok()
}

/// This process's environment as the C library has it (environ(7)), NUL-joined, byte for byte.
///
/// For a process with one thread: elsewhere setenv(3) may move the list while it is read (docs/decisions/0012).
pub fn environment() -> Vec<u8> {
    unsafe extern "C" {
        static environ: *const *const std::ffi::c_char;
    }
    let mut joined = Vec::with_capacity(8192);
    // SAFETY: a variable of the C library, of this type; null or the start of a list that ends with a null. Nothing
    // moves it: this process has one thread.
    let mut place = unsafe { environ };
    while !place.is_null() {
        // SAFETY: inside of that list.
        let variable = unsafe { place.read() };
        if variable.is_null() {
            break;
        }
        if !joined.is_empty() {
            joined.push(0);
        }
        // SAFETY: a NUL-terminated string.
        joined.extend(unsafe { CStr::from_ptr(variable) }.to_bytes());
        place = place.wrapping_add(1);
    }
    joined
}

/// Has a function called when this process exits by exit(3), on the thread that exits; others still run then.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function may be called at any time; the C library drops it with the object that it is in.
    unsafe { libc::atexit(function) };
}

/// A copy of a descriptor that the host names by number, close-on-exec.
pub fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: fails on a number that is not open.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Lets a pipe hold more (`F_SETPIPE_SZ`, fcntl(2)). Beyond the user's limit (`fs.pipe-user-pages-soft`) it stays as it is.
pub fn enlarge_pipe(pipe: BorrowedFd<'_>, size: usize) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, size);
}

/// Replaces this process by another program (execve(2)). The descriptors 0 to 2 and those in `keep` are passed on,
/// 0 to 2 in blocking mode; the signal mask is emptied. Returns only with a failure.
pub fn replace_process(path: &str, args: &[String], env: &[String], keep: &[i32]) -> io::Error {
    let strings = |list: &[String]| -> io::Result<Vec<CString>> {
        list.iter().map(|string| CString::new(string.as_str()).map_err(io::Error::from)).collect()
    };
    let (path, args, env) = match (CString::new(path), strings(args), strings(env)) {
        (Ok(path), Ok(args), Ok(env)) => (path, args, env),
        _ => return io::Error::from(io::ErrorKind::InvalidInput),
    };
    let pointers = |list: &[CString]| -> Vec<_> {
        list.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (args, env) = (pointers(&args), pointers(&env));
    for &fd in [0, 1, 2].iter().chain(keep) {
        // SAFETY: changes a flag of a descriptor that the new program is meant to have.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
    for fd in 0..=2 {
        // SAFETY: reads the flags of an open file, or fails.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags >= 0 && flags & libc::O_NONBLOCK != 0 {
            // SAFETY: changes a flag of an open file that only the new program goes on using.
            unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
        }
    }
    let mut empty = std::mem::MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(empty.as_mut_ptr()) };
    // SAFETY: the set was written.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, empty.as_ptr(), ptr::null_mut()) };
    // SAFETY: NUL-terminated strings in null-terminated arrays, alive until the call returns.
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}
