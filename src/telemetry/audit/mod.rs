//! The audit log: one line of JSON for everything that somebody did or was refused.
//!
//! Whoever records never waits: entries go through a bounded queue to a thread that encodes and writes them. What does
//! not fit is counted, and the log itself says how much is missing.

mod entry;
mod file;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use crate::config::AuditTarget;
pub use entry::Entry;
use writer::{Losses, Progress, Writer};

/// Entries that may wait to be written. Each has 16 KiB at most, beside what those of a connection share.
const QUEUE: usize = 1024;

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {path} (log.audit)")]
pub struct AuditError {
    path: PathBuf,
    source: std::io::Error,
}

/// Takes entries. Without a target it takes none.
#[derive(Debug, Clone, Default)]
pub struct AuditLog(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    queue: SyncSender<Entry>,
    /// Entries that the queue has taken.
    queued: AtomicU64,
    progress: Arc<Progress>,
    losses: Arc<Losses>,
}

impl AuditLog {
    /// Opens the target, and starts the thread that writes.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(target: &AuditTarget) -> Result<Self, AuditError> {
        let (queue, entries) = sync_channel(QUEUE);
        let (progress, losses) = (Arc::<Progress>::default(), Arc::<Losses>::default());
        let writer =
            Writer::open(target, entries, Arc::clone(&progress), Arc::clone(&losses)).map_err(|source| {
                let path = PathBuf::from(target.to_string());
                AuditError { path, source }
            })?;
        std::thread::spawn(move || writer.run());
        Ok(Self(Some(Arc::new(Shared { queue, queued: AtomicU64::new(0), progress, losses }))))
    }

    /// Whether anything is recorded.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records an entry; without a log it is not even made. Never waits.
    pub fn record(&self, entry: impl FnOnce() -> Entry) {
        let Some(shared) = &self.0 else { return };
        match shared.queue.try_send(entry()) {
            Ok(()) => shared.queued.fetch_add(1, Ordering::Release),
            Err(_) => shared.losses.queue.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Entries that are not in the log.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.losses.total())
    }

    /// Waits, within the limit, until the thread is done with everything recorded before; false if it is not. It
    /// blocks.
    pub fn flush(&self, limit: Duration) -> bool {
        self.0
            .as_ref()
            .is_none_or(|shared| shared.progress.reached(shared.queued.load(Ordering::Acquire), limit))
    }
}

#[cfg(test)]
mod tests;
