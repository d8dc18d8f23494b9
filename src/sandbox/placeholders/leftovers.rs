//! Removes placeholders that could not be removed at once: by the owner's thread while the server lives, by the guard
//! after it.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::journal::{self, Record};
use super::spot::{self, Cleared};
use super::{Shared, Use};

/// Pauses between two tries grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(10));
/// How long the guard goes on trying.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum Job {
    /// Uses of a lease that was dropped.
    GiveBack(Vec<Use>),
    /// A placeholder to try again.
    Clear(Record),
}

/// Starts the owner's thread, which ends after the last sender.
pub(super) fn start(shared: Arc<Shared>) -> Sender<Job> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("placeholders".to_owned());
    if let Err(error) = thread.spawn(move || work(&shared, &receiver)) {
        tracing::warn!(%error, "placeholders that cannot be removed at once stay until the server ends");
    }
    sender
}

fn work(shared: &Shared, jobs: &Receiver<Job>) {
    let mut waiting: Vec<Record> = Vec::new();
    let mut pause = PAUSES.0;
    loop {
        let limit = if waiting.is_empty() { Duration::MAX } else { pause };
        match jobs.recv_timeout(limit) {
            Ok(job) => {
                pause = PAUSES.0;
                match job {
                    Job::GiveBack(uses) => {
                        waiting.extend(uses.into_iter().filter_map(|taken| shared.give_back(taken)))
                    }
                    Job::Clear(record) => waiting.push(record),
                }
            }
            Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(PAUSES.1),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        waiting = waiting.into_iter().filter_map(|record| try_again(shared, record)).collect();
    }
}

fn try_again(shared: &Shared, record: Record) -> Option<Record> {
    let path = record.path.clone();
    shared.clear(record, &path)
}

/// Removes all placeholders of a journal whose server has ended. Blocks for a few seconds at most; what somebody else
/// uses is left to them.
pub fn sweep(journal: &File) {
    let deadline = Instant::now() + LIMIT;
    let mut paths = journal::paths(journal);
    loop {
        paths.retain(|path| matches!(spot::clear(path), Cleared::NotYet));
        if paths.is_empty() {
            return journal::discard(journal);
        }
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(PAUSES.0);
    }
}
