//! The reactor: one thread that waits for everything the host owns, and reports which numbers are ready.
//!
//! Each number is armed for one event by the environment that found nothing to read or no room to write, so a
//! slow reader costs nothing and no event comes twice. The thread reads no data. It blocks every signal.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::lock::lock;
use crate::sys::{self, AsFd, Handle, Occurrence, OwnedFd, Poller};

/// In a readiness word: there is something to read, or the end.
pub const READABLE: u32 = 1;
/// In a readiness word: there is room to write, or no reader.
pub const WRITABLE: u32 = 2;

/// A JavaScript environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EnvId(pub u32);

/// What a number is armed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Data or the end.
    Readable,
    /// Room to write.
    Writable,
    /// Data or the end, or room to write.
    Both,
}

impl Interest {
    fn bits(self) -> u32 {
        match self {
            Interest::Readable => READABLE,
            Interest::Writable => WRITABLE,
            Interest::Both => READABLE | WRITABLE,
        }
    }
}

/// Keys with this bit are the pool's own; the others are an environment's numbers.
const POOL: u64 = 1 << 63;
const STACK: usize = 128 * 1024;

struct Entry {
    env: EnvId,
    fd: Option<Arc<OwnedFd>>,
    armed: u32,
    is_known: bool,
    timer: Option<Instant>,
}

#[derive(Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    /// Oldest first, so that a number rests before it is used again.
    free: VecDeque<u32>,
    envs: HashMap<EnvId, Arc<Env>>,
    next_env: u32,
    timers: BTreeSet<(Instant, u32)>,
    /// What the clock is set to: the first of the times, or an earlier one that is not needed any more.
    clock: Option<Instant>,
}

impl Table {
    fn free(&mut self, number: u32) -> Option<Entry> {
        let entry = self.entries.get_mut(number as usize)?.take()?;
        self.free.push_back(number);
        if let Some(time) = entry.timer {
            self.timers.remove(&(time, number));
        }
        Some(entry)
    }
}

struct Env {
    words: Mutex<Vec<u32>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Env {
    fn push(&self, number: u32, bits: u32) {
        let mut words = lock(&self.words);
        words.push(number << 2 | bits);
        if words.len() == 1 {
            (self.wake)();
        }
    }
}

/// The thread, and what it waits for.
pub struct Reactor {
    poller: Poller,
    table: Mutex<Table>,
}

impl Reactor {
    pub fn new() -> io::Result<Reactor> {
        Ok(Reactor { poller: Poller::new()?, table: Mutex::default() })
    }

    /// Starts the thread. `on_pool` is called with the pool's keys.
    pub fn run(self: &Arc<Self>, on_pool: impl Fn(u64) + Send + 'static) -> io::Result<()> {
        let reactor = Arc::clone(self);
        let body = move || {
            sys::block_all_signals();
            loop {
                reactor.run_once(&on_pool);
            }
        };
        std::thread::Builder::new().name("holdfast".into()).stack_size(STACK).spawn(body)?;
        Ok(())
    }

    fn run_once(&self, on_pool: &dyn Fn(u64)) {
        self.poller.wait(|occurrence| match occurrence {
            Occurrence::Time => self.fire_timers(),
            Occurrence::Ready { key, .. } if key & POOL != 0 => on_pool(key & !POOL),
            Occurrence::Ready { key, readable, writable } => self.fire(key as u32, readable, writable),
        });
    }

    fn fire(&self, number: u32, readable: bool, writable: bool) {
        let mut table = lock(&self.table);
        let Some(Some(entry)) = table.entries.get_mut(number as usize) else {
            return;
        };
        let mut bits = 0;
        if readable {
            bits |= READABLE;
        }
        if writable {
            bits |= WRITABLE;
        }
        bits &= entry.armed;
        entry.armed &= !bits;
        if entry.armed != 0 {
            self.control(number, entry);
        }
        if bits != 0 {
            let env = entry.env;
            if let Some(env) = table.envs.get(&env).cloned() {
                drop(table);
                env.push(number, bits);
            }
        }
    }

    fn fire_timers(&self) {
        let now = Instant::now();
        let mut table = lock(&self.table);
        table.clock = None;
        let later = table.timers.split_off(&(now, u32::MAX));
        let due = std::mem::replace(&mut table.timers, later);
        self.set_clock(&mut table);
        drop(table);
        for (_, number) in due {
            self.notify(number);
        }
    }

    /// Reports a number as readable, without a look at its descriptor.
    pub fn notify(&self, number: u32) {
        let table = lock(&self.table);
        let Some(Some(entry)) = table.entries.get(number as usize) else {
            return;
        };
        let Some(env) = table.envs.get(&entry.env).cloned() else {
            return;
        };
        drop(table);
        env.push(number, READABLE);
    }

    pub fn attach(&self, wake: Box<dyn Fn() + Send + Sync>) -> EnvId {
        let mut table = lock(&self.table);
        let id = EnvId(table.next_env);
        table.next_env += 1;
        table.envs.insert(id, Arc::new(Env { words: Mutex::default(), wake }));
        id
    }

    /// Forgets an environment: nothing is reported to it any more. Returns its numbers, which are not given out again
    /// before they are removed.
    pub fn detach(&self, env: EnvId) -> Vec<u32> {
        let mut table = lock(&self.table);
        table.envs.remove(&env);
        let of_env = |(number, entry): (usize, &Option<Entry>)| {
            entry.as_ref().is_some_and(|entry| entry.env == env).then_some(number as u32)
        };
        table.entries.iter().enumerate().filter_map(of_env).collect()
    }

    pub fn take(&self, env: EnvId) -> Vec<u32> {
        let env = lock(&self.table).envs.get(&env).cloned();
        env.map(|env| std::mem::take(&mut *lock(&env.words))).unwrap_or_default()
    }

    /// Adds a descriptor, or none, and returns its number.
    pub fn add(&self, env: EnvId, fd: Option<Arc<OwnedFd>>) -> u32 {
        self.add_known(env, fd, false)
    }

    /// A new number for a descriptor that the poller may know already, disarmed.
    pub fn add_known(&self, env: EnvId, fd: Option<Arc<OwnedFd>>, is_known: bool) -> u32 {
        let mut table = lock(&self.table);
        let entry = Some(Entry { env, fd, armed: 0, is_known, timer: None });
        // A freed number rests: an event for its former owner may still be on its way.
        if table.free.len() > 64
            && let Some(number) = table.free.pop_front()
        {
            table.entries[number as usize] = entry;
            return number;
        }
        table.entries.push(entry);
        table.entries.len() as u32 - 1
    }

    pub fn get(&self, number: u32) -> Option<Arc<OwnedFd>> {
        lock(&self.table).entries.get(number as usize)?.as_ref()?.fd.clone()
    }

    pub fn owner(&self, number: u32) -> Option<EnvId> {
        Some(lock(&self.table).entries.get(number as usize)?.as_ref()?.env)
    }

    /// The number stands for another descriptor from now on.
    pub fn replace(&self, number: u32, fd: Option<Arc<OwnedFd>>, is_known: bool) {
        let mut table = lock(&self.table);
        let Some(Some(entry)) = table.entries.get_mut(number as usize) else {
            return;
        };
        self.leave(entry);
        entry.fd = fd;
        entry.is_known = is_known;
    }

    /// Gives up a number whose descriptor lives on. Whether the poller knows it still, disarmed.
    pub fn release(&self, number: u32) -> bool {
        let mut table = lock(&self.table);
        let Some(mut entry) = table.free(number) else {
            return false;
        };
        if entry.armed != 0 {
            self.leave(&mut entry);
        }
        entry.is_known
    }

    pub fn remove(&self, number: u32) {
        let mut table = lock(&self.table);
        if let Some(mut entry) = table.free(number) {
            self.leave(&mut entry);
        }
    }

    /// Closes everything, unless another thread is at it.
    pub fn close_all(&self) {
        if let Ok(mut table) = self.table.try_lock() {
            table.entries.clear();
        }
    }

    /// Explicitly: a copy of the descriptor in a keeper would keep the registration alive.
    fn leave(&self, entry: &mut Entry) {
        if let Some(fd) = entry.fd.as_ref().filter(|_| entry.is_known) {
            self.poller.remove(fd);
        }
        entry.is_known = false;
        entry.armed = 0;
    }

    /// Arms a number for one event.
    pub fn arm(&self, number: u32, wants: Interest) {
        let mut table = lock(&self.table);
        let Some(Some(entry)) = table.entries.get_mut(number as usize) else {
            return;
        };
        let armed = entry.armed | wants.bits();
        if armed != entry.armed {
            entry.armed = armed;
            self.control(number, entry);
        }
    }

    fn control(&self, number: u32, entry: &mut Entry) {
        let Some(fd) = &entry.fd else { return };
        let wants = (entry.armed & READABLE != 0, entry.armed & WRITABLE != 0);
        entry.is_known = self.poller.arm(fd, number.into(), wants, entry.is_known);
    }

    /// Wakes the number's owner at this time, and at no other that was set before.
    pub fn set_timer(&self, number: u32, time: Option<Instant>) {
        let mut table = lock(&self.table);
        let Some(Some(entry)) = table.entries.get_mut(number as usize) else { return };
        let before = std::mem::replace(&mut entry.timer, time);
        if before == time {
            return;
        }
        if let Some(before) = before {
            table.timers.remove(&(before, number));
        }
        if let Some(time) = time {
            table.timers.insert((time, number));
            self.set_clock(&mut table);
        }
    }

    fn set_clock(&self, table: &mut Table) {
        let Some(&(time, _)) = table.timers.first() else {
            return;
        };
        if table.clock.is_some_and(|clock| clock <= time) {
            return;
        }
        table.clock = Some(time);
        self.poller.set_time(time);
    }

    /// Watches a descriptor of the pool's: its key is reported whenever something new has come.
    pub fn watch_for_pool(&self, key: u64, fd: impl AsFd) -> io::Result<()> {
        self.poller.watch(fd, POOL | key)
    }

    /// Stops watching a descriptor of the pool's.
    pub fn unwatch(&self, fd: impl AsFd) {
        self.poller.remove(fd);
    }

    /// Watches a process for the pool: its key is reported at its end. False: it has no pidfd, and nothing will be
    /// reported.
    pub fn watch_exit_for_pool(&self, key: u64, process: &Handle) -> bool {
        self.poller.watch_exit(process, POOL | key)
    }

    /// Stops watching a process.
    pub fn unwatch_exit(&self, process: &Handle) {
        self.poller.remove_exit(process);
    }
}
