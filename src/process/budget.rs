//! What the output logs of a server may hold together, and who gives way first when that is too much.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::log::OutputLog;
use super::spool::SpoolSettings;
use crate::memory::MemoryBudget;

/// What all logs of a server share: how much they may hold together.
#[derive(Debug)]
pub struct OutputBudget {
    memory_limit: usize,
    memory_used: AtomicUsize,
    /// Of which this is a part.
    memory: Arc<MemoryBudget>,
    pub(super) spool: SpoolSettings,
    pub(super) spool_used: AtomicU64,
    /// Logs of processes that may be written to, by their addresses, which are theirs for as long as they are here.
    open: Mutex<HashMap<usize, Weak<OutputLog>>>,
    /// Logs of closed processes in order of closing: the first to give up spool space.
    closed: Mutex<VecDeque<Weak<OutputLog>>>,
    /// The same, until they have given up memory.
    closed_in_memory: Mutex<VecDeque<Weak<OutputLog>>>,
    pub(super) spool_files: AtomicUsize,
    pub(super) max_spool_files: usize,
    written: AtomicU64,
    lost: AtomicU64,
}

/// What became of the output of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputUsage {
    /// Bytes in memory.
    pub retained: u64,
    /// Bytes on disk, with what describes them.
    pub spooled: u64,
    /// Bytes written by processes until now.
    pub written: u64,
    /// Bytes of them that nobody can read any more, although no holder was given them.
    pub lost: u64,
}

/// Each spool file takes a descriptor, and most of those are for new processes and connections.
fn max_spool_files() -> usize {
    const MOST: u64 = 2048;
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    usize::try_from(descriptors.map_or(MOST, |count| (count / 4).min(MOST))).unwrap_or(0)
}

impl OutputBudget {
    /// A budget with this much memory, as a part of all there is, and these spool settings.
    #[must_use]
    pub fn new(memory_limit: usize, memory: Arc<MemoryBudget>, spool: SpoolSettings) -> Arc<Self> {
        Arc::new(Self {
            memory_limit,
            memory,
            memory_used: AtomicUsize::new(0),
            spool,
            spool_used: AtomicU64::new(0),
            open: Mutex::default(),
            closed: Mutex::default(),
            closed_in_memory: Mutex::default(),
            spool_files: AtomicUsize::new(0),
            max_spool_files: max_spool_files(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// What became of the output until now.
    #[must_use]
    pub fn usage(&self) -> OutputUsage {
        OutputUsage {
            retained: self.memory_used.load(Ordering::Relaxed) as u64,
            spooled: self.spool_used.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    pub(super) fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_lost(&self, bytes: u64) {
        self.lost.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_memory(&self, bytes: usize) {
        self.memory_used.fetch_add(bytes, Ordering::Relaxed);
        self.memory.add(bytes);
    }

    pub(super) fn release_memory(&self, bytes: usize) {
        self.memory_used.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.release(bytes);
    }

    /// Whether all logs use too much together, or all buffers of the server.
    #[must_use]
    pub fn under_pressure(&self) -> bool {
        self.memory_used.load(Ordering::Relaxed) > self.memory_limit || self.memory.is_full()
    }

    /// What all buffers share.
    pub(super) fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    pub(super) fn add_open(&self, log: &Arc<OutputLog>) {
        self.open().insert(address(log), Arc::downgrade(log));
    }

    /// The process has closed, or never started.
    pub(super) fn remove_open(&self, log: &OutputLog) {
        self.open().remove(&address(log));
    }

    fn open(&self) -> MutexGuard<'_, HashMap<usize, Weak<OutputLog>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_closed(&self, log: &Arc<OutputLog>) {
        self.remove_open(log);
        for queue in [&self.closed, &self.closed_in_memory] {
            let mut closed = queue.lock().unwrap_or_else(PoisonError::into_inner);
            while closed.front().is_some_and(|log| log.strong_count() == 0) {
                closed.pop_front();
            }
            closed.push_back(Arc::downgrade(log));
        }
    }

    /// Lets processes give up memory while all use too much together, closed ones first. Blocks on files.
    pub fn relieve(&self) {
        self.relieve_closed();
        if self.under_pressure() {
            let open: Vec<_> = self.open().values().filter_map(Weak::upgrade).collect();
            open.iter().take_while(|_| self.under_pressure()).for_each(|log| log.spill_some(true));
        }
    }

    /// [`Self::relieve`] by closed processes alone.
    pub(super) fn relieve_closed(&self) {
        while self.under_pressure() {
            let next = self.closed_in_memory.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(log) => log.upgrade().iter().for_each(|log| log.spill_some(true)),
                None => return,
            }
        }
    }

    /// The log whose process closed first and that still has spooled output.
    pub(super) fn first_closed(&self) -> Option<Arc<OutputLog>> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(log) = closed.front() {
            match log.upgrade() {
                Some(log) if log.has_spool() => return Some(log),
                _ => closed.pop_front(),
            };
        }
        None
    }
}

fn address(log: &OutputLog) -> usize {
    std::ptr::from_ref(log).addr()
}
