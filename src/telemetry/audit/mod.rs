//! The audit log: one line of JSON for everything that somebody did or was refused.
//!
//! Whoever records never waits: lines go through a bounded queue to a thread that writes them. What does not fit is
//! counted, and the log itself says how much is missing.

mod entry;
mod file;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use crate::config::AuditTarget;
pub use entry::Entry;
use writer::{Losses, Message, Writer};

/// Lines that may wait to be written. Each has 16 KiB at most.
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
    queue: SyncSender<Message>,
    losses: Arc<Losses>,
}

impl AuditLog {
    /// Opens the target, and starts the thread that writes.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(target: &AuditTarget) -> Result<Self, AuditError> {
        let (queue, lines) = sync_channel(QUEUE);
        let losses = Arc::new(Losses::default());
        let writer = Writer::open(target, lines, Arc::clone(&losses)).map_err(|source| {
            let path = PathBuf::from(target.to_string());
            AuditError { path, source }
        })?;
        std::thread::spawn(move || writer.run());
        Ok(Self(Some(Arc::new(Shared { queue, losses }))))
    }

    /// Whether anything is recorded.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records an entry; without a log it is not even made. Never waits.
    pub fn record(&self, entry: impl FnOnce() -> Entry) {
        let Some(shared) = &self.0 else { return };
        if shared.queue.try_send(Message::Line(entry().into_line())).is_err() {
            shared.losses.queue.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Entries that are not in the log.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.losses.total())
    }

    /// Waits, within the limit, until everything recorded before is written. It blocks.
    pub fn flush(&self, limit: Duration) {
        let Some(shared) = &self.0 else { return };
        let (done, written) = sync_channel(1);
        if shared.queue.send(Message::Flush(done)).is_ok() {
            // Nobody can be told that the log is stuck but those who miss its end.
            let _ = written.recv_timeout(limit);
        }
    }
}

#[cfg(test)]
mod tests;
