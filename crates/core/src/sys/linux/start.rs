//! Starting the command: clone, and what runs between clone and exec.
//!
//! `clone(CLONE_VM)` without CLONE_VFORK (clone(2)): nothing of the keeper's memory is copied, and the keeper does not
//! stand still while the new process is held up before exec (a dead network mount as working directory), so that its
//! deadline holds. The price: both run at once in one memory. So the new process has a stack of its own, makes system
//! calls without libc (see `raw`), allocates nothing, and writes nothing but one argument for the shell. The keeper
//! keeps the [`Plan`] alive until the status pipe has ended. Where the system has no such process the memory is copied,
//! as by fork(2).
//!
//! The status pipe: a failure is written to it as step and errno; a successful exec closes it without a byte
//! (it is close-on-exec).
#![expect(unsafe_code, reason = "clone and the code after it are outside of what safe Rust can express")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use holdfast_wire::{NO_DESCRIPTOR, SpecView, Step, Unfit};
use rustix::pipe::PipeFlags;

use super::mode::IGNORED;
use super::raw::{self, syscall};
use crate::sys::unix::pid::Pid;
use crate::sys::unix::signals::{block_all_signals, set_signal_mask};

/// The search path where the child's environment has none (execvp(3)).
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
const SHELL: &CStr = c"/bin/sh";
const STACK: usize = 64 * 1024;
/// Pauses before a program that is still open for writing is tried again, in milliseconds. A program that was written a
/// moment ago is held open by whatever another thread forked meanwhile, until that executes something.
const BUSY_PAUSES: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// Places of stdio, at most. A few words of the new process's stack, of which every page counts for every keeper.
pub const MOST_PLACES: usize = 64;

/// The new process's stack, made once per keeper and never given back. A mapping of its own: of the heap every page
/// would be touched, and count for every keeper.
pub struct Stack(*mut c_void);

impl Stack {
    /// Maps it (mmap(2)).
    pub fn new() -> io::Result<Stack> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), STACK, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Stack(start)) }
    }

    /// Stacks grow downwards; the end of a page is aligned for both architectures.
    fn top(&mut self) -> *mut c_void {
        self.0.wrapping_byte_add(STACK)
    }
}

/// Everything the new process reads. Raw pointers go into the spec and the vectors beside them, none of which
/// changes while the plan lives.
pub struct Plan {
    candidates: Vec<CString>,
    argv: Vec<*const c_char>,
    /// The arguments for a script without `#!`: the shell, the script, its own ones.
    shell_argv: Vec<AtomicPtr<c_char>>,
    envp: Vec<*const c_char>,
    places: Vec<RawFd>,
    cwd_fd: RawFd,
    cwd: *const c_char,
    cwd_is_absolute: bool,
    umask: Option<u32>,
    nice: Option<i32>,
    nofile: Option<[u64; 2]>,
    uid: Option<u32>,
    gid: Option<u32>,
    commitment: RawFd,
    grouping: Grouping,
    gate: Option<GateNumbers>,
    nohup: bool,
    parent: i32,
    status: RawFd,
    /// Owns what the pointers above lead to.
    _spec: SpecView,
    /// What a candidate names by its number.
    _program: Option<OwnedFd>,
}

/// Session and group of a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grouping {
    /// Those of the process that starts it.
    #[default]
    Inherited,
    /// This group of the same session.
    Joined(Pid),
    /// A group of its own in the same session.
    Own,
    /// A session and a group of its own.
    Session,
}

/// What a start needs beside the spec.
#[derive(Default)]
pub struct StartContext<'a> {
    /// A counter (eventfd(2)) to which the pid is added, once the process is in its group.
    pub commitment: Option<BorrowedFd<'a>>,
    /// The command's group and session.
    pub grouping: Grouping,
    /// Where the new process waits before it executes the program.
    pub gate: Option<Gate<'a>>,
    /// SIGHUP stays ignored.
    pub nohup: bool,
}

/// A pipe of the starting process: one byte opens the gate, its end makes the new process exit.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a> {
    /// Where the new process waits.
    pub read: BorrowedFd<'a>,
    /// To be closed in the new process, so that the starting process has the only one.
    pub write: BorrowedFd<'a>,
}

/// The pipe for a gate: read end and write end, out of the way of the command's places.
pub fn gate() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let aside = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, MOST_PLACES as i32);
    Ok((aside(&read)?, aside(&write)?))
}

/// A gate's descriptors by their numbers, for the new process.
#[derive(Clone, Copy)]
struct GateNumbers {
    read: RawFd,
    write: RawFd,
}

/// In the status pipe, before anything else: the gate was passed. No step has this number.
pub const PASSED: [u8; 1] = [u8::MAX];

impl Plan {
    /// Makes a plan of a spec and the descriptors that came with it; the first is the working directory.
    pub fn new(spec: SpecView, descriptors: &[OwnedFd], context: &StartContext<'_>) -> io::Result<Plan> {
        let program = descriptors.get(usize::from(spec.program));
        // Away from the numbers that become places.
        let first_free = spec.places().len().max(3) as RawFd;
        let program = program.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, first_free)).transpose()?;
        let has_cwd = !spec.cwd().is_empty() && !spec.cwd_is_open;
        let pointers = |list: &mut dyn Iterator<Item = &CStr>| -> Vec<*const c_char> {
            list.map(CStr::as_ptr).chain([ptr::null()]).collect()
        };
        let argv = pointers(&mut spec.args());
        let envp = pointers(&mut spec.env());
        let shell_argv = [SHELL.as_ptr(), ptr::null()].into_iter().chain(argv.iter().copied().skip(1));
        let shell_argv =
            shell_argv.map(|argument: *const c_char| AtomicPtr::new(argument.cast_mut())).collect();
        let descriptor = |index: u8| match index {
            NO_DESCRIPTOR => -1,
            index => descriptors.get(usize::from(index)).map_or(-1, AsRawFd::as_raw_fd),
        };
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let hard = limit.maximum.unwrap_or(u64::MAX);
        let soft = spec.nofile.min(hard);
        let own_nice = rustix::process::getpriority_process(None).unwrap_or(0);
        Ok(Plan {
            candidates: match &program {
                Some(fd) => vec![CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))?],
                None => candidates(&spec),
            },
            places: spec.places().iter().map(|&index| descriptor(index)).collect(),
            cwd_fd: descriptor(0),
            cwd: if has_cwd { spec.cwd().as_ptr() } else { ptr::null() },
            cwd_is_absolute: has_cwd && spec.cwd().to_bytes().starts_with(b"/"),
            umask: spec.umask,
            nice: (spec.nice != own_nice).then_some(spec.nice),
            nofile: (Some(soft) != limit.current).then_some([soft, hard]),
            uid: spec.uid,
            gid: spec.gid,
            commitment: context.commitment.map_or(-1, |commitment| commitment.as_raw_fd()),
            grouping: context.grouping,
            gate: context
                .gate
                .map(|Gate { read, write }| GateNumbers { read: read.as_raw_fd(), write: write.as_raw_fd() }),
            nohup: context.nohup,
            parent: std::process::id() as i32,
            status: -1,
            argv,
            shell_argv,
            envp,
            _spec: spec,
            _program: program,
        })
    }
}

/// The paths to try, in order, as execvp(3) does with the *child's* PATH.
fn candidates(spec: &SpecView) -> Vec<CString> {
    let file = spec.file().to_bytes();
    if file.is_empty() || file.contains(&b'/') {
        return vec![spec.file().to_owned()];
    }
    let path = spec.env().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="));
    let join = |folder: &[u8]| {
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        CString::new([folder, slash, file].concat()).ok()
    };
    // What is too long for a path is passed over, and not the end of the search.
    let folders = path.unwrap_or(DEFAULT_PATH).split(|&byte| byte == b':');
    folders.filter(|folder| folder.len() < libc::PATH_MAX as usize).filter_map(join).collect()
}

/// A command that was cloned.
pub struct Started {
    /// Its pid.
    pub pid: Pid,
    /// The status pipe's read end, non-blocking.
    pub status: OwnedFd,
}

/// Why a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub step: Step,
    /// The system's error code.
    pub errno: i32,
}

impl Failure {
    /// Reads what the new process has written into the status pipe.
    pub fn decode(bytes: [u8; 8]) -> Failure {
        let [step, _, _, _, errno @ ..] = bytes;
        let step = STEPS.iter().copied().find(|&known| known as u8 == step).unwrap_or(Step::Helper);
        Failure { step, errno: i32::from_ne_bytes(errno) }
    }
}

/// What is too large for a frame is also too large for the system, and is refused with the system's code for that.
impl From<Unfit> for Failure {
    fn from(unfit: Unfit) -> Failure {
        match unfit {
            Unfit::TooLong(Step::Arguments) => Failure { step: Step::Arguments, errno: libc::E2BIG },
            Unfit::TooLong(step) => Failure { step, errno: libc::ENAMETOOLONG },
            Unfit::Invalid(step) => Failure { step, errno: libc::EINVAL },
        }
    }
}

const STEPS: [Step; 9] = [
    Step::Cwd,
    Step::Program,
    Step::Interpreter,
    Step::Arguments,
    Step::Stdio,
    Step::Limits,
    Step::Credentials,
    Step::Helper,
    Step::ParentDeath,
];

/// Clones the command. The plan and the stack must stay as they are until the status pipe has ended.
pub fn start(plan: &mut Box<Plan>, stack: &mut Stack) -> io::Result<Started> {
    let (status, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    plan.status = write_end.as_raw_fd();
    let pid = clone(libc::CLONE_VM, plan, stack).or_else(|error| match error.raw_os_error() {
        // qemu-user supports a thread and a fork and nothing between them; a filter may refuse what looks like neither.
        Some(libc::EINVAL | libc::EPERM | libc::ENOSYS) => clone(0, plan, stack),
        _ => Err(error),
    })?;
    Ok(Started { pid, status })
}

/// The new process runs `enter` with this plan on this stack, in our memory or in a copy of it.
fn clone(flags: i32, plan: &mut Box<Plan>, stack: &mut Stack) -> io::Result<Pid> {
    let argument = ptr::from_mut::<Plan>(plan).cast();
    // SAFETY: `enter` keeps to the rules of this module; stack and plan outlive the child's use of them, which
    // ends with exec or exit, and so with the status pipe.
    let pid = unsafe { libc::clone(enter, stack.top(), flags | libc::SIGCHLD, argument) };
    Pid::new(pid).ok_or_else(io::Error::last_os_error)
}

/// Forks the command, which waits at its gate. For a process with other threads, whose memory must not be shared with a
/// process that waits; unlike the start of a helper this copies its page tables.
pub fn fork_gated(plan: &mut Box<Plan>) -> io::Result<Started> {
    let (status, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    plan.status = write_end.as_raw_fd();
    let argument = ptr::from_mut::<Plan>(plan).cast();
    // No handler of this process is to run in the new one, which shares its pipes.
    let mask = block_all_signals();
    // fork(2) without the C library, which would run what the host has asked for at a fork. Other threads may hold any
    // lock, so the new process goes nowhere but to `enter`, which makes system calls and nothing else.
    let forked = call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]);
    if forked == Ok(0) {
        enter(argument);
        exit();
    }
    set_signal_mask(&mask);
    let pid = forked.map_err(io::Error::from_raw_os_error)?;
    Pid::new(pid as i32).map(|pid| Started { pid, status }).ok_or_else(|| io::ErrorKind::Other.into())
}

/// The new process begins here, on its own stack.
extern "C" fn enter(plan: *mut c_void) -> i32 {
    // SAFETY: the keeper passed a plan and keeps it until the status pipe has ended; it reads only.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let mut child = Child { plan, status: plan.status };
    let failure = match child.prepare() {
        Ok(()) => child.execute(),
        Err(failure) => failure,
    };
    let mut bytes = [0u8; 8];
    bytes[0] = failure.step as u8;
    bytes[4..].copy_from_slice(&failure.errno.to_ne_bytes());
    let _ = call(libc::SYS_write, [child.status as usize, bytes.as_ptr() as usize, 8, 0, 0, 0]);
    exit()
}

fn exit() -> ! {
    loop {
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]);
    }
}

/// nanosleep(2). The signals that end a call end it, too: none is blocked or ignored by then.
fn sleep(milliseconds: i64) {
    let time = [0, milliseconds * 1_000_000];
    let _ = call(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]);
}

type Errno = i32;

fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    loop {
        // SAFETY: all callers are in this file; each passes descriptors, numbers, or pointers into the plan or
        // its own stack, all valid for the call.
        let result = unsafe { syscall(number, args) };
        match result {
            0.. => return Ok(result as usize),
            _ if result == -(libc::EINTR as isize) => continue,
            _ => return Err(-result as Errno),
        }
    }
}

struct Child<'a> {
    plan: &'a Plan,
    status: RawFd,
}

impl Child<'_> {
    /// Everything between clone and exec. The order matters: credentials after what needs the old ones, the
    /// parent-death signal after the credentials (which clear it), the check of the parent after that.
    fn prepare(&mut self) -> Result<(), Failure> {
        let plan = self.plan;
        let step = |step: Step| move |errno: Errno| Failure { step, errno };
        if let Some(gate) = &plan.gate {
            // First: the gate is to fall shut with the starting process alone.
            let _ = call(libc::SYS_close, [gate.write as usize, 0, 0, 0, 0, 0]);
        }
        let grouped = match plan.grouping {
            Grouping::Inherited => Ok(0),
            Grouping::Joined(group) => call(libc::SYS_setpgid, [0, group.raw() as usize, 0, 0, 0, 0]),
            Grouping::Own => call(libc::SYS_setpgid, [0; 6]),
            Grouping::Session => call(libc::SYS_setsid, [0; 6]),
        };
        grouped.map_err(step(Step::Helper))?;
        // Not before the group exists: the pid may be its number, and the host may use it as that at once. If this
        // write fails, the host goes on without the pid.
        let pid = call(libc::SYS_getpid, [0; 6]).map_err(step(Step::Helper))? as u64;
        let _ = call(libc::SYS_write, [plan.commitment as usize, (&raw const pid) as usize, 8, 0, 0, 0]);
        let cwd_fd = self.descriptors().map_err(step(Step::Stdio))?;
        if let Some(gate) = &plan.gate {
            self.close_others([cwd_fd, self.status, gate.read]);
        }
        self.directory(cwd_fd).map_err(step(Step::Cwd))?;
        if plan.gate.is_some() {
            let _ = call(libc::SYS_close, [cwd_fd as usize, 0, 0, 0, 0, 0]);
        }
        if let Some(mask) = plan.umask {
            call(libc::SYS_umask, [mask as usize, 0, 0, 0, 0, 0]).map_err(step(Step::Limits))?;
        }
        if let Some(nice) = plan.nice {
            call(libc::SYS_setpriority, [libc::PRIO_PROCESS as usize, 0, nice as isize as usize, 0, 0, 0])
                .map_err(step(Step::Limits))?;
        }
        if let Some(limit) = &plan.nofile {
            call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, limit.as_ptr() as usize, 0, 0, 0])
                .map_err(step(Step::Limits))?;
        }
        self.credentials().map_err(step(Step::Credentials))?;
        for signal in IGNORED {
            let stays_ignored = plan.nohup && signal == libc::SIGHUP;
            let disposition = if stays_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            raw::set_disposition(signal, disposition).map_err(step(Step::Helper))?;
        }
        call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0, 0])
            .map_err(step(Step::ParentDeath))?;
        if call(libc::SYS_getppid, [0; 6]) != Ok(plan.parent as usize) {
            exit();
        }
        if let Some(gate) = &plan.gate {
            self.wait_at(gate).map_err(step(Step::Helper))?;
        }
        Ok(())
    }

    /// Waits until the gate opens. Does not return when it falls shut.
    fn wait_at(&self, gate: &GateNumbers) -> Result<(), Errno> {
        // Handlers are the host's until exec: none may run when the mask is emptied before that.
        for signal in 1..=64 {
            let _ = raw::set_disposition(signal, libc::SIG_DFL);
        }
        let mut byte = 0u8;
        if call(libc::SYS_read, [gate.read as usize, (&raw mut byte) as usize, 1, 0, 0, 0])? != 1 {
            exit();
        }
        // The reader of the status can distinguish a program that was executed from a process that died at its gate.
        call(libc::SYS_write, [self.status as usize, PASSED.as_ptr() as usize, 1, 0, 0, 0])?;
        // From here on the guard is there. The signal at the starting *thread*'s end was for the wait only.
        call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, 0, 0, 0, 0, 0])?;
        Ok(())
    }

    /// Closes what was not asked for, but for these. Not by close-on-exec: a process that waits at its gate would hold
    /// open whatever another thread of the host waits for, another gate among that.
    fn close_others(&self, mut kept: [RawFd; 3]) {
        kept.sort_unstable();
        let mut first = self.plan.places.len().max(3) as RawFd;
        for &last in kept.iter().chain([&RawFd::MAX]) {
            if first < last {
                self.close_range(first, last - 1);
            }
            first = first.max(last.saturating_add(1));
        }
    }

    fn close_range(&self, first: RawFd, last: RawFd) {
        if call(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0, 0]).is_err() {
            // Kernels before 5.9, or a filter.
            for fd in first..=last.min(65_535) {
                let _ = call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
            }
        }
    }

    /// Puts every place where it belongs. Sources below the number of places are moved out of the way first;
    /// whatever is not a place is close-on-exec. Returns the working directory's descriptor.
    fn descriptors(&mut self) -> Result<RawFd, Errno> {
        let plan = self.plan;
        let count = plan.places.len() as i32;
        let aside = |fd: RawFd| -> Result<RawFd, Errno> {
            if !(0..count.max(3)).contains(&fd) {
                return Ok(fd);
            }
            let moved = call(
                libc::SYS_fcntl,
                [fd as usize, libc::F_DUPFD_CLOEXEC as usize, count.max(3) as usize, 0, 0, 0],
            )?;
            Ok(moved as RawFd)
        };
        self.status = aside(self.status)?;
        let cwd_fd = aside(plan.cwd_fd)?;
        let mut sources = [-1; MOST_PLACES];
        for (source, &place) in sources.iter_mut().zip(&plan.places) {
            *source = aside(place)?;
        }
        for (target, &source) in sources.iter().take(count as usize).enumerate() {
            // Those of a keeper are /dev/null already; whatever is open beyond is close-on-exec.
            let Ok(source) = usize::try_from(source) else { continue };
            call(libc::SYS_dup3, [source, target, 0, 0, 0, 0])?;
            if target < 3 {
                let flags = call(libc::SYS_fcntl, [target, libc::F_GETFL as usize, 0, 0, 0, 0])?;
                if flags & libc::O_NONBLOCK as usize != 0 {
                    let flags = flags & !(libc::O_NONBLOCK as usize);
                    call(libc::SYS_fcntl, [target, libc::F_SETFL as usize, flags, 0, 0, 0])?;
                }
            }
        }
        Ok(cwd_fd)
    }

    /// An absolute directory does not need the host's, which may be gone or unreadable.
    fn directory(&self, cwd_fd: RawFd) -> Result<(), Errno> {
        let plan = self.plan;
        let mut changed = Ok(0);
        if !plan.cwd_is_absolute {
            // Without one it stays where the keeper stands.
            if cwd_fd >= 0 {
                changed = call(libc::SYS_fchdir, [cwd_fd as usize, 0, 0, 0, 0, 0]);
            }
        }
        if changed.is_ok() && !plan.cwd.is_null() {
            changed = call(libc::SYS_chdir, [plan.cwd as usize, 0, 0, 0, 0, 0]);
        }
        changed.map(|_| ())
    }

    fn credentials(&self) -> Result<(), Errno> {
        let plan = self.plan;
        if plan.uid.is_some() || plan.gid.is_some() {
            match call(libc::SYS_setgroups, [0; 6]) {
                // Without privilege there is nothing to drop; setgid and setuid below say what is refused.
                Ok(_) | Err(libc::EPERM) => (),
                Err(errno) => return Err(errno),
            }
        }
        if let Some(gid) = plan.gid {
            call(libc::SYS_setgid, [gid as usize, 0, 0, 0, 0, 0])?;
        }
        if let Some(uid) = plan.uid {
            call(libc::SYS_setuid, [uid as usize, 0, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Tries the candidates as execvp(3) does. Returns only with a failure.
    fn execute(&self) -> Failure {
        let plan = self.plan;
        let empty = [0u64; 1];
        let _ =
            call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, empty.as_ptr() as usize, 0, 8, 0, 0]);
        let mut worst = Failure { step: Step::Program, errno: libc::ENOENT };
        for candidate in &plan.candidates {
            let path = candidate.as_ptr() as usize;
            let exec = || {
                let args = [path, plan.argv.as_ptr() as usize, plan.envp.as_ptr() as usize, 0, 0, 0];
                call(libc::SYS_execve, args).err()
            };
            let mut refused = exec();
            for pause in BUSY_PAUSES {
                if refused != Some(libc::ETXTBSY) {
                    break;
                }
                sleep(pause);
                refused = exec();
            }
            let Some(errno) = refused else { exit() };
            match errno {
                libc::ENOENT => {
                    let there = [libc::AT_FDCWD as isize as usize, path, libc::F_OK as usize, 0, 0, 0];
                    if call(libc::SYS_faccessat, there).is_ok() {
                        return Failure { step: Step::Interpreter, errno };
                    }
                }
                libc::ENOTDIR | libc::ENODEV | libc::ESTALE | libc::ETIMEDOUT => {
                    if plan.candidates.len() == 1 {
                        worst.errno = errno;
                    }
                }
                libc::EACCES => worst.errno = errno,
                libc::ENOEXEC => return self.shell(candidate),
                libc::E2BIG => {
                    return Failure { step: Step::Arguments, errno };
                }
                _ => {
                    return Failure { step: Step::Program, errno };
                }
            }
        }
        worst
    }

    /// A script without `#!` is the shell's, as under execvp(3).
    fn shell(&self, script: &CStr) -> Failure {
        let plan = self.plan;
        if let Some(place) = plan.shell_argv.get(1) {
            place.store(script.as_ptr().cast_mut(), Ordering::Relaxed);
        }
        let args = [
            SHELL.as_ptr() as usize,
            plan.shell_argv.as_ptr() as usize,
            plan.envp.as_ptr() as usize,
            0,
            0,
            0,
        ];
        match call(libc::SYS_execve, args) {
            Ok(_) => exit(),
            Err(errno) => Failure {
                step: Step::Program,
                errno: if errno == libc::ENOENT { libc::ENOEXEC } else { errno },
            },
        }
    }
}
