use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::Entry;
use super::file::AppendedFile;
use crate::config::AuditTarget;

/// What is written at a time.
const BATCH_BYTES: usize = 256 << 10;

/// How many entries the writer is done with, and news of it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    done: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    fn add(&self, count: u64) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) += count;
        self.changed.notify_all();
    }

    /// Waits, within the limit, until it is done with so many; false if it is not.
    pub(super) fn reached(&self, count: u64, limit: Duration) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(done, limit, |done| *done < count);
        let (done, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *done >= count
    }
}

/// Entries that are not in the log.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The queue was full.
    pub(super) queue: AtomicU64,
    /// They could not be written.
    pub(super) writing: AtomicU64,
}

impl Losses {
    pub(super) fn total(&self) -> u64 {
        self.queue.load(Ordering::Relaxed) + self.writing.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(AppendedFile),
}

/// Writes what comes, in a thread of its own.
#[derive(Debug)]
pub(super) struct Writer {
    sink: Sink,
    entries: Receiver<Entry>,
    progress: Arc<Progress>,
    losses: Arc<Losses>,
    /// Losses that the log tells of.
    told: u64,
}

impl Writer {
    pub(super) fn open(
        target: &AuditTarget,
        entries: Receiver<Entry>,
        progress: Arc<Progress>,
        losses: Arc<Losses>,
    ) -> io::Result<Self> {
        let sink = match target {
            AuditTarget::Stderr => Sink::Stderr,
            AuditTarget::File(path) => Sink::File(AppendedFile::open(path)?),
        };
        Ok(Self { sink, entries, progress, losses, told: 0 })
    }

    /// Until nobody can record any more.
    pub(super) fn run(mut self) {
        while let Ok(first) = self.entries.recv() {
            let (mut batch, mut count) = (String::new(), 0);
            let mut next = Some(first);
            while let Some(entry) = next {
                batch.push_str(&entry.line());
                count += 1;
                next = if batch.len() < BATCH_BYTES { self.entries.try_recv().ok() } else { None };
            }
            self.write(batch, count);
            self.progress.add(count);
        }
    }

    fn write(&mut self, mut batch: String, count: u64) {
        let lost = self.losses.total();
        if lost > self.told {
            batch.push_str(&Entry::new("audit.lost").plain("count", lost - self.told).line());
        }
        let outcome = match &mut self.sink {
            Sink::Stderr => io::stderr().lock().write_all(batch.as_bytes()),
            Sink::File(file) => file.write(batch.as_bytes()),
        };
        match outcome {
            Ok(()) if lost > self.told => {
                tracing::warn!(count = lost - self.told, "the audit log lacks entries: they came too fast");
                self.told = lost;
            }
            Ok(()) => {}
            Err(error) => {
                self.losses.writing.fetch_add(count, Ordering::Relaxed);
                tracing::error!(%error, count, "the audit log cannot be written");
            }
        }
    }
}
