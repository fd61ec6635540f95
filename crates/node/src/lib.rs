//! The N-API addon: converts between JavaScript values and [`holdfast_core::host`], and holds no policy. The
//! JavaScript side of this surface is `src/native/addon.ts`, which documents every function.
#![expect(
    clippy::too_many_arguments,
    reason = "positional, because every property of an object costs a look-up (record 32)"
)]
#![expect(missing_docs, reason = "documented in src/native/addon.ts, the file that its callers read")]

use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::host::{self, EnvId, Event, GuardOptions, Guarded, Host, Place, Request, Unguarded};
use holdfast_core::sys;
use holdfast_core::wire::{Background, Exit, Lifetime, Mechanism, ProcessInfo, Usage, VERSION};
use napi::Env;
use napi::bindgen_prelude::{BufferSlice, Function, Result};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Error, Status};
use napi_derive::napi;

fn host() -> Result<&'static Host> {
    Host::get().map_err(|error| {
        Error::new(Status::GenericFailure, format!("holdfast: starting the reactor: {error}"))
    })
}

#[napi(catch_unwind)]
pub fn version() -> &'static str {
    VERSION
}

#[napi(catch_unwind)]
pub fn attach(env: Env, wake: Function<'_, (), ()>) -> Result<u32> {
    // Weak: the environment's life is the calls' business, not the addon's.
    let wake = wake.build_threadsafe_function().weak::<true>().build()?;
    let host = host()?;
    let id = host.attach(Box::new(move || {
        wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }));
    env.add_env_cleanup_hook(id, |id| {
        if let Ok(host) = Host::get() {
            host.detach(id);
        }
    })?;
    Ok(id.0)
}

#[napi(catch_unwind)]
pub fn take(environment: u32) -> Result<Vec<u32>> {
    Ok(host()?.take(EnvId(environment)))
}

fn place(code: i32) -> Place {
    match code {
        -1 => Place::Ignore,
        -2 => Place::Pipe,
        -3 => Place::Stdout,
        fd => Place::Inherit(fd),
    }
}

fn at_exit(code: u32) -> Background {
    match code {
        1 => Background::Keep,
        _ => Background::End,
    }
}

#[napi(catch_unwind)]
pub fn start(
    environment: u32,
    helper: String,
    file: String,
    args: String,
    variables: String,
    cwd: String,
    stdio: Vec<i32>,
    timeout: f64,
    kill_signal: i32,
    grace: f64,
    background: u32,
    background_grace: f64,
    background_settle: f64,
    uid: Option<u32>,
    gid: Option<u32>,
    detached: bool,
    best_effort: bool,
) -> Result<Vec<Option<u32>>> {
    let stdio: Vec<Place> = stdio.into_iter().map(place).collect();
    let request = Request {
        helper: PathBuf::from(helper),
        file: &file,
        args: &args,
        env: &variables,
        cwd: &cwd,
        stdio: &stdio,
        lifetime: Lifetime {
            timeout: millis(timeout),
            kill_signal,
            grace: millis(grace),
            background: at_exit(background),
            background_grace: millis(background_grace),
            background_settle: millis(background_settle),
        },
        uid,
        gid,
        detached,
        best_effort,
    };
    let begun = host()?.start(EnvId(environment), &request);
    let mut handles = Vec::with_capacity(stdio.len() + 1);
    handles.push(Some(begun.call));
    handles.extend(begun.pipes);
    handles.resize(stdio.len() + 1, None);
    Ok(handles)
}

/// Rounded up, so that half a millisecond is not no limit; cast saturates.
fn millis(value: f64) -> u64 {
    value.ceil() as u64
}

#[napi(catch_unwind)]
pub fn pid(call: u32, wait: bool) -> Result<i32> {
    Ok(host()?.pid(call, wait).unwrap_or(0))
}

#[napi(object, object_from_js = false)]
pub struct Process {
    pub pid: i32,
    pub name: String,
}

#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct CallEvent {
    pub kind: &'static str,
    pub pid: Option<i32>,
    pub step: Option<&'static str>,
    pub errno: Option<i32>,
    pub by_host: Option<bool>,
    pub unclear: Option<bool>,
    pub tried: Option<String>,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub outcome: Option<&'static str>,
    pub mechanism: Option<&'static str>,
    pub pipes: Option<bool>,
    pub by: Option<&'static str>,
    pub reason: Option<&'static str>,
    pub leftovers: Option<Vec<Process>>,
    pub leftover_count: Option<u32>,
    pub survivors: Option<Vec<Process>>,
    pub settle: Option<&'static str>,
    pub proof_time: Option<f64>,
    pub user_time: Option<f64>,
    pub system_time: Option<f64>,
    pub max_rss: Option<f64>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn processes(list: &[ProcessInfo]) -> Option<Vec<Process>> {
    Some(list.iter().map(|process| Process { pid: process.pid, name: text(&process.name) }).collect())
}

fn with_usage(event: CallEvent, usage: Usage) -> CallEvent {
    CallEvent {
        user_time: Some(usage.user as f64 / 1000.0),
        system_time: Some(usage.system as f64 / 1000.0),
        max_rss: Some(usage.max_rss as f64),
        ..event
    }
}

fn convert(event: Event) -> CallEvent {
    let none = CallEvent::default();
    match event {
        Event::Started(pid) => CallEvent { kind: "started", pid: Some(pid.unwrap_or(0)), ..none },
        Event::Failed { step, errno, by_host } => CallEvent {
            kind: "failed",
            step: Some(step.as_str()),
            errno: Some(errno),
            by_host: Some(by_host),
            ..none
        },
        Event::Refused { unclear, errno, tried } => CallEvent {
            kind: "refused",
            unclear: Some(unclear),
            errno: Some(errno),
            tried: Some(tried),
            ..none
        },
        Event::Exited(exit, usage) => {
            let (code, signal) = match exit {
                Some(Exit::Code(code)) => (code, -1),
                Some(Exit::Signal(signal)) => (-1, signal),
                None => (-1, -1),
            };
            with_usage(CallEvent { kind: "exited", code: Some(code), signal: Some(signal), ..none }, usage)
        }
        Event::Taken { mechanism, pipes } => {
            CallEvent { kind: "taken", mechanism: Some(mechanism.as_str()), pipes: Some(pipes), ..none }
        }
        Event::Ended(facts) => with_usage(
            CallEvent {
                kind: "ended",
                outcome: Some(facts.outcome.as_str()),
                mechanism: Some(facts.mechanism.as_str()),
                by: Some(facts.by.as_str()),
                reason: Some(facts.reason.as_str()),
                leftovers: processes(&facts.leftovers),
                leftover_count: Some(facts.leftover_count),
                survivors: processes(&facts.survivors),
                settle: Some(facts.settle.as_str()),
                proof_time: Some(facts.proof_time as f64 / 1000.0),
                ..none
            },
            facts.usage,
        ),
    }
}

#[napi(catch_unwind)]
pub fn receive(call: u32) -> Result<Vec<CallEvent>> {
    Ok(host()?.receive(call).into_iter().map(convert).collect())
}

#[napi(catch_unwind)]
pub fn signal(call: u32, signal: i32, group: bool) -> Result<bool> {
    Ok(host()?.signal(call, signal, group))
}

#[napi(catch_unwind)]
pub fn end(call: u32, signal: i32, grace: f64) -> Result<bool> {
    Ok(host()?.end(call, signal, grace.ceil() as i64))
}

#[napi(catch_unwind)]
pub fn end_others(environment: u32, signal: i32, grace: f64) -> Result<Vec<u32>> {
    Ok(host()?.end_others(EnvId(environment), signal, grace.ceil() as i64))
}

#[napi(catch_unwind)]
pub fn set_starter(call: u32) -> Result<bool> {
    Ok(host()?.set_starter(call))
}

#[napi(catch_unwind)]
pub fn hand_over(call: u32, pipes: Vec<u32>) -> Result<bool> {
    Ok(host()?.hand_over(call, &pipes))
}

#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct GuardStart {
    pub problem: &'static str,
    pub errno: i32,
    pub group: i32,
    pub leader: u32,
    pub pipe: u32,
    pub guard: u32,
}

fn guarded(result: std::result::Result<Guarded, Unguarded>) -> GuardStart {
    match result {
        Ok(Guarded { leader, group, pipe, guard }) => {
            GuardStart { group, leader, pipe, guard, ..GuardStart::default() }
        }
        Err(why) => {
            let errno =
                if let Unguarded::Helper(error) = &why { error.raw_os_error().unwrap_or(0) } else { 0 };
            GuardStart { problem: why.as_str(), errno, ..GuardStart::default() }
        }
    }
}

#[napi(catch_unwind)]
pub fn guard(
    environment: u32,
    helper: String,
    pid: i32,
    end_on_exit: bool,
    grace: f64,
) -> Result<GuardStart> {
    let options = GuardOptions { helper: Path::new(&helper), end_on_exit, grace: millis(grace) };
    Ok(guarded(host()?.guards().start(EnvId(environment), pid, &options)))
}

#[napi(catch_unwind)]
pub fn guard_again(
    environment: u32,
    helper: String,
    leader: u32,
    end_on_exit: bool,
    grace: f64,
) -> Result<GuardStart> {
    let options = GuardOptions { helper: Path::new(&helper), end_on_exit, grace: millis(grace) };
    Ok(guarded(host()?.guards().start_again(EnvId(environment), leader, &options)))
}

#[napi(catch_unwind)]
pub fn wake_guard(guard: u32) -> Result<()> {
    host()?.guards().wake(guard);
    Ok(())
}

#[napi(catch_unwind)]
pub fn reap_guard(guard: u32) -> Result<bool> {
    Ok(host()?.guards().reap(guard))
}

#[napi(catch_unwind)]
pub fn forget_leader(leader: u32) -> Result<()> {
    host()?.guards().forget_leader(leader);
    Ok(())
}

fn moved(done: io::Result<usize>) -> i32 {
    match done {
        Ok(count) => count as i32,
        Err(error) => -error.raw_os_error().unwrap_or(5),
    }
}

fn part(slice: &mut [u8], offset: u32, length: u32) -> Result<&mut [u8]> {
    let outside = || Error::new(Status::InvalidArg, "holdfast: outside of the buffer".to_owned());
    let end = offset.checked_add(length).ok_or_else(outside)?;
    slice.get_mut(offset as usize..end as usize).ok_or_else(outside)
}

#[napi(catch_unwind)]
pub fn read(pipe: u32, mut into: BufferSlice<'_>, offset: u32, length: u32) -> Result<i32> {
    Ok(moved(host()?.read(pipe, part(&mut into, offset, length)?)))
}

#[napi(catch_unwind)]
pub fn write(pipe: u32, mut from: BufferSlice<'_>, offset: u32, length: u32) -> Result<i32> {
    Ok(moved(host()?.write(pipe, part(&mut from, offset, length)?)))
}

#[napi(catch_unwind)]
pub fn pending(pipe: u32) -> Result<u32> {
    Ok(host()?.pending(pipe))
}

#[napi(catch_unwind)]
pub fn finish(pipe: u32) -> Result<()> {
    host()?.finish(pipe);
    Ok(())
}

#[napi(catch_unwind)]
pub fn close(pipe: u32) -> Result<()> {
    host()?.close(pipe);
    Ok(())
}

#[napi(catch_unwind)]
pub fn descriptor(pipe: u32) -> Result<i32> {
    Ok(host()?.descriptor(pipe).unwrap_or(-1))
}

#[napi(catch_unwind)]
pub fn reset_helper() -> Result<()> {
    host()?.reset_helper();
    Ok(())
}

#[napi(catch_unwind)]
pub fn execve(path: String, args: Vec<String>, env: Vec<String>, inherited: Vec<i32>) -> i32 {
    let keep = [host::inherit::named(&env), inherited].concat();
    sys::replace_process(&path, &args, &env, &keep).raw_os_error().unwrap_or(22)
}

#[napi(catch_unwind)]
pub fn probe(helper: String) -> Result<Probe> {
    Ok(match host()?.probe(Path::new(&helper)) {
        Ok(mechanism) => Probe { mechanism: mechanism.as_str(), errno: 0, problem: String::new() },
        Err((errno, problem)) => Probe { mechanism: Mechanism::None.as_str(), errno, problem },
    })
}

#[napi(object, object_from_js = false)]
pub struct Probe {
    pub mechanism: &'static str,
    pub errno: i32,
    pub problem: String,
}
