//! The host's side: what the addon embeds. No JavaScript here, so that it can be tested without Node.
//!
//! [`Host`] is one per process and shared by its threads. It owns the spawn helper's socket and the sockets of idle
//! keepers (`os::Pool`); a call takes one keeper's socket and gives it back after the end (`os::Call`). Everything that
//! has to be waited for is watched by one thread (`reactor`), which reads nothing itself: it reports which number is
//! ready, and the environment (a JavaScript thread) that owns the number reads.
//!
//! Locks are taken in the order call, observers, pool, reactor; that of the calls' table alone.

mod event;
pub mod inherit;
mod lock;
mod reactor;
mod request;
mod unix;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use holdfast_wire::{EndFacts, Mechanism};

use crate::sys;

pub use event::Event;
use event::Observer;
use lock::lock;
use os::{Call, Pool};
pub use os::{GuardOptions, Guarded, Guards, Unguarded, gate};
pub use reactor::{EnvId, READABLE, WRITABLE};
use reactor::{Interest, Reactor};
pub use request::{Place, Request};
/// What is done differently from system to system. Everything else here is numbers, environments, pipes and events.
use unix as os;

/// How long `pid` waits for a keeper that is stopped or starved.
const PID_WAIT: Duration = Duration::from_millis(20);

/// With more calls than this their pipes stay as the system makes them. A pipe that was enlarged counts four times as
/// much towards `fs.pipe-user-pages-soft`, and beyond that limit all further pipes of the user hold two pages. 32 calls
/// take a quarter of it.
const MOST_ENLARGED: usize = 32;

/// A call's numbers.
pub struct StartedCall {
    /// The call's own number.
    pub call: u32,
    /// The pipes', by place.
    pub pipes: Vec<Option<u32>>,
}

/// The host's side of all calls of a process. There is one per process.
pub struct Host {
    /// The process that has made it: a copy in a process that native code has forked must not be used.
    process: u32,
    reactor: Arc<Reactor>,
    pool: Arc<Mutex<Pool>>,
    calls: Mutex<HashMap<u32, Arc<Mutex<Call>>>>,
    /// Observers of the ends of other environments' calls, by the handle that each was given.
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
                self.notify_observers(&mut call);
                call.give_back(false, &mut lock(&self.pool));
            }
        }
    }

    /// This process exits. What it has open is closed a moment earlier than the kernel would, so that the helper ends
    /// as a child that is reaped: an orphan stays a zombie where process 1 does not reap. Other threads may hold a
    /// lock, and are not waited for.
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
    pub fn start(&self, env: EnvId, request: &Request<'_>) -> StartedCall {
        let is_enlarged = lock(&self.calls).len() < MOST_ENLARGED;
        let mut prepared = os::prepare(request, is_enlarged);
        if prepared.as_ref().is_err_and(|(_, error)| os::is_descriptor_limit(error))
            && lock(&self.pool).dismiss_idle()
        {
            prepared = os::prepare(request, is_enlarged);
        }
        let mut pipes = Vec::with_capacity(request.stdio.len());
        let mut call = match prepared {
            Ok(mut prepared) => {
                let add = |fd| self.reactor.add(env, Some(Arc::new(fd)));
                pipes.extend(prepared.pipes.drain(..).map(|pipe| pipe.map(add)));
                Call::start(prepared, request, &mut lock(&self.pool))
            }
            Err((step, error)) => Call::failed(step, &error),
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
        StartedCall { call: number, pipes }
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
        self.notify_observers(call);
        call.give_back(watched, &mut lock(&self.pool));
    }

    fn rearm(&self, number: u32, call: &mut Call) {
        if call.changed_socket() {
            let (socket, watched) = call.socket();
            self.reactor.replace(number, socket, watched);
        }
        self.reactor.set_timer(number, call.next_time());
        if !call.waits_for_pool(number, &mut lock(&self.pool)) {
            let wants = if call.has_output() { Interest::Both } else { Interest::Readable };
            self.reactor.arm(number, wants);
        }
    }

    /// Signals the command's first process, or its group. False when the call has ended.
    pub fn signal(&self, number: u32, signal: i32, group: bool) -> bool {
        self.request(number, |call| call.signal(signal, group))
    }

    /// Starts the ladder; -1 stands for the call's own. False when the call has ended.
    pub fn end(&self, number: u32, signal: i32, grace: i64) -> bool {
        self.request(number, |call| call.end(signal, grace))
    }

    /// Passes a request on to a call. False when the call has ended.
    fn request(&self, number: u32, request: impl FnOnce(&mut Call) -> bool) -> bool {
        let Some(call) = self.call(number) else { return false };
        let mut call = lock(&call);
        let is_live = request(&mut call);
        if is_live {
            self.after_request(number, &call);
        }
        is_live
    }

    /// A request to a call may have left something to be sent, and may have changed when something is due.
    fn after_request(&self, number: u32, call: &Call) {
        self.reactor.set_timer(number, call.next_time());
        if call.has_output() {
            self.reactor.arm(number, Interest::Both);
        }
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
                call.end(signal, grace);
                self.after_request(number, &call);
            }
        }
        waiting
    }

    fn notify_observers(&self, call: &mut Call) {
        // An observer is dropped with its environment.
        for observer in std::mem::take(&mut call.observers).iter().filter_map(Weak::upgrade) {
            *lock(&observer.facts) = call.facts().cloned();
            self.reactor.notify(observer.handle);
        }
    }

    /// The end that this handle's observer has waited for, once it is there. Then the handle is free.
    fn observed(&self, handle: u32) -> Option<EndFacts> {
        let mut observers = lock(&self.observers);
        let facts = lock(&observers.get(&handle)?.facts).take()?;
        observers.remove(&handle);
        self.reactor.remove(handle);
        Some(facts)
    }

    /// The call's first process is a starter: it passes on what it is sent. False when the call has ended.
    pub fn set_starter(&self, number: u32) -> bool {
        self.request(number, Call::set_starter)
    }

    /// Gives read ends to the keeper; the host's are closed when it has taken them. Needs no free descriptor here.
    pub fn hand_over(&self, number: u32, pipes: &[u32]) -> bool {
        let ends: Option<Vec<_>> = pipes.iter().map(|&pipe| self.reactor.get(pipe)).collect();
        ends.is_some_and(|ends| self.request(number, |call| call.hand_over(ends)))
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

    /// Bytes that a pipe holds to be read; 0 of one that is closed.
    pub fn pending(&self, pipe: u32) -> u32 {
        self.reactor.get(pipe).map_or(0, |fd| sys::pending(&fd))
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
        call.retire_unless_current(&lock(&self.pool));
    }

    /// Starts the helper if it does not run. What its keepers hold their broods by, or why there is none: an errno of
    /// this process, and what was tried.
    pub fn probe(&self, helper: &std::path::Path) -> Result<Mechanism, (i32, String)> {
        lock(&self.pool).probe(helper)
    }
}

fn bad_number() -> io::Error {
    io::Error::from_raw_os_error(sys::EBADF)
}
