//! The input of one process: writes that are queued, writes that wait, and which writes have been seen.
//!
//! A write goes straight to the descriptor if nothing is ahead of it; what the kernel does not take at once is
//! queued, up to [`QUEUED_WRITES`] and [`QUEUED_BYTES`]; further writes wait unanswered, up to a limit of their
//! connection; beyond that they are refused, and nothing is written until the refused one comes again, so that
//! input never has a hole.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};

use crate::memory::{Held, MemoryBudget};
use crate::protocol::process::WriteStatus;
use crate::spawn::terminal::Terminal;
use crate::spawn::watched::OwnsDescriptor;

/// Writes queued behind what the kernel holds.
const QUEUED_WRITES: usize = 128;
/// Their bytes; one larger write is taken when the queue is empty.
const QUEUED_BYTES: usize = 8 << 20;
/// Write ids remembered per process.
const REMEMBERED_IDS: usize = 4096;

/// Where input goes: the writing end of a pipe, or the server's end of a terminal.
#[derive(Debug)]
pub(super) enum Endpoint {
    Pipe(OwnedFd),
    Terminal(Arc<Terminal>),
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(fd) => fd.as_fd(),
            Self::Terminal(terminal) => terminal.as_fd(),
        }
    }
}

impl AsRawFd for Endpoint {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

// SAFETY: a pipe's end and a terminal each own one descriptor that is never replaced; a terminal is kept alive here.
#[expect(unsafe_code, reason = "the promise that watching a descriptor needs")]
unsafe impl OwnsDescriptor for Endpoint {}

/// How many bytes of waiting writes one connection may hold.
#[derive(Debug)]
pub struct WaitingBudget {
    limit: usize,
    used: AtomicUsize,
}

impl WaitingBudget {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Reservation { budget: Arc::clone(self), bytes })
    }
}

#[derive(Debug)]
struct Reservation {
    budget: Arc<WaitingBudget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What became of a write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// Decided.
    Done(WriteStatus),
    /// It waits for room; dropping the receiver takes it back.
    Waiting(oneshot::Receiver<WriteStatus>),
    /// Refused: nothing of it was written, and nothing will be until it comes again.
    Full,
}

#[derive(Debug)]
struct Waiting {
    id: String,
    bytes: Vec<u8>,
    answers: Vec<oneshot::Sender<WriteStatus>>,
    _room: Reservation,
}

#[derive(Debug, Default)]
struct Inner {
    endpoint: Option<Arc<AsyncFd<Endpoint>>>,
    queue: VecDeque<Vec<u8>>,
    /// Of the first in the queue, how much the kernel has taken.
    taken: usize,
    queued_bytes: usize,
    waiting: VecDeque<Waiting>,
    closing: bool,
    accepted: RememberedIds,
    refused: Option<String>,
    /// What is queued and what waits, as a part of all there is.
    memory: Held,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Stdin {
    inner: Mutex<Inner>,
    /// The queue has become non-empty.
    pub(super) queued: Notify,
}

impl Stdin {
    pub(super) fn new(endpoint: Option<Arc<AsyncFd<Endpoint>>>, memory: &Arc<MemoryBudget>) -> Self {
        let inner = Inner { endpoint, memory: memory.hold(0), ..Inner::default() };
        Self { inner: Mutex::new(inner), queued: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, id: &str, bytes: Vec<u8>, budget: &Arc<WaitingBudget>) -> WriteOutcome {
        let mut inner = self.inner();
        if inner.accepted.contains(id) {
            return WriteOutcome::Done(WriteStatus::Accepted);
        }
        if inner.endpoint.is_none() || inner.closing {
            return WriteOutcome::Done(WriteStatus::StdinClosed);
        }
        if inner.refused.as_deref().is_some_and(|refused| refused != id) {
            return WriteOutcome::Full;
        }
        inner.refused = None;
        let (answer, receiver) = oneshot::channel();
        if let Some(same) = inner.waiting.iter_mut().find(|waiting| waiting.id == id) {
            same.answers.push(answer);
            return WriteOutcome::Waiting(receiver);
        }
        inner.forget_abandoned();
        if inner.has_room(bytes.len()) {
            let status = inner.accept(id, bytes);
            if !inner.queue.is_empty() {
                self.queued.notify_one();
                inner.count();
            }
            return WriteOutcome::Done(status);
        }
        match budget.reserve(bytes.len()) {
            Some(room) => {
                let id = id.to_owned();
                inner.waiting.push_back(Waiting { id, bytes, answers: vec![answer], _room: room });
                inner.count();
                WriteOutcome::Waiting(receiver)
            }
            None => {
                inner.refused = Some(id.to_owned());
                WriteOutcome::Full
            }
        }
    }

    /// Ends the input after everything accepted. False if it has ended already.
    pub(super) fn close_after_queue(&self) -> bool {
        let mut inner = self.inner();
        if inner.endpoint.is_none() || inner.closing {
            return false;
        }
        inner.closing = true;
        inner.close_if_done();
        true
    }

    /// Ends the input at once: nobody can read it any more.
    pub(super) fn abandon(&self) {
        self.inner().end();
    }

    pub(super) fn is_open(&self) -> bool {
        let inner = self.inner();
        inner.endpoint.is_some() && !inner.closing
    }

    /// The descriptor, while there is something queued for it.
    pub(super) fn pending(&self) -> Option<Arc<AsyncFd<Endpoint>>> {
        let inner = self.inner();
        if inner.queue.is_empty() { None } else { inner.endpoint.clone() }
    }

    /// Writes queued input until the kernel takes no more (`WouldBlock`) or all is written.
    pub(super) fn flush(&self) -> io::Result<()> {
        let mut inner = self.inner();
        loop {
            match inner.write_front() {
                Ok(true) => {
                    inner.admit_waiting();
                    inner.count();
                }
                Ok(false) => {
                    inner.close_if_done();
                    return Ok(());
                }
                Err(Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(_) => {
                    inner.end();
                    return Ok(());
                }
            }
        }
    }
}

impl Inner {
    fn has_room(&self, bytes: usize) -> bool {
        if !self.waiting.is_empty() {
            return false;
        }
        self.fits(bytes)
    }

    /// Whether a write may be queued: at least one always, so that input goes on.
    fn fits(&self, bytes: usize) -> bool {
        self.queue.is_empty()
            || (!self.memory.is_budget_full()
                && self.queue.len() < QUEUED_WRITES
                && self.queued_bytes + bytes <= QUEUED_BYTES)
    }

    /// Tells everybody else how much is held here.
    fn count(&mut self) {
        let waiting: usize = self.waiting.iter().map(|waiting| waiting.bytes.len()).sum();
        self.memory.resize(self.queued_bytes + waiting);
    }

    fn accept(&mut self, id: &str, bytes: Vec<u8>) -> WriteStatus {
        if !bytes.is_empty() {
            let ahead = !self.queue.is_empty();
            self.queued_bytes += bytes.len();
            self.queue.push_back(bytes);
            if !ahead {
                match self.write_front() {
                    Ok(_) | Err(Errno::AGAIN) => {}
                    Err(_) => {
                        self.end();
                        return WriteStatus::StdinClosed;
                    }
                }
            }
        }
        self.accepted.add(id);
        WriteStatus::Accepted
    }

    /// Writes some of the first queued write; false if the queue is empty.
    fn write_front(&mut self) -> Result<bool, Errno> {
        let (Some(front), Some(endpoint)) = (self.queue.front(), &self.endpoint) else { return Ok(false) };
        let rest = &front[self.taken..];
        let count = match rustix::io::write(endpoint.get_ref(), rest) {
            Err(Errno::INTR) => 0,
            other => other?,
        };
        self.queued_bytes -= count;
        self.taken += count;
        if count == rest.len() {
            self.queue.pop_front();
            self.taken = 0;
        }
        Ok(true)
    }

    /// Takes back the writes of connections that have gone.
    fn forget_abandoned(&mut self) {
        self.waiting.retain_mut(|waiting| {
            waiting.answers.retain(|answer| !answer.is_closed());
            !waiting.answers.is_empty()
        });
    }

    fn admit_waiting(&mut self) {
        self.forget_abandoned();
        while let Some(next) = self.waiting.pop_front() {
            if !self.fits(next.bytes.len()) {
                self.waiting.push_front(next);
                return;
            }
            self.accepted.add(&next.id);
            self.queued_bytes += next.bytes.len();
            self.queue.push_back(next.bytes);
            for answer in next.answers {
                let _ = answer.send(WriteStatus::Accepted);
            }
        }
    }

    fn close_if_done(&mut self) {
        if self.closing && self.queue.is_empty() && self.waiting.is_empty() {
            self.endpoint = None;
        }
    }

    fn end(&mut self) {
        self.endpoint = None;
        self.queue = VecDeque::new();
        (self.taken, self.queued_bytes) = (0, 0);
        for waiting in self.waiting.drain(..) {
            for answer in waiting.answers {
                let _ = answer.send(WriteStatus::StdinClosed);
            }
        }
        self.count();
    }
}

/// The newest accepted write ids. Long ones are remembered by their digest.
#[derive(Debug, Default)]
struct RememberedIds {
    known: HashSet<Arc<[u8]>>,
    order: VecDeque<Arc<[u8]>>,
}

impl RememberedIds {
    fn key(id: &str) -> Arc<[u8]> {
        // The mark keeps an id that spells a digest apart from the id that has it.
        if id.len() < 64 {
            id.as_bytes().into()
        } else {
            [&Sha256::digest(id)[..], &[0xff; 32][..]].concat().into()
        }
    }

    fn contains(&self, id: &str) -> bool {
        !self.known.is_empty() && self.known.contains(&Self::key(id))
    }

    fn add(&mut self, id: &str) {
        let key = Self::key(id);
        if self.known.insert(Arc::clone(&key)) {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_4096_ids_are_remembered() {
        let mut ids = RememberedIds::default();
        for number in 0..REMEMBERED_IDS {
            ids.add(&number.to_string());
        }
        assert!(ids.contains("0") && ids.contains("4095") && !ids.contains("4096"));
        ids.add("4096");
        assert!(!ids.contains("0") && ids.contains("1"));
        let long = "x".repeat(1 << 20);
        ids.add(&long);
        assert!(ids.contains(&long) && !ids.contains(&long[1..]));
    }

    #[test]
    fn a_budget_is_given_back() {
        let budget = WaitingBudget::new(10);
        let held = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none());
        drop(held);
        assert!(budget.reserve(10).is_some());
    }
}
