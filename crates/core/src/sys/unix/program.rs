//! What the C library has of this process: its environment, its exit, and its replacement by another program.
#![expect(unsafe_code, reason = "environ, atexit and execve have no safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;

/// This process's environment as the C library has it (environ(7)), NUL-joined, byte for byte.
///
/// Only for a process with one thread: elsewhere setenv(3) may move the list while it is read (docs/decisions/0012).
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
