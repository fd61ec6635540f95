//! Control sockets (unix(7)): bytes, descriptors, and the sender as the kernel knows it.
#![expect(
    unsafe_code,
    reason = "rustix takes any sender's pid to be non-zero, and outside our pid namespace it is 0"
)]

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, UCred,
};

use super::parent::Parent;

/// Descriptors in one message, at most (SCM_MAX_FD is 253).
pub const MAX_DESCRIPTORS: usize = 64;

const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGNMENT: usize = size_of::<usize>();
const CREDENTIALS: usize = size_of::<libc::ucred>();
const SPACE: usize =
    2 * HEADER + size_of::<i32>() * MAX_DESCRIPTORS + CREDENTIALS.next_multiple_of(ALIGNMENT);

/// Room for control messages, aligned as their headers are.
#[repr(C, align(8))]
struct Control([u8; SPACE]);

/// Process, user and group of a sender, as this process sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// 0 outside our pid namespace.
    pid: i32,
    uid: u32,
    gid: u32,
}

impl Sender {
    /// Our parent, as long as it can become what we are: the kernel takes from a sender none but its own ids.
    pub fn parent() -> Sender {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Sender { pid: Parent::number(), uid: uid.as_raw(), gid: gid.as_raw() }
    }
}

/// A connected pair, close-on-exec.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// A pair whose second end is for a process that starts others on request: with what arrives there the kernel reports
/// the sender, from the first byte on.
pub fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socket_pair()?;
    rustix::net::sockopt::set_socket_passcred(&theirs, true)?;
    Ok((ours, theirs))
}

/// Our effective ids where they are not the real ones, which the kernel attaches by itself.
fn effective_ids() -> Option<UCred> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let are_real = uid == rustix::process::getuid() && gid == rustix::process::getgid();
    (!are_real).then(|| UCred { pid: rustix::process::getpid(), uid, gid })
}

/// Sends what the socket takes now, never blocks. The descriptors go with the first byte, or not at all.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = (!descriptors.is_empty()).then_some(SendAncillaryMessage::ScmRights(descriptors));
    let ids = effective_ids().map(SendAncillaryMessage::ScmCredentials);
    if !rights.into_iter().chain(ids).all(|message| control.push(message)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
    })?)
}

/// What one receive brought, besides descriptors.
#[derive(Debug)]
pub struct Message {
    /// Bytes read.
    pub count: usize,
    /// Descriptors were cut off.
    pub truncated: bool,
    /// Where the socket asks for it (SO_PASSCRED). Bytes of two senders are never read as one message.
    pub sender: Option<Sender>,
}

impl Message {
    /// The other end is closed.
    pub const END: Message = Message { count: 0, truncated: false, sender: None };
}

/// recvmsg(2), without blocking. Adds to the descriptors; they are close-on-exec.
pub fn receive(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Message> {
    let mut control = Control([0; SPACE]);
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = SPACE as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let count = loop {
        // SAFETY: one part and one control buffer, both alive, with their lengths.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        match usize::try_from(count) {
            Ok(count) => break count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    let mut message = Message { count, truncated: header.msg_flags & libc::MSG_CTRUNC != 0, sender: None };
    // cmsg(3): a length that counts the header, level, kind, data, and padding.
    let word = |bytes: &[u8], at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    // A number of another width in each libc.
    let mut rest = control.0.get(..header.msg_controllen as _).unwrap_or_default();
    while let Some(&length) = rest.first_chunk().filter(|_| rest.len() >= HEADER) {
        let length = usize::from_ne_bytes(length);
        let (level, kind) = (word(rest, HEADER - 8), word(rest, HEADER - 4));
        let Some(data) = rest.get(HEADER..length) else { break };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for number in data.chunks_exact(size_of::<i32>()) {
                    // SAFETY: the kernel has just made this descriptor for us.
                    descriptors.push(unsafe { OwnedFd::from_raw_fd(word(number, 0)) });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if data.len() >= CREDENTIALS => {
                let (pid, uid, gid) = (word(data, 0), word(data, 4) as u32, word(data, 8) as u32);
                message.sender = Some(Sender { pid, uid, gid });
            }
            _ => (),
        }
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    Ok(message)
}
