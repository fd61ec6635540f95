//! The process table, read from /proc (proc(5)). Nothing here is trusted as it stands: a number from a list is
//! shown to be our child, or the same process as a pidfd, before it is signalled.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use holdfast_wire::ProcessInfo;

use super::process::{Look, Pid, group_of, look};

/// Our own children. We have one thread. `None`: the table cannot be read.
pub fn own_children(list: &mut ChildrenFile) -> Option<Vec<Pid>> {
    let mut bytes = Vec::new();
    match list.read(&mut bytes) {
        Ok(()) => Some(numbers(&bytes).collect()),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
        Err(_) => children_by_scan(Pid::own()?),
    }
}

/// Our own list of children, kept open: to look the path up costs more than to read it. Not for use after a fork.
#[derive(Default)]
pub struct ChildrenFile(Option<File>);

impl ChildrenFile {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let file = match &mut self.0 {
            Some(file) => file,
            none => {
                if !is_ours() {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                none.insert(File::open("/proc/thread-self/children")?)
            }
        };
        let mut chunk = [0; 1024];
        loop {
            let count = file.read_at(&mut chunk, into.len() as u64)?;
            if count == 0 {
                return Ok(());
            }
            into.extend_from_slice(&chunk[..count]);
        }
    }
}

/// The children that a process's first thread has started, or with `thorough` any of its threads.
fn children_of(pid: Pid, thorough: bool) -> Vec<Pid> {
    let tasks = format!("/proc/{pid}/task", pid = pid.raw());
    let of_task = |task: &str| -> Vec<Pid> {
        let mut bytes = [0; 4096];
        let file = File::open(format!("{tasks}/{task}/children"));
        let length = file.and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
        numbers(&bytes[..length]).collect()
    };
    // Nearly every process has one thread. A directory has two links, and one for each folder in it.
    if !thorough || fs::metadata(&tasks).is_ok_and(|folder| folder.nlink() <= 3) {
        return of_task(&pid.raw().to_string());
    }
    let tasks = fs::read_dir(&tasks).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().into_string().ok()).flat_map(|task| of_task(&task)).collect()
}

/// The children of these processes, each with its parent. Without `thorough` what other threads than the first have
/// started is left out: it shows when its parent has died.
pub fn below(parents: &[Pid], thorough: bool) -> Vec<(Pid, Pid)> {
    let of = |&parent: &Pid| children_of(parent, thorough).into_iter().map(move |child| (child, parent));
    parents.iter().flat_map(of).collect()
}

/// Everything below these processes, each with its parent, parents first. Bounded, since a tree that grows has no end.
pub fn descendants(roots: &[Pid]) -> Vec<(Pid, Pid)> {
    const MOST: usize = 65_536;
    let mut found = below(roots, true);
    let mut next = 0;
    while next < found.len() && found.len() < MOST {
        found.extend(below(&[found[next].0], true));
        next += 1;
    }
    found
}

/// The number given out last in our pid namespace (proc_loadavg(5)).
pub(super) fn last_number() -> Option<Pid> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    Pid::new(text.trim_end().rsplit(' ').next()?.parse().ok()?)
}

/// Every number that is a child of ours, alive or not, found by asking: for a system without a usable /proc.
pub fn every_number() -> Vec<Pid> {
    let highest =
        fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    let ask = |range: std::ops::RangeInclusive<i32>| -> Vec<Pid> {
        range.filter_map(Pid::new).filter(|&pid| look(pid) != Look::NotOurs).collect()
    };
    // The kernel's default first, its largest value only where that finds nothing.
    let found = ask(2..=highest.unwrap_or(32_768));
    if found.is_empty() && highest.is_none() { ask(32_769..=4_194_304) } else { found }
}

/// The name the kernel keeps, also of a zombie. Empty where it cannot be read.
pub fn name(pid: Pid) -> Vec<u8> {
    let mut bytes = [0; 32];
    let file = File::open(format!("/proc/{}/comm", pid.raw()));
    let length = file.and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
    bytes[..length].strip_suffix(b"\n").unwrap_or(&bytes[..length]).to_vec()
}

/// A process as a report names it.
pub fn shown(pid: Pid) -> ProcessInfo {
    ProcessInfo { pid: pid.raw(), name: name(pid) }
}

/// The parent according to /proc.
pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    Stat::parse(&fs::read(format!("/proc/{}/stat", pid.raw())).ok()?)?.parent
}

/// Whether /proc is there and counts as we do: one of another pid namespace does not.
pub(super) fn is_ours() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.to_str().and_then(|name| name.parse().ok()) == Some(std::process::id()))
}

/// The live members of a group, according to the process table.
#[derive(Debug, PartialEq, Eq)]
pub enum LiveMembers {
    /// These, zombies left out.
    These(Vec<Pid>),
    /// The table cannot be read, or not all of it (hidepid). It is not known that there are none.
    Unreadable,
}

/// Asks the table. The number is the caller's to hold.
pub fn live_members(group: Pid) -> LiveMembers {
    // Whoever may not see process 1 may not see others, either (proc(5), hidepid).
    let complete = is_ours() && fs::read("/proc/1/stat").is_ok();
    let Ok(entries) = fs::read_dir("/proc") else { return LiveMembers::Unreadable };
    if !complete {
        return LiveMembers::Unreadable;
    }
    let mut members = Vec::new();
    for entry in entries {
        let Ok(entry) = entry else { return LiveMembers::Unreadable };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::new);
        // getpgid(2) costs a fiftieth of the file.
        let Some(pid) = number.filter(|&pid| group_of(pid) == Some(group)) else { continue };
        match fs::read(format!("/proc/{}/stat", pid.raw())).map(|text| Stat::parse(&text)) {
            Ok(Some(stat)) if stat.is_alive() && stat.group == Some(group) => members.push(pid),
            Ok(Some(_)) => (),
            Err(error) if is_gone(&error) => (),
            Ok(None) | Err(_) => return LiveMembers::Unreadable,
        }
    }
    LiveMembers::These(members)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// What we ask of a line of /proc/pid/stat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub pid: Pid,
    state: u8,
    parent: Option<Pid>,
    group: Option<Pid>,
    threads: u32,
}

impl Stat {
    /// The name may hold spaces and parentheses; what follows the last one is fields.
    pub fn parse(line: &[u8]) -> Option<Stat> {
        let after = line.iter().rposition(|&byte| byte == b')')?;
        let pid = numbers(line).next()?;
        let fields = std::str::from_utf8(line.get(after + 1..)?).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Stat {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: Pid::new(number(1)?),
            group: Pid::new(number(2)?),
            threads: number(17)?.try_into().ok()?,
        })
    }

    /// A process whose first thread has left shows Z and runs on.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }
}

/// The pid that this /proc gives the process behind a pidfd.
pub(super) fn pid_of_pidfd(fd: &OwnedFd) -> Option<Pid> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Pid::new(line.trim().parse().ok()?)
}

/// For kernels without the `children` files.
fn children_by_scan(parent: Pid) -> Option<Vec<Pid>> {
    let mut list = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::new);
        if let Some(pid) = number
            && parent_of(pid) == Some(parent)
        {
            list.push(pid);
        }
    }
    Some(list)
}

fn numbers(list: &[u8]) -> impl Iterator<Item = Pid> {
    list.split(|byte| !byte.is_ascii_digit())
        .filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
        .filter_map(Pid::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as proc(5) has it: state, parent and group, then what is not asked for up to the threads.
    fn line(name: &str, state: char, parent: i32, group: i32, threads: u32) -> Vec<u8> {
        let rest = "0 ".repeat(14);
        format!("7 ({name}) {state} {parent} {group} {rest}{threads} 0 99").into_bytes()
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = Stat::parse(&line("a) S 9 (b)", 'S', 42, 43, 1)).unwrap();
        assert_eq!((stat.pid, stat.parent, stat.group), (Pid::new(7).unwrap(), Pid::new(42), Pid::new(43)));
        assert_eq!(Stat::parse(&line("a", 'S', 1, 0, 1)).unwrap().parent, None);
        assert_eq!(Stat::parse(b"nonsense"), None);
        assert_eq!(Stat::parse(b"7 (a) S 42 7"), None);
    }

    #[test]
    fn a_zombie_with_further_threads_is_alive() {
        let alive = |state, threads| Stat::parse(&line("a", state, 2, 2, threads)).unwrap().is_alive();
        assert_eq!([alive('S', 1), alive('T', 1), alive('Z', 2)], [true; 3]);
        assert_eq!([alive('Z', 1), alive('X', 0)], [false; 2]);
    }

    #[test]
    fn lists_of_children_are_numbers_and_nothing_else() {
        assert_eq!(
            numbers(b"12 345 1 0 99999999999 ").collect::<Vec<_>>(),
            [Pid::new(12), Pid::new(345)].map(Option::unwrap)
        );
    }
}
