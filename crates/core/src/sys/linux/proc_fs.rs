//! The process table, read from /proc (proc(5)). Nothing here is trusted as it stands: a number from a list is
//! shown to be our child, or the same process as a pidfd, before it is signalled.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use holdfast_wire::ProcessInfo;

use super::pid_counter::{last_number, numbers_since};
use crate::sys::unix::pid::{Pid, exists, group_of};

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

/// Processes, each with its parent.
#[derive(Debug, Default)]
pub struct Listed {
    pairs: Vec<(Pid, Pid)>,
    /// False: a list of children could not be read, and there may be more. That is never to be taken for "no children".
    pub is_complete: bool,
}

impl Deref for Listed {
    type Target = [(Pid, Pid)];

    fn deref(&self) -> &[(Pid, Pid)] {
        &self.pairs
    }
}

impl IntoIterator for Listed {
    type Item = (Pid, Pid);
    type IntoIter = std::vec::IntoIter<(Pid, Pid)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

/// The children that a process's first thread has started, or with `thorough` any of its threads. `None`: the lists
/// cannot be read.
fn listed_children_of(pid: Pid, thorough: bool) -> Option<Vec<Pid>> {
    let tasks = format!("/proc/{pid}/task", pid = pid.raw());
    let list = if !thorough || has_one_thread(&tasks) {
        children_of_thread(&format!("{tasks}/{}", pid.raw()))
    } else {
        children_of_threads(&tasks)
    };
    match list {
        // It has been reaped, and its children have another parent.
        Err(error) if is_gone(&error) && !exists(pid) => Some(Vec::new()),
        list => list.ok(),
    }
}

/// Nearly every process has. A directory has two links, and one for each folder in it.
pub(super) fn has_one_thread(tasks: &str) -> bool {
    fs::metadata(tasks).is_ok_and(|folder| folder.nlink() <= 3)
}

/// The value that a status file has under this name.
pub(super) fn in_status<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn children_of_threads(tasks: &str) -> io::Result<Vec<Pid>> {
    let mut list = Vec::new();
    for task in fs::read_dir(tasks)? {
        let task = format!("{tasks}/{}", task?.file_name().to_string_lossy());
        match children_of_thread(&task) {
            // The thread has ended, and another one has its children.
            Err(error) if is_gone(&error) && fs::metadata(&task).is_err_and(|error| is_gone(&error)) => (),
            children => list.extend(children?),
        }
    }
    Ok(list)
}

fn children_of_thread(task: &str) -> io::Result<Vec<Pid>> {
    // The longest pid, and the space behind it.
    const LONGEST: usize = 8;
    let mut list = Vec::new();
    let mut chunk = [0; 4096];
    let file = File::open(format!("{task}/children"))?;
    loop {
        let count = file.read_at(&mut chunk, list.len() as u64)?;
        list.extend_from_slice(&chunk[..count]);
        // Nearly always all of it is there at once; a list that goes on fills its chunk.
        if count + LONGEST <= chunk.len() {
            return Ok(numbers(&list).collect());
        }
    }
}

/// The children of these processes, each with its parent. Without `thorough` what other threads than the first have
/// started is left out: it shows when its parent has died.
pub fn children_of(parents: &[Pid], thorough: bool) -> Listed {
    let mut found = Listed { pairs: Vec::new(), is_complete: true };
    for &parent in parents {
        match listed_children_of(parent, thorough) {
            Some(children) => found.pairs.extend(children.into_iter().map(|child| (child, parent))),
            None => found.is_complete = false,
        }
    }
    found
}

/// Everything below these processes, each with its parent, parents first. Bounded, since a tree that grows has no end.
pub fn descendants(roots: &[Pid]) -> Listed {
    walk(roots, 65_536)
}

/// [`descendants`], not complete where there are more than `most`; finding that out takes about `most` looks.
pub fn few_descendants(roots: &[Pid], most: usize) -> Listed {
    walk(roots, most)
}

/// Goes on until there are more than `most`.
fn walk(roots: &[Pid], most: usize) -> Listed {
    // Those of another pid namespace are other processes.
    if !is_ours() {
        return Listed::default();
    }
    let mut scanned = None;
    let mut found = Listed { pairs: Vec::new(), is_complete: true };
    let mut next: usize = 0;
    loop {
        if found.pairs.len() > most {
            return Listed { is_complete: false, ..found };
        }
        let listed = || found.pairs.get(next.checked_sub(roots.len())?).map(|&(child, _)| child);
        let Some(parent) = roots.get(next).copied().or_else(listed) else { return found };
        next += 1;
        match listed_children_of(parent, true) {
            Some(children) => found.pairs.extend(children.into_iter().map(|child| (child, parent))),
            None => match scanned.get_or_insert_with(parents_by_scan) {
                Some(all) => found.pairs.extend(all.iter().filter(|&&(_, of)| of == parent)),
                None => found.is_complete = false,
            },
        }
    }
}

/// The name the kernel keeps, also of a zombie, safe to print. Empty where it cannot be read.
fn name(pid: Pid) -> Vec<u8> {
    if !is_ours() {
        return Vec::new();
    }
    let mut bytes = [0; 32];
    let file = File::open(format!("/proc/{}/comm", pid.raw()));
    let length = file.and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
    printable(bytes[..length].strip_suffix(b"\n").unwrap_or(&bytes[..length]))
}

/// Valid UTF-8 without control characters and without those that change the direction of text: a process chooses its
/// own name (prctl(2), PR_SET_NAME), and reports are shown on terminals and to models. What is left out shows as
/// U+FFFD.
fn printable(name: &[u8]) -> Vec<u8> {
    let is_unsafe = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    String::from_utf8_lossy(name).replace(is_unsafe, "\u{fffd}").into_bytes()
}

/// A process as a report names it.
pub fn process_info(pid: Pid) -> ProcessInfo {
    ProcessInfo { pid: pid.raw(), name: name(pid) }
}

/// The parent according to /proc.
pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    Stat::parse(&fs::read(format!("/proc/{}/stat", pid.raw())).ok()?)?.parent
}

/// Where the kernel shows our arguments from, and up to where (arg_start and arg_end of proc(5)).
pub(super) fn own_arguments() -> Option<(usize, usize)> {
    let line = fs::read(format!("/proc/{}/stat", std::process::id())).ok().filter(|_| is_ours())?;
    let after = line.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(line.get(after + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace().skip(45).map(|field| field.parse().ok());
    let (start, end): (usize, usize) = (fields.next()??, fields.next()??);
    (0 < start && start < end).then_some((start, end))
}

/// Whether /proc is there and counts as we do: one of another pid namespace does not.
pub(super) fn is_ours() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.to_str().and_then(|name| name.parse().ok()) == Some(std::process::id()))
}

/// The live members of a group, according to the process table.
#[derive(Debug, PartialEq, Eq)]
pub enum LiveMembers {
    /// The live members; zombies are left out.
    These(Vec<Pid>),
    /// The table cannot be read, or not all of it (hidepid). It is not known that there are none.
    Unreadable,
}

/// Asks the table. The number is the caller's to hold.
pub fn live_members(group: Pid) -> LiveMembers {
    let Ok(entries) = fs::read_dir("/proc") else { return LiveMembers::Unreadable };
    if !is_ours() || hides_others() {
        return LiveMembers::Unreadable;
    }
    let mut looked_up_to = last_number();
    let mut members = Vec::new();
    for entry in entries {
        let Ok(entry) = entry else { return LiveMembers::Unreadable };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::new);
        let Some(pid) = number else { continue };
        match is_live_member(pid, group) {
            Some(true) => members.push(pid),
            Some(false) => (),
            None => return LiveMembers::Unreadable,
        }
    }
    // The folder is read in pieces. Of a chain in which each starts the next one and leaves, none need be in any piece.
    const MOST_LOOKS: u32 = 64;
    for _ in 0..MOST_LOOKS {
        let (Some(from), Some(last)) = (looked_up_to, last_number()) else { break };
        if last <= from || !members.is_empty() {
            break;
        }
        let new = (from.raw() + 1..=last.raw()).filter_map(Pid::new);
        members.extend(new.filter(|&pid| is_live_member(pid, group) == Some(true)));
        looked_up_to = Some(last);
    }
    LiveMembers::These(members)
}

/// Whether /proc may keep the processes of other users from us (proc(5), hidepid).
fn hides_others() -> bool {
    // Certain where process 1 is hidden. That it is visible shows nothing: it may be our own user's.
    if fs::read("/proc/1/stat").is_err() {
        return true;
    }
    if may_see_all() {
        return false;
    }
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return true };
    let options = |line: &str| line.split(" - ").nth(1)?.split(' ').nth(2).map(str::to_owned);
    // The last one is on top.
    let of_proc = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let Some(options) = of_proc.and_then(options) else { return true };
    options
        .split(',')
        .any(|option| option.strip_prefix("hidepid=").is_some_and(|value| !matches!(value, "0" | "off")))
}

/// CAP_SYS_PTRACE, without which a container's root is hidden from, too.
fn may_see_all() -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = in_status(&status, "CapEff").and_then(|set| u64::from_str_radix(set, 16).ok());
    effective.is_some_and(|set| set >> CAP_SYS_PTRACE & 1 == 1)
}

/// The members of a group, zombies included, as far as they are found: by a look at every number given out since
/// `first`, where there are few of them, or else by the table. The number is the caller's to hold.
pub fn found_members(group: Pid, first: Pid) -> Vec<Pid> {
    let is_member = |&pid: &Pid| group_of(pid) == Some(group);
    if let Some(numbers) = numbers_since(first) {
        return numbers.filter(is_member).collect();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::new).filter(is_member).collect()
}

/// None: the table does not say.
fn is_live_member(pid: Pid, group: Pid) -> Option<bool> {
    // getpgid(2) costs a fiftieth of the file.
    if group_of(pid) != Some(group) {
        return Some(false);
    }
    match fs::read(format!("/proc/{}/stat", pid.raw())) {
        Ok(text) => Stat::parse(&text).map(|stat| stat.is_alive() && stat.group == Some(group)),
        Err(error) if is_gone(&error) => Some(false),
        Err(_) => None,
    }
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

/// Whether a process that was listed lives still, in one of its threads at least. True where that is not known.
pub fn is_alive(pid: Pid) -> bool {
    match fs::read(format!("/proc/{}/stat", pid.raw())) {
        Ok(line) => Stat::parse(&line).is_none_or(|stat| stat.is_alive()),
        Err(error) => !is_gone(&error),
    }
}

/// Whether it runs, or would if it had a processor. False where that is not known.
pub fn is_runnable(pid: Pid) -> bool {
    let stat = fs::read(format!("/proc/{}/stat", pid.raw())).ok().and_then(|line| Stat::parse(&line));
    stat.is_some_and(|stat| stat.state == b'R')
}

/// The pid that this /proc gives the process behind a pidfd.
pub(super) fn pid_of_pidfd(fd: &OwnedFd) -> Option<Pid> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Pid::new(line.trim().parse().ok()?)
}

/// All processes, each with its parent: for kernels without the `children` files. `None`: the table cannot be read, or
/// not all of it.
fn parents_by_scan() -> Option<Vec<(Pid, Pid)>> {
    let entries = fs::read_dir("/proc").ok()?;
    if !is_ours() || hides_others() {
        return None;
    }
    let mut list = Vec::new();
    for entry in entries {
        let number = entry.ok()?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::new);
        let Some(pid) = number else { continue };
        match fs::read(format!("/proc/{}/stat", pid.raw())) {
            Ok(line) => list.extend(Stat::parse(&line)?.parent.map(|parent| (pid, parent))),
            Err(error) if is_gone(&error) => (),
            Err(_) => return None,
        }
    }
    Some(list)
}

fn children_by_scan(parent: Pid) -> Option<Vec<Pid>> {
    let of = |&(child, of): &(Pid, Pid)| (of == parent).then_some(child);
    Some(parents_by_scan()?.iter().filter_map(of).collect())
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
    fn members_are_found_by_number_and_by_table() {
        let (own, group) = (Pid::own().unwrap(), crate::sys::own_group().unwrap());
        // From the first number on there may be too many to ask for.
        for first in [own, Pid::new(2).unwrap()] {
            assert!(found_members(group, first).contains(&own), "{first:?}");
        }
        assert!(!found_members(own, own).contains(&own) || group == own);
    }

    #[test]
    fn a_zombie_with_further_threads_is_alive() {
        let alive = |state, threads| Stat::parse(&line("a", state, 2, 2, threads)).unwrap().is_alive();
        assert_eq!([alive('S', 1), alive('T', 1), alive('Z', 2)], [true; 3]);
        assert_eq!([alive('Z', 1), alive('X', 0)], [false; 2]);
    }

    #[test]
    fn names_are_safe_to_print() {
        assert_eq!(printable(b"node"), b"node");
        assert_eq!(printable("caf\u{e9} \u{4f60}".as_bytes()), "caf\u{e9} \u{4f60}".as_bytes());
        assert_eq!(printable(b"a\x1b[2Jb\nc\x7f"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}".as_bytes());
        // The kernel cuts a name after 15 bytes, in the middle of a character too.
        assert_eq!(printable(b"fourteen bytes\xc3"), "fourteen bytes\u{fffd}".as_bytes());
        assert_eq!(printable("a\u{202e}b\u{200b}".as_bytes()), "a\u{fffd}b\u{fffd}".as_bytes());
    }

    #[test]
    fn lists_of_children_are_numbers_and_nothing_else() {
        assert_eq!(
            numbers(b"12 345 1 0 99999999999 ").collect::<Vec<_>>(),
            [Pid::new(12), Pid::new(345)].map(Option::unwrap)
        );
    }
}
