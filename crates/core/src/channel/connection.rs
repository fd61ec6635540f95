//! A connection: one end of a control socket. Frames in and out, and the descriptors that travel with a frame's first
//! byte (unix(7)).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use holdfast_wire::{Decoder, Error, Frame};

use crate::sys::{self, Sender, Token, Wait};

/// Read at once, at most. A page of the stack counts for every keeper.
const CHUNK: usize = 2048;

/// One end of a connection. `S`: the socket, which may be shared with the thread that waits for it. `F`: descriptors
/// that are sent.
pub struct Connection<S = OwnedFd, F = OwnedFd> {
    socket: S,
    /// Bytes from another sender are dropped.
    sender: Option<Sender>,
    inbox: Decoder,
    /// What came along with each message that descriptors travelled with, in their order; None where some were cut off
    /// for want of a free one here. One receive brings those of one message at most (unix(7)).
    arrivals: VecDeque<Option<Vec<OwnedFd>>>,
    takes_descriptors: bool,
    has_ended: bool,
    outbox: Outbox<F>,
}

/// Descriptors that did not come with their message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Cut off on their way, for want of a free one here.
    CutOff,
    /// None were sent, or fewer than the message needs.
    NotSent,
}

impl<S: AsFd, F: AsFd> Connection<S, F> {
    /// An end to which no descriptors are sent.
    pub fn new(socket: S) -> Connection<S, F> {
        Connection {
            socket,
            sender: None,
            inbox: Decoder::default(),
            arrivals: VecDeque::new(),
            takes_descriptors: false,
            has_ended: false,
            outbox: Outbox::default(),
        }
    }

    /// Descriptors that come are kept until they are taken.
    pub fn with_descriptors(self) -> Connection<S, F> {
        Connection { takes_descriptors: true, ..self }
    }

    /// On the second end of a [`control_pair`](sys::control_pair): what others than this sender send starts nothing.
    pub fn of_sender(self, sender: Sender) -> Connection<S, F> {
        Connection { sender: Some(sender), ..self }
    }

    /// The socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Reads all there is, without blocking.
    pub fn receive(&mut self) {
        let mut bytes = [0; CHUNK];
        let mut along = Vec::new();
        while !self.has_ended {
            let message = match sys::receive(self.socket.as_fd(), &mut bytes, &mut along) {
                Ok(message) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It is broken, which amounts to the end.
                Err(_) => sys::Message::END,
            };
            // Before the bytes are there: what was fed until now is of the right one.
            if message.count > 0 && self.sender.is_some() && message.sender != self.sender {
                self.inbox.distrust();
            }
            let along = std::mem::take(&mut along);
            if message.truncated {
                self.has_ended = !self.takes_descriptors;
                self.arrivals.push_back(None);
            } else if message.count == 0 {
                self.has_ended = true;
            } else if self.takes_descriptors && !along.is_empty() {
                self.arrivals.push_back(Some(along));
            }
            if !self.has_ended {
                self.inbox.feed(&bytes[..message.count]);
            }
        }
    }

    /// The next message of what was received. None: there is no whole one. What is none is the end.
    pub fn next<M>(&mut self, decode: impl FnOnce(Frame) -> Result<M, Error>) -> Option<M> {
        let message = self.inbox.next_frame().and_then(|frame| frame.map(decode).transpose());
        message.unwrap_or_else(|_| {
            self.has_ended = true;
            self.inbox = Decoder::default();
            None
        })
    }

    /// The other end is closed, or has sent something that is no frame. Messages from before can still be taken.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Nothing that was received is left to be taken: no bytes of a frame that is not whole.
    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// The descriptors of the message that was taken last: all of them or none. What more came with it is the next
    /// one's.
    pub fn take_descriptors(&mut self, count: usize) -> Result<Vec<OwnedFd>, Missing> {
        if count == 0 {
            return Ok(Vec::new());
        }
        match self.arrivals.pop_front() {
            Some(Some(mut along)) if along.len() >= count => {
                let rest = along.split_off(count);
                if !rest.is_empty() {
                    self.arrivals.push_front(Some(rest));
                }
                Ok(along)
            }
            Some(None) => Err(Missing::CutOff),
            Some(Some(_)) | None => Err(Missing::NotSent),
        }
    }

    /// Sends frames, and descriptors with their first byte. What does not go at once goes later. A failure is not
    /// reported here: the end is read from the socket.
    pub fn send(&mut self, bytes: Vec<u8>, descriptors: Vec<F>) {
        self.outbox.push(bytes, descriptors);
        self.flush();
    }

    /// [`send`](Connection::send) for what may be sent again on another connection. An error: nothing was sent.
    pub fn send_first(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let sent = sys::send(self.socket.as_fd(), bytes, descriptors)?;
        if sent < bytes.len() {
            self.outbox.push(bytes[sent..].to_vec(), Vec::new());
        }
        Ok(())
    }

    /// Sends what goes now.
    pub fn flush(&mut self) {
        self.outbox.flush(self.socket.as_fd());
    }

    /// Something is still to be sent.
    pub fn has_output(&self) -> bool {
        !self.outbox.0.is_empty()
    }

    /// Waits for something to be received, and for room for what is to be sent.
    pub fn watch<'a>(&'a self, wait: &mut Wait<'a>) -> Token {
        if self.has_output() { wait.either(&self.socket) } else { wait.readable(&self.socket) }
    }
}

/// Frames on their way out, each with the descriptors that travel with its first byte.
struct Outbox<F>(VecDeque<(Vec<u8>, Vec<F>)>);

impl<F> Default for Outbox<F> {
    fn default() -> Self {
        Outbox(VecDeque::new())
    }
}

/// The other end lives, and takes it later.
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    // Too many descriptors on their way (unix(7)), or no memory for a buffer at this moment.
    let passing = [sys::ETOOMANYREFS, sys::ENOBUFS, sys::ENOMEM];
    error.kind() == io::ErrorKind::WouldBlock || errno.is_some_and(|errno| passing.contains(&errno))
}

impl<F: AsFd> Outbox<F> {
    fn push(&mut self, bytes: Vec<u8>, descriptors: Vec<F>) {
        self.0.push_back((bytes, descriptors));
    }

    /// Sends what goes without blocking. Where the other end is gone, what was queued is forgotten.
    fn flush(&mut self, socket: BorrowedFd<'_>) {
        while let Some((bytes, descriptors)) = self.0.front_mut() {
            let along: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match sys::send(socket, bytes, &along) {
                Ok(sent) => {
                    descriptors.clear();
                    bytes.drain(..sent);
                    if bytes.is_empty() {
                        self.0.pop_front();
                    }
                }
                Err(error) if is_passing(&error) => return,
                Err(_) => return self.0.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use holdfast_wire::ToKeeper;

    use super::*;

    fn ends() -> (Connection, Connection) {
        let (ours, theirs) = sys::socket_pair().unwrap();
        (Connection::new(ours), Connection::new(theirs).with_descriptors())
    }

    fn hand_over(count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        ToKeeper::put_hand_over(&mut bytes, count);
        bytes
    }

    fn count_in(message: Option<ToKeeper>) -> Option<u32> {
        message.map(|message| match message {
            ToKeeper::HandOver { count } => count,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_message_has_the_descriptors_that_it_came_with() {
        let (mut ours, mut theirs) = ends();
        let (read, write) = sys::pipe().unwrap();
        ours.send(hand_over(1), vec![read]);
        ours.send(hand_over(0), Vec::new());
        ours.send(hand_over(2), vec![write]);
        theirs.receive();
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), Some(1));
        assert_eq!(theirs.take_descriptors(1).unwrap().len(), 1);
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), Some(0));
        assert_eq!(theirs.take_descriptors(0).unwrap().len(), 0);
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), Some(2));
        // All or none.
        assert_eq!(theirs.take_descriptors(2).unwrap_err(), Missing::NotSent);
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), None);
        assert!(theirs.is_empty() && !theirs.has_ended());
    }

    #[test]
    fn what_was_said_before_the_end_is_heard() {
        let (mut ours, mut theirs) = ends();
        ours.send(hand_over(7), Vec::new());
        drop(ours);
        theirs.receive();
        assert!(theirs.has_ended());
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), Some(7));
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), None);
    }

    #[test]
    fn what_is_no_message_is_the_end() {
        let (mut ours, mut theirs) = ends();
        ours.send(vec![1, 0, 0, 0, 255], Vec::new());
        ours.send(hand_over(7), Vec::new());
        theirs.receive();
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), None);
        assert!(theirs.has_ended());
        assert_eq!(count_in(theirs.next(ToKeeper::decode)), None);
    }

    #[test]
    fn what_does_not_go_at_once_goes_when_there_is_room() {
        let (mut ours, mut theirs) = ends();
        let mut sent = 0;
        while !ours.has_output() && sent < 100_000 {
            ours.send(hand_over(sent), Vec::new());
            sent += 1;
        }
        assert!(ours.has_output(), "a socket takes as much as there is");
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut received = 0;
        while received < sent && Instant::now() < deadline {
            theirs.receive();
            while let Some(count) = count_in(theirs.next(ToKeeper::decode)) {
                assert_eq!(count, received);
                received += 1;
            }
            ours.flush();
        }
        assert_eq!((received, ours.has_output()), (sent, false));
    }
}
