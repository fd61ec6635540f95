//! Control sockets: stream sockets that carry frames, and descriptors with a frame's first byte (unix(7)).

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors in one message, at most (SCM_MAX_FD is 253).
pub const MAX_DESCRIPTORS: usize = 64;

/// A connected pair, close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends what the socket takes now, never blocks. The descriptors go with the first byte, or not at all.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(into)], &mut control, flags)
    });
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            descriptors.extend(list);
        }
    }
    match received {
        Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => Received::Truncated(message.bytes),
        Ok(message) if message.bytes == 0 => Received::End,
        Ok(message) => Received::Bytes(message.bytes),
        Err(rustix::io::Errno::AGAIN) => Received::Nothing,
        Err(_) => Received::End,
    }
}

/// Frames on their way out. What the socket does not take at once goes when it is writable again.
#[derive(Default)]
pub struct Outbox(VecDeque<(Vec<u8>, Vec<OwnedFd>)>);

impl Outbox {
    /// Adds frames, and the descriptors that travel with their first byte.
    pub fn push(&mut self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) {
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
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Too many descriptors are on their way already (unix(7)): later.
                Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => return Ok(()),
                Err(error) => {
                    self.0.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
