//! Which snapshots there are, and one capture for all who wait for the same.
//!
//! One table serves the whole server, so that one limit counts for all; each session sees its own part of it and takes
//! it along when it ends. Within the lock nothing waits and nothing is captured.
//!
//! A capture is a future that those share who wait for it. When the last of them is gone it is dropped, which kills the
//! shell, and counts as no attempt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::error::{CaptureError, Fallback};
use super::restore::Snapshot;
use crate::protocol::process::ExecParams;

/// Snapshots and failures that a session keeps.
const OF_A_SESSION: usize = 16;
/// Captures that a key gets.
const ATTEMPTS: u32 = 3;
/// The least time between two of them.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);
/// Captures that run at a time, each of which may hold what [`super::records::MAX_OUTPUT`] says.
const AT_A_TIME: usize = 32;

/// What snapshots are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// Equal for starts that may share a snapshot. `None` without a request for one.
    #[must_use]
    pub fn of(exec: &ExecParams) -> Option<Self> {
        let request = exec.shell_snapshot.as_ref()?;
        // As a value, so that maps are in order.
        let parts = json!([request, exec.arg0, exec.cwd, exec.env_policy, exec.sandbox]);
        Some(Self(Sha256::digest(parts.to_string()).into()))
    }
}

/// What a start that asked for a snapshot gets.
#[derive(Debug, Clone)]
pub enum Answer {
    /// One that was there, or that another start's capture made.
    Restored(Arc<Snapshot>),
    /// One from the capture that this start asked for.
    Captured(Arc<Snapshot>),
    /// None.
    Fallback(Fallback),
}

type Outcome = Result<Arc<Snapshot>, CaptureError>;
type Flight = BoxFuture<'static, Outcome>;

/// The snapshots of all sessions of a server.
#[derive(Debug)]
pub struct SnapshotCache {
    max_bytes: usize,
    running: Semaphore,
    table: Mutex<Table>,
}

/// The snapshots of one session; they go with it.
#[derive(Debug)]
pub struct SessionSnapshots {
    cache: Arc<SnapshotCache>,
    session: u64,
    ever_captured: AtomicBool,
}

type Id = (u64, Key);

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<Id, Slot>,
    /// Counts uses, so that their order is known.
    uses: u64,
}

#[derive(Debug, Default)]
struct Slot {
    used: u64,
    failures: Failures,
    state: SlotState,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Empty,
    /// `begun` tells this capture from a later one of the same key.
    Running {
        flight: WeakShared<Flight>,
        begun: u64,
    },
    Ready(Arc<Snapshot>),
}

/// The failed captures of a key.
#[derive(Debug, Default)]
struct Failures {
    captures: u32,
    spent: bool,
    last: Option<(Instant, CaptureError)>,
}

impl Failures {
    fn add(&mut self, error: CaptureError, now: Instant) {
        self.captures += 1;
        // Whoever waits that long once must not be made to wait again.
        self.spent = self.captures >= ATTEMPTS || matches!(error, CaptureError::Timeout(_));
        self.last = Some((now, error));
    }

    /// Why no capture may begin now.
    fn forbid(&self, now: Instant) -> Option<Fallback> {
        let (at, last) = self.last.clone()?;
        if self.spent {
            return Some(Fallback::Spent { captures: self.captures, last });
        }
        (now < at + BETWEEN_ATTEMPTS).then_some(Fallback::TooSoon(last))
    }
}

/// What a look at the table leads to.
enum Next {
    Answer(Answer),
    Wait { flight: Shared<Flight>, is_first: bool },
}

impl SnapshotCache {
    /// An empty cache for snapshots of so many bytes together.
    #[must_use]
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { max_bytes, running: Semaphore::new(AT_A_TIME), table: Mutex::default() })
    }

    /// The part of a new session.
    #[must_use]
    pub fn session(self: &Arc<Self>) -> SessionSnapshots {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let session = NEXT.fetch_add(1, Ordering::Relaxed);
        SessionSnapshots { cache: Arc::clone(self), session, ever_captured: AtomicBool::new(false) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A capture, and the note of what came of it.
    async fn fly(
        self: Arc<Self>,
        id: Id,
        begun: u64,
        capture: impl Future<Output = Result<Snapshot, CaptureError>>,
    ) -> Outcome {
        let permit = self.running.acquire().await;
        let outcome = capture.await.and_then(|snapshot| self.fitting(snapshot));
        drop(permit);
        if let Err(error) = &outcome {
            tracing::info!(reason = error.word(), %error, "a shell snapshot could not be captured");
        }
        self.table().settle(id, begun, &outcome, self.max_bytes);
        outcome
    }

    fn fitting(&self, snapshot: Snapshot) -> Outcome {
        if snapshot.size() > self.max_bytes {
            let what = "the snapshot (snapshot.cache_bytes)";
            return Err(CaptureError::TooLarge { what, limit: self.max_bytes });
        }
        Ok(Arc::new(snapshot))
    }
}

impl SessionSnapshots {
    /// The snapshot of a key: the one that is there, or what a capture makes, this start's own or one that runs already.
    /// Cancel-safe: a capture that nobody waits for any more is killed, and was none.
    pub async fn obtain<C>(&self, key: Key, capture: impl FnOnce() -> C) -> Answer
    where
        C: Future<Output = Result<Snapshot, CaptureError>> + Send + 'static,
    {
        let (flight, is_first) = match self.look((self.session, key), capture) {
            Next::Answer(answer) => return answer,
            Next::Wait { flight, is_first } => (flight, is_first),
        };
        match flight.await {
            Ok(snapshot) if is_first => Answer::Captured(snapshot),
            Ok(snapshot) => Answer::Restored(snapshot),
            Err(error) => Answer::Fallback(Fallback::Failed(error)),
        }
    }

    fn look<C>(&self, id: Id, capture: impl FnOnce() -> C) -> Next
    where
        C: Future<Output = Result<Snapshot, CaptureError>> + Send + 'static,
    {
        let mut table = self.cache.table();
        let begun = table.touch(id);
        let slot = table.slots.entry(id).or_default();
        if let SlotState::Ready(snapshot) = &slot.state {
            return Next::Answer(Answer::Restored(Arc::clone(snapshot)));
        }
        if let SlotState::Running { flight, .. } = &slot.state
            && let Some(flight) = flight.upgrade()
        {
            return Next::Wait { flight, is_first: false };
        }
        if let Some(fallback) = slot.failures.forbid(Instant::now()) {
            return Next::Answer(Answer::Fallback(fallback));
        }
        self.ever_captured.store(true, Ordering::Relaxed);
        let flight = Arc::clone(&self.cache).fly(id, begun, capture()).boxed().shared();
        if let Some(flight) = flight.downgrade() {
            slot.state = SlotState::Running { flight, begun };
        }
        Next::Wait { flight, is_first: true }
    }

    /// Whether a shell has ever run for a snapshot of this session.
    #[must_use]
    pub fn ever_captured(&self) -> bool {
        self.ever_captured.load(Ordering::Relaxed)
    }
}

impl Drop for SessionSnapshots {
    fn drop(&mut self) {
        self.cache.table().slots.retain(|(session, _), _| *session != self.session);
    }
}

impl Table {
    /// Notes a use. A key that is new to its session takes the place of the one that was used least recently.
    fn touch(&mut self, id: Id) -> u64 {
        self.uses += 1;
        let is_full =
            |table: &Self| table.slots.keys().filter(|other| other.0 == id.0).count() >= OF_A_SESSION;
        if !self.slots.contains_key(&id) && is_full(self) {
            let oldest = self.least_used(|other, _| other.0 == id.0);
            oldest.and_then(|oldest| self.slots.remove(&oldest));
        }
        self.slots.entry(id).or_default().used = self.uses;
        self.uses
    }

    /// Notes the end of a capture, unless its place has been given away.
    fn settle(&mut self, id: Id, capture: u64, outcome: &Outcome, max_bytes: usize) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if !matches!(slot.state, SlotState::Running { begun, .. } if begun == capture) {
            return;
        }
        match outcome {
            Ok(snapshot) => {
                slot.state = SlotState::Ready(Arc::clone(snapshot));
                self.shrink(max_bytes, id);
            }
            Err(error) => {
                slot.state = SlotState::Empty;
                slot.failures.add(error.clone(), Instant::now());
            }
        }
    }

    /// Drops the snapshots used least recently, of any session, until the rest fits; `kept` fits alone.
    fn shrink(&mut self, max_bytes: usize, kept: Id) {
        let is_ready = |slot: &Slot| matches!(slot.state, SlotState::Ready(_));
        while self.bytes() > max_bytes {
            let Some(oldest) = self.least_used(|id, slot| *id != kept && is_ready(slot)) else { return };
            self.slots.remove(&oldest);
        }
    }

    fn bytes(&self) -> usize {
        let size = |slot: &Slot| match &slot.state {
            SlotState::Ready(snapshot) => snapshot.size(),
            SlotState::Empty | SlotState::Running { .. } => 0,
        };
        self.slots.values().map(size).sum()
    }

    fn least_used(&self, among: impl Fn(&Id, &Slot) -> bool) -> Option<Id> {
        let slots = self.slots.iter().filter(|(id, slot)| among(id, slot));
        slots.min_by_key(|(_, slot)| slot.used).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests;
