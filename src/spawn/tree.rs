//! Finding and ending whole process trees.
//!
//! A tree is everything that came of one run: the leader's group and session, and whatever left them. Members are
//! known by the mark that they inherited ([`super::mark`]); one that changed its limits is known by its parentage.
//! Where each run has a cgroup of its own, that comes before all of these ([`super::cgroup`]). As the server is a child subreaper, every member is a descendant of the server, so a stranger that got a recycled
//! process id is never taken for one. Signals go through a pidfd that was opened before the last look.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::Group;
use super::mark::{self, MarkRange};

/// Which processes are meant. All conditions that are set widen it.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Those in this cgroup and below it. Nothing leaves a cgroup by accident, so where there is one it has them all.
    pub group: Option<Group>,
    /// Those with a mark in this range.
    pub marks: Option<MarkRange>,
    /// Those below, or in the session or group of, these leaders, unless they have another run's mark.
    pub leaders: Vec<i32>,
    /// The leaders are certainly unreaped, so that what belongs to them need not be below this process.
    pub leaders_are_fresh: bool,
    /// Everything that came of this process, whatever it carries; not the guard.
    pub descendants: bool,
    /// Of these, only the ones that hold one of these pipes or terminals open.
    pub holding: Option<HashSet<Stream>>,
}

impl Scope {
    /// The cgroup, where all of it is meant.
    fn whole_group(&self) -> Option<&Group> {
        self.group.as_ref().filter(|_| self.holding.is_none())
    }

    /// Whether anything lives in the cgroup, where all of it is meant. Waits for nothing.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        self.whole_group().is_some_and(Group::is_populated)
    }

    /// Kills what lives in the cgroup; true if it dies of that by itself.
    fn kill_group(&self) -> bool {
        self.is_populated() && self.whole_group().is_some_and(Group::kill)
    }
}

/// A pipe, a socket or a terminal, by what `/proc/PID/fd` calls it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stream(pub String);

impl Borrow<str> for Stream {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What is known of a process from one look at `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) parent: i32,
    group: i32,
    session: i32,
    /// Clock ticks since boot: with the id, the identity of a process.
    pub(super) started: u64,
    dead: bool,
    mark: Option<u64>,
}

/// A member of a tree.
#[derive(Debug)]
pub struct Member {
    group: i32,
    pidfd: OwnedFd,
}

impl Member {
    /// Takes hold of a process, unless its id has been given away since the look.
    fn open(pid: i32, seen: &Seen) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let now = stat(pid)?;
        (now.started == seen.started).then_some(Self { group: now.group, pidfd })
    }

    /// Its process group at the time of the look.
    #[must_use]
    pub fn group(&self) -> i32 {
        self.group
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }
}

/// One look at all processes.
#[derive(Debug)]
pub struct Census {
    seen: HashMap<i32, Seen>,
    children: HashMap<i32, Vec<i32>>,
    /// Everything below this process.
    descendants: HashSet<i32>,
    /// Orphans among the descendants stay descendants.
    adopts: bool,
}

impl Census {
    /// Looks. Reads `/proc`; for blocking threads.
    #[must_use]
    pub fn take() -> Self {
        let mut seen = look();
        let children = children(&seen);
        let own = std::process::id().cast_signed();
        let mut descendants = below(&children, [own]);
        descendants.remove(&own);
        let adopts = adopts_orphans();
        for (pid, process) in &mut seen {
            // Only descendants can be ours while this process adopts orphans; without that, all are looked at.
            if *pid != own && (!adopts || descendants.contains(pid)) {
                process.mark = mark::limit_of(*pid).filter(|limit| mark::is_mark(*limit));
            }
        }
        Self { seen, children, descendants, adopts }
    }

    /// A look that began after the call. Calls that come together share one.
    pub async fn after_now() -> Arc<Self> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        static RUNNING: tokio::sync::Mutex<(u64, Option<Arc<Census>>)> =
            tokio::sync::Mutex::const_new((0, None));
        let started_before = STARTED.load(Ordering::SeqCst);
        let mut latest = RUNNING.lock().await;
        if let (number, Some(census)) = &*latest
            && *number > started_before
        {
            return Arc::clone(census);
        }
        let number = STARTED.fetch_add(1, Ordering::SeqCst) + 1;
        let census = tokio::task::spawn_blocking(|| Arc::new(Self::take())).await;
        let census = census.unwrap_or_else(|_| Arc::new(Self::nobody()));
        *latest = (number, Some(Arc::clone(&census)));
        census
    }

    fn nobody() -> Self {
        Self { seen: HashMap::new(), children: HashMap::new(), descendants: HashSet::new(), adopts: true }
    }

    /// The members of a scope that were alive at the look and are still.
    #[must_use]
    pub fn members(&self, scope: &Scope) -> Vec<Member> {
        let own = std::process::id().cast_signed();
        let grouped: HashSet<i32> = scope.group.iter().flat_map(Group::pids).collect();
        let leads = |id: &i32| scope.leaders.contains(id);
        let is_root = |pid: &i32, process: &Seen| {
            if grouped.contains(pid) {
                return true;
            }
            if *pid == own || (self.adopts && !self.descendants.contains(pid)) {
                return false;
            }
            if scope.descendants && self.descendants.contains(pid) && *pid != super::guard::pid() {
                return true;
            }
            match process.mark {
                Some(mark) => scope.marks.is_some_and(|range| range.contains(mark)),
                None => {
                    let related = leads(pid) || leads(&process.session) || leads(&process.group);
                    related && (scope.leaders_are_fresh || self.descendants.contains(pid))
                }
            }
        };
        let roots = self.seen.iter().filter(|(pid, process)| is_root(pid, process)).map(|(pid, _)| *pid);
        below(&self.children, roots)
            .into_iter()
            .filter_map(|pid| Some((pid, self.seen.get(&pid)?)))
            .filter(|(_, process)| !process.dead)
            .filter(|(pid, _)| scope.holding.as_ref().is_none_or(|streams| holds(*pid, streams)))
            .filter_map(|(pid, process)| Member::open(pid, process))
            .collect()
    }
}

/// Kills until nobody is left, or the time is over. Blocks.
///
/// One pass is not enough: a member may have forked while the list was being made. While a cgroup does the killing, no
/// list is made.
pub fn kill_all(scope: &Scope, limit: Duration) {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        let is_last = Instant::now() >= deadline;
        let is_left = (scope.kill_group() && !is_last) || kill_members(scope) || scope.is_populated();
        if is_last || !is_left {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Kills the members that one look finds; false if there are none.
fn kill_members(scope: &Scope) -> bool {
    let members = Census::take().members(scope);
    members.iter().for_each(|member| member.signal(Signal::KILL));
    !members.is_empty()
}

/// Sends a signal to one process group.
pub fn signal_group(group: i32, signal: Signal) -> bool {
    match Pid::from_raw(group) {
        Some(pid) if group > 1 => rustix::process::kill_process_group(pid, signal).is_ok(),
        _ => false,
    }
}

/// What `/proc/PID/fd` calls an open pipe.
#[must_use]
pub fn stream_of(fd: impl std::os::fd::AsFd) -> Option<Stream> {
    let stat = rustix::fs::fstat(fd).ok()?;
    Some(Stream(format!("pipe:[{}]", stat.st_ino)))
}

/// What `/proc/PID/fd` calls a socket.
#[must_use]
pub fn socket_stream(inode: u32) -> Stream {
    Stream(format!("socket:[{inode}]"))
}

/// What `/proc/PID/fd` calls the program's end of a terminal.
///
/// # Errors
/// When the descriptor is no terminal.
pub fn terminal_stream(program_end: impl std::os::fd::AsFd) -> std::io::Result<Stream> {
    let name = rustix::termios::ttyname(program_end, Vec::new())?;
    Ok(Stream(name.to_string_lossy().into_owned()))
}

/// Whether orphans below this process stay below it.
pub(super) fn adopts_orphans() -> bool {
    std::process::id() == 1 || rustix::process::child_subreaper().is_ok_and(|set| set.is_some())
}

/// The processes that hold a stream open, as far as this one may see it. Reads `/proc`; for blocking threads.
#[must_use]
pub fn holders(stream: &Stream) -> Vec<i32> {
    let streams = HashSet::from([stream.clone()]);
    pids().filter(|pid| holds(*pid, &streams)).collect()
}

/// Whether a process holds a stream open.
#[must_use]
pub fn is_holder(pid: i32, stream: &Stream) -> bool {
    holds(pid, &HashSet::from([stream.clone()]))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds(pid: i32, streams: &HashSet<Stream>) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| target.to_str().is_some_and(|target| streams.contains(target)))
}

fn look() -> HashMap<i32, Seen> {
    pids().filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// Reads `/proc/PID/stat`. The name in it may hold anything, so fields are counted from its last parenthesis.
pub(super) fn stat(pid: i32) -> Option<Seen> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = bytes.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(&bytes[after_name..]).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let started = fields.nth(15)?.parse().ok()?;
    Some(Seen { parent, group, session, started, dead: matches!(state, "Z" | "X"), mark: None })
}

fn children(seen: &HashMap<i32, Seen>) -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, process) in seen {
        children.entry(process.parent).or_default().push(*pid);
    }
    children
}

/// The roots and everything below them.
fn below(children: &HashMap<i32, Vec<i32>>, roots: impl IntoIterator<Item = i32>) -> HashSet<i32> {
    let mut waiting: Vec<i32> = roots.into_iter().collect();
    let mut found = HashSet::new();
    while let Some(pid) = waiting.pop() {
        if found.insert(pid) {
            waiting.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}
