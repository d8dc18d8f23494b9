//! What a process came of, by its parents.
//!
//! A process cannot choose its ancestors: what loses its parent is given to this process, as long as that adopts
//! orphans. So a child that this process has started itself and still has to reap, or the lack of any, says where a
//! process belongs. Process ids are given away again, so what was seen is looked at twice, and a parent is never
//! younger than its child.

use super::reaper;
use super::tree::{Seen, adopts_orphans, stat};

/// Looks at a chain of parents that changes while it is looked at.
const TRIES: usize = 3;

/// What a process came of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// It is this process.
    Own,
    /// Of this child, which this process has started and not reaped.
    Child(i32),
    /// Of this process, by a child that has ended.
    Orphan,
    /// Not of this process.
    Stranger,
    /// It has ended, or cannot be told.
    Unknown,
}

impl Lineage {
    /// Looks. Reads `/proc`; for blocking threads.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        for _ in 0..TRIES {
            let Some(chain) = Chain::above(pid) else { continue };
            let lineage = chain.lineage();
            if chain.is_still_true() {
                return lineage;
            }
        }
        Self::Unknown
    }
}

/// A process and its ancestors, up to this process or the first one that there is.
struct Chain(Vec<(i32, Seen)>);

impl Chain {
    fn above(pid: i32) -> Option<Self> {
        let (mut chain, mut next) = (Vec::new(), pid);
        while next != 0 && next != own() {
            let seen = stat(next)?;
            let child = chain.last().map(|(_, child): &(i32, Seen)| child.started);
            if child.is_some_and(|child| child < seen.started) {
                return None;
            }
            chain.push((next, seen));
            next = seen.parent;
        }
        Some(Self(chain))
    }

    fn lineage(&self) -> Lineage {
        match self.0.last() {
            None => Lineage::Own,
            Some((child, seen)) if seen.parent == own() => match reaper::is_own_child(*child) {
                true => Lineage::Child(*child),
                false => Lineage::Orphan,
            },
            // Without adoption an orphan of ours looks like a stranger.
            Some(_) if !adopts_orphans() => Lineage::Unknown,
            Some(_) => Lineage::Stranger,
        }
    }

    fn is_still_true(&self) -> bool {
        let same = |seen: &Seen, now: Seen| (seen.started, seen.parent) == (now.started, now.parent);
        self.0.iter().all(|(pid, seen)| stat(*pid).is_some_and(|now| same(seen, now)))
    }
}

fn own() -> i32 {
    std::process::id().cast_signed()
}
