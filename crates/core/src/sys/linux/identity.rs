//! What the host is at the moment of a call.
#![expect(unsafe_code, reason = "getresuid and getresgid have no safe wrapper")]

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::process::Gid;

/// User and groups of the host. Helper and keepers are a snapshot of it; one that differs gets no further call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    uids: [u32; 3],
    gids: [u32; 3],
    groups: Vec<Gid>,
}

impl Identity {
    /// Those of the calling thread.
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
    /// Those of this process.
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

/// Lets a pipe hold more (`F_SETPIPE_SZ`, fcntl(2)). Beyond the user's limit (`fs.pipe-user-pages-soft`) it stays as it
/// is.
pub fn enlarge_pipe(pipe: BorrowedFd<'_>, size: usize) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, size);
}
