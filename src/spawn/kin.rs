//! Whether a process belongs to one run.

use super::lineage::Lineage;
use super::mark::{self, MarkRange, RunMark};
use super::tree::stat;

/// Everything that comes of one run, known by its first process and by its mark.
#[derive(Debug, Clone, Copy)]
pub struct Kin {
    leader: i32,
    /// With the id, the identity of the first process: ids are given away again.
    started: u64,
    mark: Option<MarkRange>,
}

impl Kin {
    /// Those of a child that is not reaped yet, with the mark that it was started with; none if it cannot be looked at.
    #[must_use]
    pub fn of(leader: i32, mark: RunMark) -> Option<Self> {
        Some(Self { leader, started: stat(leader)?.started, mark: mark.range() })
    }

    /// Whether a process certainly is one of them: below the first one, or without a parent and with their mark. Reads
    /// `/proc`; for blocking threads.
    #[must_use]
    pub fn includes(&self, pid: i32) -> bool {
        match Lineage::of(pid) {
            Lineage::Child(child) => child == self.leader && self.is_leader_still_there(),
            Lineage::Orphan => {
                self.mark.zip(mark::limit_of(pid)).is_some_and(|(own, mark)| own.contains(mark))
            }
            Lineage::Own | Lineage::Stranger | Lineage::Unknown => false,
        }
    }

    fn is_leader_still_there(&self) -> bool {
        stat(self.leader).is_some_and(|seen| seen.started == self.started)
    }
}
