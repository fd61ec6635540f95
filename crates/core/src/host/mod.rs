//! The host's side: what the addon embeds. No JavaScript here, so that it can be tested without Node.
//!
//! [`Host`] is one per process and shared by its threads. It owns the spawn helper's socket and the sockets of idle
//! keepers ([`unix::pool`]); a call takes one keeper's socket and gives it back after the end ([`unix::call`]). Everything that
//! has to be waited for is watched by one thread ([`reactor`]), which reads nothing itself: it says which number is
//! ready, and the environment (a JavaScript thread) that owns the number reads.
//!
//! Locks are taken in the order call, observers, pool, reactor; that of the calls' table alone.

mod event;
pub mod inherit;
mod lock;
mod reactor;
mod unix;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::sys::{self, Attributes, Failure};
use holdfast_wire::{EndFacts, Lifetime, Mechanism, NO_DESCRIPTOR, Spec, Step, ToKeeper};

pub use event::Event;
use event::Observer;
use lock::lock;
pub use reactor::{EnvId, READABLE, WRITABLE};
use reactor::{Interest, Reactor};
use unix::call::Call;
pub use unix::gate;
pub use unix::guards::{GuardOptions, Guarded, Guards, Unguarded};
use unix::pool::{Pool, Refusal, is_descriptor_limit};

/// How long `pid` waits for a keeper that is stopped or starved.
const PID_WAIT: Duration = Duration::from_millis(20);

/// What a pipe for output holds: no less than the socket pairs that Node.js makes for it (some 215 KiB), so that a
/// program that writes once, without waiting, loses no more here.
const PIPE_SIZE: usize = 256 * 1024;

/// With more calls than this their pipes stay as the system makes them. A pipe of [`PIPE_SIZE`] counts four times as much
/// towards `fs.pipe-user-pages-soft`, and beyond that limit all further pipes of the user hold two pages. 32 calls take a
/// quarter of it.
const MOST_ENLARGED: usize = 32;

/// One place of a command's stdio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `/dev/null`.
    Ignore,
    /// A pipe: the command reads from 0, writes to 1 and 2; further places are duplex.
    Pipe,
    /// The same pipe as place 1.
    Stdout,
    /// A descriptor of the host.
    Inherit(i32),
}

/// What to start.
pub struct Request<'a> {
    /// The helper executable.
    pub helper: PathBuf,
    /// Program.
    pub file: &'a str,
    /// NUL-joined.
    pub args: &'a str,
    /// NUL-joined.
    pub env: &'a str,
    /// Empty for the host's.
    pub cwd: &'a str,
    /// One for each place.
    pub stdio: &'a [Place],
    /// When it ends, and how.
    pub lifetime: Lifetime,
    /// User, or the host's.
    pub uid: Option<u32>,
    /// Group, or the host's.
    pub gid: Option<u32>,
    /// The command leads a session and a group of its own.
    pub detached: bool,
    /// Without a helper as a plain child.
    pub best_effort: bool,
}

/// A call's numbers.
pub struct Begun {
    /// The call's.
    pub call: u32,
    /// The pipes', by place.
    pub pipes: Vec<Option<u32>>,
}

/// The one per process.
pub struct Host {
    /// The process that it is of; not a copy that native code made by a fork.
    process: u32,
    reactor: Arc<Reactor>,
    pool: Arc<Mutex<Pool>>,
    calls: Mutex<HashMap<u32, Arc<Mutex<Call>>>>,
    /// Those who wait for the end of another environment's call, by the handle that each was given.
    observers: Mutex<HashMap<u32, Arc<Observer>>>,
    guards: Guards,
}

static HOST: OnceLock<Host> = OnceLock::new();

extern "C" fn leave() {
    if let Some(host) = HOST.get() {
        host.leave();
    }
}

impl Host {
    /// Made at the first use.
    pub fn get() -> io::Result<&'static Host> {
        static MAKING: Mutex<()> = Mutex::new(());
        if let Some(host) = HOST.get() {
            return Ok(host);
        }
        let _making = lock(&MAKING);
        if HOST.get().is_none() {
            let reactor = Arc::new(Reactor::new()?);
            let pool = Arc::new(Mutex::new(Pool::new(Arc::clone(&reactor))));
            let of_reactor = Arc::clone(&pool);
            reactor.run(move |key| lock(&of_reactor).on_ready(key))?;
            let guards = Guards::new(Arc::clone(&reactor), Arc::clone(&pool));
            let host = Host {
                process: std::process::id(),
                reactor,
                pool,
                calls: Mutex::default(),
                observers: Mutex::default(),
                guards,
            };
            let _ = HOST.set(host);
            sys::at_exit(leave);
        }
        HOST.get().ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// A new environment; `wake` is called, on any thread, when [`take`](Host::take) has words.
    pub fn attach(&self, wake: Box<dyn Fn() + Send + Sync>) -> EnvId {
        self.reactor.attach(wake)
    }

    /// The environment is going: its calls end, because their sockets close.
    pub fn detach(&self, env: EnvId) {
        self.guards.forget_all_of(env);
        for number in self.reactor.detach(env) {
            lock(&self.observers).remove(&number);
            let call = lock(&self.calls).remove(&number);
            // Nothing is known by it any more: from here on it may be another thread's.
            self.reactor.remove(number);
            if let Some(call) = call {
                let mut call = lock(&call);
                if !call.is_over() {
                    lock(&self.pool).leave_to_itself();
                }
                call.abandon();
                self.tell_observers(&mut call);
                call.give_back(false, &mut lock(&self.pool));
            }
        }
    }

    /// This process exits. What it has open is closed a moment earlier than the kernel would, so that the helper ends as
    /// a child that is reaped: an orphan stays a zombie where process 1 does not reap. Other threads may hold a lock, and
    /// are not waited for.
    fn leave(&self) {
        if self.process != std::process::id() {
            return;
        }
        let (Ok(mut calls), Ok(mut pool)) = (self.calls.try_lock(), self.pool.try_lock()) else { return };
        calls.clear();
        self.reactor.close_all();
        pool.leave();
    }

    /// The guards of groups that this process has started itself.
    pub fn guards(&self) -> &Guards {
        &self.guards
    }

    /// Readiness words since the last time: number * 4 + [`READABLE`] and [`WRITABLE`].
    pub fn take(&self, env: EnvId) -> Vec<u32> {
        self.reactor.take(env)
    }

    /// Starts a call. Whatever goes wrong is an event of the call.
    pub fn start(&self, env: EnvId, request: &Request<'_>) -> Begun {
        let mut pipes = Vec::with_capacity(request.stdio.len());
        let mut prepared = self.prepare(env, request, &mut pipes);
        if prepared.as_ref().is_err_and(|(_, error)| error.raw_os_error().is_some_and(is_descriptor_limit)) {
            pipes.drain(..).flatten().for_each(|pipe| self.close(pipe));
            if lock(&self.pool).dismiss_idle() {
                prepared = self.prepare(env, request, &mut pipes);
            }
        }
        let mut call = match prepared {
            Ok((spec, descriptors)) => {
                let mut call = Call::new(request.helper.clone(), spec, descriptors, request.best_effort);
                call.send(&mut lock(&self.pool));
                call
            }
            Err((step, error)) => {
                pipes.drain(..).flatten().for_each(|pipe| self.close(pipe));
                Call::failed(step, &error)
            }
        };
        let (socket, watched) = call.socket();
        let number = self.reactor.add_known(env, socket, watched);
        if call.is_over() || call.has_events() {
            self.reactor.notify(number);
        }
        if !call.is_over() {
            self.rearm(number, &mut call);
        }
        let call = Arc::new(Mutex::new(call));
        lock(&self.calls).insert(number, Arc::clone(&call));
        // Another thread may have reset the helper since the keeper was acquired.
        self.retire_old_keeper(&mut lock(&call));
        Begun { call: number, pipes }
    }

    /// Makes the pipes and the spec. Descriptors: the working directory, then one for each place that has one.
    fn prepare(
        &self,
        env: EnvId,
        request: &Request<'_>,
        pipes: &mut Vec<Option<u32>>,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), (Step, io::Error)> {
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
        let is_enlarged = lock(&self.calls).len() < MOST_ENLARGED;
        for (at, place) in request.stdio.iter().enumerate() {
            let (child, host) = ends(at, *place, is_enlarged).map_err(|error| (Step::Stdio, error))?;
            pipes.push(host.map(|fd| self.reactor.add(env, Some(Arc::new(fd)))));
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
        Ok((bytes, descriptors))
    }

    fn call(&self, number: u32) -> Option<Arc<Mutex<Call>>> {
        lock(&self.calls).get(&number).cloned()
    }

    /// The command's pid; with `wait` waits for it at most [`PID_WAIT`].
    pub fn pid(&self, number: u32, wait: bool) -> Option<i32> {
        let call = self.call(number)?;
        let mut call = lock(&call);
        call.await_pid(if wait { PID_WAIT } else { Duration::ZERO }, &self.pool);
        if call.has_events() {
            // Read on the way: the descriptor will not announce them any more.
            self.reactor.notify(number);
        }
        call.pid()
    }

    /// What has arrived for a call. With `ended` its number is free.
    pub fn receive(&self, number: u32) -> Vec<Event> {
        let Some(call) = self.call(number) else {
            return self.observed(number).map(Event::Ended).into_iter().collect();
        };
        let mut call = lock(&call);
        call.receive(&self.pool);
        let events = call.take_events();
        if call.is_over() {
            self.forget(number, &mut call);
        } else {
            self.rearm(number, &mut call);
        }
        events
    }

    fn forget(&self, number: u32, call: &mut Call) {
        lock(&self.calls).remove(&number);
        let watched = self.reactor.release(number);
        self.tell_observers(call);
        call.give_back(watched, &mut lock(&self.pool));
    }

    fn rearm(&self, number: u32, call: &mut Call) {
        if call.changed_socket() {
            let (socket, watched) = call.socket();
            self.reactor.replace(number, socket, watched);
        }
        self.reactor.set_timer(number, call.next_time());
        if let Some(keeper) = call.awaited_keeper() {
            lock(&self.pool).notify_when_ended(keeper, number);
        } else {
            let wants = if call.has_output() { Interest::Both } else { Interest::Readable };
            self.reactor.arm(number, wants);
        }
    }

    /// Hands a signal to the keeper. False when the call has ended.
    pub fn signal(&self, number: u32, signal: i32, group: bool) -> bool {
        let Some(call) = self.call(number) else { return false };
        let mut call = lock(&call);
        if let Some(plain) = call.plain() {
            return plain.signal(signal, group);
        }
        self.post(number, &mut call, |bytes| ToKeeper::put_signal(bytes, signal, group), Vec::new())
    }

    /// Starts the ladder; -1 stands for the call's own. False when the call has ended.
    pub fn end(&self, number: u32, signal: i32, grace: i64) -> bool {
        self.call(number).is_some_and(|call| self.end_call(number, &mut lock(&call), signal, grace))
    }

    fn end_call(&self, number: u32, call: &mut Call, signal: i32, grace: i64) -> bool {
        if let Some(plain) = call.plain() {
            plain.end(signal, grace);
            self.reactor.set_timer(number, plain.next_time());
            return true;
        }
        self.post(number, call, |bytes| ToKeeper::put_end(bytes, signal, grace), Vec::new())
    }

    /// Starts the ladder of every other environment's calls. For each a number whose [`receive`](Host::receive) gives
    /// the end, and nothing else.
    pub fn end_others(&self, env: EnvId, signal: i32, grace: i64) -> Vec<u32> {
        let all: Vec<u32> = lock(&self.calls).keys().copied().collect();
        let others =
            all.into_iter().filter(|&number| self.reactor.owner(number).is_some_and(|owner| owner != env));
        let mut waiting = Vec::new();
        for number in others {
            let Some(call) = self.call(number) else { continue };
            let mut call = lock(&call);
            if !call.is_over() {
                let handle = self.reactor.add(env, None);
                let observer = Arc::new(Observer { handle, facts: Mutex::default() });
                call.observers.push(Arc::downgrade(&observer));
                lock(&self.observers).insert(handle, observer);
                waiting.push(handle);
                self.end_call(number, &mut call, signal, grace);
            }
        }
        waiting
    }

    fn tell_observers(&self, call: &mut Call) {
        // Those whose environment is gone are gone with it.
        for observer in std::mem::take(&mut call.observers).iter().filter_map(Weak::upgrade) {
            *lock(&observer.facts) = call.facts().cloned();
            self.reactor.notify(observer.handle);
        }
    }

    /// The end that this handle's observer has been told of. Then its handle is free.
    fn observed(&self, handle: u32) -> Option<EndFacts> {
        let mut observers = lock(&self.observers);
        let facts = lock(&observers.get(&handle)?.facts).take()?;
        observers.remove(&handle);
        self.reactor.remove(handle);
        Some(facts)
    }

    /// The call's first process is a starter: it passes on what it is sent. False when the call has ended.
    pub fn has_starter(&self, number: u32) -> bool {
        let Some(call) = self.call(number) else { return false };
        self.post(number, &mut lock(&call), ToKeeper::put_starter, Vec::new())
    }

    /// Gives read ends to the keeper; the host's are closed when it has taken them. Needs no free descriptor here.
    pub fn hand_over(&self, number: u32, pipes: &[u32]) -> bool {
        let ends: Option<Vec<Arc<OwnedFd>>> = pipes.iter().map(|&pipe| self.reactor.get(pipe)).collect();
        let (Some(ends), Some(call)) = (ends, self.call(number)) else { return false };
        let count = ends.len() as u32;
        self.post(number, &mut lock(&call), |bytes| ToKeeper::put_hand_over(bytes, count), ends)
    }

    fn post(
        &self,
        number: u32,
        call: &mut Call,
        put: impl FnOnce(&mut Vec<u8>),
        descriptors: Vec<Arc<OwnedFd>>,
    ) -> bool {
        let mut bytes = Vec::new();
        put(&mut bytes);
        if !call.post(bytes, descriptors) {
            return false;
        }
        if call.has_output() {
            self.reactor.arm(number, Interest::Both);
        }
        true
    }

    /// read(2) without blocking; arms the reactor when there is nothing.
    pub fn read(&self, pipe: u32, into: &mut [u8]) -> io::Result<usize> {
        let fd = self.reactor.get(pipe).ok_or_else(bad_number)?;
        let read = sys::read(&fd, into);
        self.armed(pipe, Interest::Readable, read)
    }

    /// write(2) without blocking; arms the reactor when nothing goes.
    pub fn write(&self, pipe: u32, from: &[u8]) -> io::Result<usize> {
        let fd = self.reactor.get(pipe).ok_or_else(bad_number)?;
        let written = sys::write(&fd, from);
        self.armed(pipe, Interest::Writable, written)
    }

    fn armed(&self, pipe: u32, wants: Interest, done: io::Result<usize>) -> io::Result<usize> {
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.reactor.arm(pipe, wants);
        }
        done
    }

    /// No more writing: shutdown(2) of a duplex place, the end of a pipe.
    pub fn finish(&self, pipe: u32) {
        let Some(fd) = self.reactor.get(pipe) else { return };
        if sys::end_writing(&fd).is_err() {
            self.close(pipe);
        }
    }

    /// Closes a pipe.
    pub fn close(&self, pipe: u32) {
        self.reactor.remove(pipe);
    }

    /// The descriptor of a pipe, to be inherited by another call; valid until [`Host::close`].
    pub fn descriptor(&self, pipe: u32) -> Option<i32> {
        Some(sys::number_of(self.reactor.get(pipe)?))
    }

    /// The next call starts a new helper, and the old one's keepers start nothing after the calls that they have.
    pub fn reset_helper(&self) {
        lock(&self.pool).retire();
        let calls: Vec<_> = lock(&self.calls).values().cloned().collect();
        for call in calls {
            self.retire_old_keeper(&mut lock(&call));
        }
    }

    fn retire_old_keeper(&self, call: &mut Call) {
        let is_old = |keeper| !lock(&self.pool).is_current(keeper);
        if call.keeper_id().is_some_and(is_old) {
            call.retire_keeper();
        }
    }

    /// Starts the helper if it does not run. What its keepers hold their broods by, or why there is none: an errno of
    /// this process, and what was tried.
    pub fn probe(&self, helper: &std::path::Path) -> Result<Mechanism, (i32, String)> {
        let mut pool = lock(&self.pool);
        match pool.ensure_helper(helper) {
            Ok(()) => Ok(pool.mechanism()),
            Err(Refusal::Descriptors(errno)) => Err((errno, String::new())),
            Err(Refusal::Helper { tried, .. }) => Err((0, tried)),
        }
    }
}

fn bad_number() -> io::Error {
    io::Error::from_raw_os_error(sys::EBADF)
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
