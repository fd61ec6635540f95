//! Control sockets: stream sockets that carry frames, and descriptors with a frame's first byte (unix(7)).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use holdfast_wire::Decoder;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, UCred,
};

pub use crate::sys::MAX_DESCRIPTORS;
use crate::sys::{self, Sender};

/// A connected pair, close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// A pair of which the second end is for who starts processes on request: with what arrives there the kernel tells the
/// sender, from the first byte on.
pub fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pair()?;
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

/// What one receive brought.
pub enum Received {
    /// So many bytes; descriptors were added to the list.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The other end is closed (or the socket is broken, which comes to the same).
    End,
    /// So many bytes, but descriptors were cut off on the way (no free number, or too many).
    Truncated(usize),
}

/// Receives without blocking.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Received {
    receive_with_sender(socket, into, descriptors).0
}

/// The same on the second end of a [`control_pair`], for an inbox: it trusts no bytes but those of this sender.
pub fn receive_from(
    sender: Sender,
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    inbox: &mut Decoder,
) -> Received {
    let (received, actual) = receive_with_sender(socket, into, descriptors);
    if matches!(received, Received::Bytes(_) | Received::Truncated(_)) && actual != Some(sender) {
        inbox.distrust();
    }
    received
}

fn receive_with_sender(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> (Received, Option<Sender>) {
    match sys::receive(socket, into, descriptors) {
        Ok(message) if message.truncated => (Received::Truncated(message.count), message.sender),
        Ok(message) if message.count == 0 => (Received::End, None),
        Ok(message) => (Received::Bytes(message.count), message.sender),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (Received::Nothing, None),
        Err(_) => (Received::End, None),
    }
}

/// Frames on their way out. What the socket does not take at once goes when it is writable again.
pub struct Outbox<F = OwnedFd>(VecDeque<(Vec<u8>, Vec<F>)>);

impl<F> Default for Outbox<F> {
    fn default() -> Self {
        Outbox(VecDeque::new())
    }
}

/// The other end lives, and takes it later.
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    // Too many descriptors on their way (unix(7)), or no memory for a buffer at this moment.
    let passing = [libc::ETOOMANYREFS, libc::ENOBUFS, libc::ENOMEM];
    error.kind() == io::ErrorKind::WouldBlock || errno.is_some_and(|errno| passing.contains(&errno))
}

impl<F: AsFd> Outbox<F> {
    /// Adds frames, and the descriptors that travel with their first byte.
    pub fn push(&mut self, bytes: Vec<u8>, descriptors: Vec<F>) {
        self.0.push_back((bytes, descriptors));
    }

    /// Whether everything went.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends what goes without blocking. An error means that the other end is gone; what was queued is forgotten.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while let Some((bytes, descriptors)) = self.0.front_mut() {
            let along: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match send(socket, bytes, &along) {
                Ok(sent) => {
                    descriptors.clear();
                    bytes.drain(..sent);
                    if bytes.is_empty() {
                        self.0.pop_front();
                    }
                }
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => {
                    self.0.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
