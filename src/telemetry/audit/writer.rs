use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use super::Entry;
use super::file::AppendedFile;
use crate::config::AuditTarget;

/// What is written at a time.
const BATCH_BYTES: usize = 256 << 10;

/// What comes through the queue.
#[derive(Debug)]
pub(super) enum Message {
    Line(String),
    /// Answer when all before is written.
    Flush(SyncSender<()>),
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
    lines: Receiver<Message>,
    losses: Arc<Losses>,
    /// Losses that the log tells of.
    told: u64,
}

impl Writer {
    pub(super) fn open(
        target: &AuditTarget,
        lines: Receiver<Message>,
        losses: Arc<Losses>,
    ) -> io::Result<Self> {
        let sink = match target {
            AuditTarget::Stderr => Sink::Stderr,
            AuditTarget::File(path) => Sink::File(AppendedFile::open(path)?),
        };
        Ok(Self { sink, lines, losses, told: 0 })
    }

    /// Until nobody can record any more.
    pub(super) fn run(mut self) {
        while let Ok(first) = self.lines.recv() {
            let (mut batch, mut count, mut flushes) = (String::new(), 0, Vec::new());
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Line(line) => {
                        batch.push_str(&line);
                        count += 1;
                    }
                    Message::Flush(done) => flushes.push(done),
                }
                next = if batch.len() < BATCH_BYTES { self.lines.try_recv().ok() } else { None };
            }
            self.write(batch, count);
            for done in flushes {
                // Who has waited in vain is gone.
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self, mut batch: String, count: u64) {
        let lost = self.losses.total();
        if lost > self.told {
            batch.push_str(&Entry::new("audit.lost").plain("count", lost - self.told).into_line());
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
