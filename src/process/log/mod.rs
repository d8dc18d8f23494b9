//! The output log of one process: the only buffer between its streams and everybody who wants its output.
//!
//! New chunks are kept in memory (at most [`MEMORY_BYTES`] a process, 64 MiB for all of a server); what
//! leaves memory goes to the spool file, and what falls out of the spool is counted as lost. A chunk that nobody has
//! seen yet may still grow, so output that waits is joined.

mod event;
mod leaving;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

pub use self::event::{Chunk, Event, Exit, Page, Status, Taken};
use self::state::{Cursor, State};
use super::budget::OutputBudget;
use super::denial::DenialWatch;
use super::feed::Feed;
use super::spool::Spool;
use crate::memory::MemoryBudget;
use crate::protocol::process::{ExecOutputStream, ProcessId};

/// Output kept in memory per process.
pub const MEMORY_BYTES: usize = 1 << 20;
/// How far a process may be ahead of the connection that paces it.
pub const WINDOW_BYTES: u64 = 256 << 10;
/// What a chunk costs beside its bytes; tiny ones are mostly that.
const CHUNK_COST: usize = 96;
/// A chunk that waits does not grow beyond this.
const JOIN_BYTES: usize = 64 << 10;
/// What stays in memory after a spill, so that one spill moves much at once.
const KEPT_BYTES: usize = MEMORY_BYTES / 2;

/// See the module's description.
#[derive(Debug)]
pub struct OutputLog {
    id: ProcessId,
    state: Mutex<State>,
    /// Locked on blocking threads only, and never while `state` is held; `state` may be taken inside it.
    spool: Mutex<Option<Spool>>,
    /// Held while chunks leave memory, which others may want of a log than its actor. Locked before the other two.
    spilling: Mutex<()>,
    news: watch::Sender<u64>,
    /// The pacing feed has taken something, or gone.
    pub(super) room: Notify,
    budget: Arc<OutputBudget>,
}

impl OutputLog {
    /// The empty log of a process that may write so many bytes.
    #[must_use]
    pub fn new(id: ProcessId, budget: Arc<OutputBudget>, output_limit: Option<u64>) -> Arc<Self> {
        let log = Arc::new(Self {
            id,
            state: Mutex::new(State::new(output_limit)),
            spool: Mutex::new(None),
            spilling: Mutex::new(()),
            news: watch::Sender::new(0),
            room: Notify::new(),
            budget,
        });
        log.budget.add_open(&log);
        log
    }

    /// What all buffers of its server share.
    pub(super) fn memory(&self) -> &Arc<MemoryBudget> {
        self.budget.memory()
    }

    /// The process.
    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spool(&self) -> MutexGuard<'_, Option<Spool>> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- writing: the actor alone ----

    /// Adds output, joined to the newest chunk while that has not been seen. Readers learn of it by
    /// [`Self::announce`], so that one look at a stream is told once however many reads it takes. What is beyond the
    /// limit of output is not added. Returns how many bytes may still be added before the pacing feed is a window behind.
    pub(crate) fn append(&self, stream: ExecOutputStream, bytes: &[u8]) -> u64 {
        let mut state = self.state();
        let bytes = state.within_limit(bytes);
        if !bytes.is_empty() {
            let before = state.memory;
            state.append(stream, bytes);
            self.budget.add_memory(state.memory - before);
            self.budget.add_written(bytes.len() as u64);
        }
        state.window()
    }

    /// Whether there was more output than is allowed.
    pub(super) fn is_over_limit(&self) -> bool {
        self.state().over_limit
    }

    /// The program is in a sandbox: from now on its output is looked at for denials.
    pub(super) fn watch_for_denial(&self) {
        self.state().denial = Some(DenialWatch::default());
    }

    /// Tells readers of what was appended.
    pub(crate) fn announce(self: &Arc<Self>) {
        self.tell(self.state());
    }

    /// Records the end of the process. Its number and whether it looks like a denial are found out here.
    pub(super) fn exited(self: &Arc<Self>, exit: Exit) {
        let mut state = self.state();
        let seq = state.number();
        let sandbox_denied = state.denial.as_ref().is_some_and(|watch| watch.denied(exit.code));
        state.exit = Some(Exit { seq, sandbox_denied, ..exit });
        self.tell(state);
    }

    /// Records that nothing more will come.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.state();
        state.closed = Some(state.number());
        self.tell(state);
        self.budget.add_closed(self);
    }

    fn tell(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut wake = Vec::new();
        for cursor in state.cursors.iter_mut().filter(|cursor| !cursor.queued) {
            cursor.queued = true;
            wake.push(Arc::clone(&cursor.feed));
        }
        drop(state);
        for feed in wake {
            feed.push(Arc::clone(self));
        }
        if self.news.receiver_count() > 0 {
            self.news.send_modify(|version| *version += 1);
        }
    }

    /// Whether at most `ahead` bytes wait to be taken by the pacing feed.
    pub(super) fn is_taken(&self, ahead: u64) -> bool {
        let state = self.state();
        let written = state.written();
        state
            .cursors
            .iter()
            .all(|cursor| !cursor.feed.paces() || written - cursor.given_bytes.min(written) <= ahead)
    }

    /// How many bytes may be read from the streams before the pacing feed is a window behind.
    pub(super) fn window(&self) -> u64 {
        self.state().window()
    }

    // ---- reading ----

    /// Reads retained chunks from memory, at least one if there is any, until `max_bytes` would be exceeded.
    #[must_use]
    pub fn page(&self, after: u64, max_bytes: u64) -> Page {
        let mut state = self.state();
        state.seal();
        let lost = state.lost.after(after);
        let after = lost.map_or(after, |lost| lost.last_seq);
        let mut page = Page {
            chunks: Vec::new(),
            limited: false,
            spooled: after < state.spooled_to,
            lost,
            status: state.status(),
        };
        if page.spooled {
            return page;
        }
        let mut sum = 0_u64;
        let start = state.chunks.partition_point(|chunk| chunk.seq <= after);
        for chunk in state.chunks.range(start..) {
            sum = sum.saturating_add(chunk.bytes.len() as u64);
            if sum > max_bytes && !page.chunks.is_empty() {
                page.limited = true;
                break;
            }
            page.chunks.push(chunk.clone());
        }
        page
    }

    /// How many bytes of output can be read after this number. Where some of them are spooled, all that is retained
    /// counts.
    #[must_use]
    pub fn retained_after(&self, after: u64) -> u64 {
        let state = self.state();
        if after < state.spooled_to {
            return state.written() - state.lost.position();
        }
        let newest = state.growing.iter().filter(|(seq, ..)| *seq > after).map(|(.., bytes)| bytes.len());
        let others = state.chunks.iter().rev().take_while(|chunk| chunk.seq > after);
        newest.chain(others.map(|chunk| chunk.bytes.len())).sum::<usize>() as u64
    }

    /// Whether anything newer than this number is gone.
    #[must_use]
    pub fn has_lost_after(&self, after: u64) -> bool {
        self.state().lost.last_seq() > after
    }

    /// Where the process stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state().status()
    }

    /// Changes with every event. Subscribe before looking, so that nothing is missed in between.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    // ---- feeds ----

    /// Lets a feed have the events from now on, or from the first one.
    pub fn watch(self: &Arc<Self>, feed: &Arc<Feed>, from_start: bool) {
        let mut state = self.state();
        let (next, given_bytes) = if from_start { (1, 0) } else { (state.next_seq, state.written()) };
        if state.cursors.iter().any(|cursor| Arc::ptr_eq(&cursor.feed, feed)) {
            return;
        }
        if !from_start {
            // What is there already must not grow into a chunk that the feed would then get a part of again.
            state.seal();
        }
        let queued = next < state.next_seq;
        state.cursors.push(Cursor { feed: Arc::clone(feed), next, given_bytes, queued });
        drop(state);
        if queued {
            feed.push(Arc::clone(self));
        }
    }

    /// Forgets a feed.
    pub fn unwatch(&self, feed: &Arc<Feed>) {
        self.state().cursors.retain(|cursor| !Arc::ptr_eq(&cursor.feed, feed));
        self.room.notify_one();
    }

    /// Takes a feed's next events, at most about `max_bytes` of output, and moves its place.
    pub fn take(&self, feed: &Arc<Feed>, max_bytes: usize) -> Taken {
        let mut state = self.state();
        state.seal();
        let taken = state.take(feed, max_bytes);
        drop(state);
        self.room.notify_one();
        taken
    }

    /// Moves a feed past chunks that it got from the spool.
    pub fn skip_to(&self, feed: &Arc<Feed>, after: u64, bytes: u64) {
        let mut state = self.state();
        if let Some(cursor) = state.cursors.iter_mut().find(|cursor| Arc::ptr_eq(&cursor.feed, feed)) {
            cursor.next = cursor.next.max(after + 1);
            cursor.given_bytes += bytes;
        }
        drop(state);
        self.room.notify_one();
    }
}

impl Drop for OutputLog {
    fn drop(&mut self) {
        let memory = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).memory;
        self.budget.release_memory(memory);
        self.budget.remove_open(self);
    }
}
