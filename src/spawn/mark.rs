//! The mark by which a process is known to belong to this server, whatever it does to its parentage.
//!
//! A descendant can leave its process group and session (`setsid`) and lose its parent, so neither links it to the
//! run that it came from. What it cannot lose by accident is a resource limit: limits are inherited by every fork
//! and exec and can be read in `/proc/PID/limits`. Linux has not enforced `RLIMIT_RSS` since 2.4.30, so each run
//! gets a soft value of its own for it, too large to mean anything: server, session and run number in one word.
//! A program that sets the limit itself loses the mark; its parentage (see [`super::tree`]) still counts then.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, getrlimit};

const RUN_BITS: u32 = 20;
const SESSION_BITS: u32 = 16;
const SERVER_BITS: u32 = 24;
/// Far above any memory, below the value that means "unlimited".
const BASE: u64 = 0x7 << (RUN_BITS + SESSION_BITS + SERVER_BITS);

/// Marks all processes of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerMark {
    prefix: u64,
    /// False where the hard limit leaves no room for marks.
    usable: bool,
}

/// Marks all processes of one session.
#[derive(Debug)]
pub struct SessionMark {
    server: ServerMark,
    prefix: u64,
    runs: AtomicU32,
}

/// Marks one process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunMark(Option<u64>);

/// The processes whose mark lies in a range: one run's, one session's or one server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRange {
    first: u64,
    last: u64,
}

impl ServerMark {
    /// A mark that other servers on this machine are unlikely to have.
    #[must_use]
    pub fn new() -> Self {
        let random = uuid::Uuid::new_v4().as_u64_pair().1 & ((1 << SERVER_BITS) - 1);
        let prefix = BASE | (random << (RUN_BITS + SESSION_BITS));
        let usable = getrlimit(Resource::Rss).maximum.is_none();
        Self { prefix, usable }
    }

    /// The mark of the next session.
    #[must_use]
    pub fn session(self) -> SessionMark {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed) & ((1 << SESSION_BITS) - 1);
        let prefix = self.prefix | (u64::from(number) << RUN_BITS);
        SessionMark { server: self, prefix, runs: AtomicU32::new(0) }
    }

    /// All marks of this server; none where marks cannot be set.
    #[must_use]
    pub fn range(self) -> Option<MarkRange> {
        let last = self.prefix | ((1 << (RUN_BITS + SESSION_BITS)) - 1);
        self.usable.then_some(MarkRange { first: self.prefix, last })
    }
}

impl Default for ServerMark {
    fn default() -> Self {
        Self::new()
    }
}

impl SessionMark {
    /// The mark of the next run.
    pub fn run(&self) -> RunMark {
        let number = self.runs.fetch_add(1, Ordering::Relaxed) & ((1 << RUN_BITS) - 1);
        RunMark(self.server.usable.then_some(self.prefix | u64::from(number)))
    }

    /// All marks of this session.
    #[must_use]
    pub fn range(&self) -> Option<MarkRange> {
        let last = self.prefix | ((1 << RUN_BITS) - 1);
        self.server.usable.then_some(MarkRange { first: self.prefix, last })
    }
}

impl RunMark {
    /// For what belongs to no run.
    pub fn none() -> Self {
        Self(None)
    }

    /// The soft limit to set in the child.
    pub(super) fn limit(self) -> Option<u64> {
        self.0
    }

    /// This mark alone.
    #[must_use]
    pub fn range(self) -> Option<MarkRange> {
        self.0.map(|mark| MarkRange { first: mark, last: mark })
    }
}

impl MarkRange {
    /// That of a server whose processes have no marks.
    pub(super) const NONE: Self = Self { first: 1, last: 0 };

    /// From the words of a helper's command line.
    pub(super) fn from_bounds(first: u64, last: u64) -> Self {
        Self { first, last }
    }

    pub(super) fn bounds(self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// Whether a mark lies in the range.
    #[must_use]
    pub fn contains(self, mark: u64) -> bool {
        (self.first..=self.last).contains(&mark)
    }
}

/// Whether a limit looks like a mark of any server of this kind.
pub(super) fn is_mark(limit: u64) -> bool {
    limit >> (RUN_BITS + SESSION_BITS + SERVER_BITS) == BASE >> (RUN_BITS + SESSION_BITS + SERVER_BITS)
}

/// The soft `RLIMIT_RSS` of another process, if it is one and is not unlimited.
pub(super) fn limit_of(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find(|line| line.starts_with("Max resident set"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_nest() {
        let server = ServerMark { prefix: BASE | (7 << (RUN_BITS + SESSION_BITS)), usable: true };
        let (one, two) = (server.session(), server.session());
        let (a, b) = (one.run(), one.run());
        let other = two.run().limit().unwrap();
        let (a, b) = (a.limit().unwrap(), b.limit().unwrap());
        assert_ne!(a, b);
        assert!(one.range().unwrap().contains(a) && one.range().unwrap().contains(b));
        assert!(!one.range().unwrap().contains(other));
        assert!(server.range().unwrap().contains(other));
        assert!(is_mark(a) && is_mark(other) && !is_mark(u64::MAX) && !is_mark(1 << 40));
    }

    #[test]
    fn an_ordinary_process_has_no_mark() {
        assert_eq!(limit_of(1).filter(|limit| is_mark(*limit)), None);
        assert_eq!(limit_of(i32::MAX), None);
    }
}
