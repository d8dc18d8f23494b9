//! The output log of one process: the only buffer between its streams and everybody who wants its output.
//!
//! New chunks are kept in memory (at most [`MEMORY_BYTES`] a process, 64 MiB for all of a server); what
//! leaves memory goes to the spool file, and what falls out of the spool is counted as lost. A chunk that nobody has
//! seen yet may still grow, so output that waits is joined.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, watch};

use super::budget::OutputBudget;
use super::denial::DenialWatch;
use super::feed::Feed;
use super::lost::LostLedger;
use super::spool::Spool;
use crate::memory::MemoryBudget;
use crate::protocol::limits::ProcessLimit;
use crate::protocol::process::{ExecOutputStream, ExitReason, LostOutput, OutputTotals, ProcessId};

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

/// Output of one number.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Its number.
    pub seq: u64,
    /// Where it came from.
    pub stream: ExecOutputStream,
    /// The bytes.
    pub bytes: Bytes,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its number.
    pub seq: u64,
    /// 0 to 255, or 128 + N.
    pub code: i32,
    /// Name of the signal that killed it.
    pub signal: Option<&'static str>,
    /// Why it ended.
    pub reason: ExitReason,
    /// The limit that ended it.
    pub limit: Option<ProcessLimit>,
    /// It looks as if a sandbox had denied it something.
    pub sandbox_denied: bool,
    /// Unix milliseconds.
    pub at_ms: u64,
}

/// One numbered event.
#[derive(Debug, Clone)]
pub enum Event {
    /// Output.
    Output(Chunk),
    /// The process has ended.
    Exited(Exit),
    /// Nothing more will come.
    Closed {
        /// The last number.
        seq: u64,
        /// What was written in all.
        totals: OutputTotals,
    },
}

/// The answer to a read from memory.
#[derive(Debug)]
pub struct Page {
    /// Ascending.
    pub chunks: Vec<Chunk>,
    /// A limit ended the page before the newest chunk.
    pub limited: bool,
    /// The next wanted chunk lies in the spool; read it there and ask again.
    pub spooled: bool,
    /// Gone before the first chunk of this page.
    pub lost: Option<LostOutput>,
    /// State at the time of the read.
    pub status: Status,
}

/// Where a process stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// The number that the next event will get.
    pub next_seq: u64,
    /// How it ended, if it has.
    pub exit: Option<Exit>,
    /// Nothing more will come.
    pub closed: bool,
    /// What was written so far.
    pub totals: OutputTotals,
    /// The oldest number that can still be read.
    pub retained_from: u64,
}

/// A feed's place in the log.
#[derive(Debug)]
struct Cursor {
    feed: Arc<Feed>,
    /// The next number to give.
    next: u64,
    /// Output bytes given, counted from the start of the process.
    given_bytes: u64,
    /// In the feed's queue already.
    queued: bool,
}

#[derive(Debug)]
struct State {
    /// In memory, ascending.
    chunks: VecDeque<Chunk>,
    /// The newest chunk while nobody has seen it.
    growing: Option<(u64, ExecOutputStream, BytesMut)>,
    memory: usize,
    next_seq: u64,
    totals: OutputTotals,
    /// Bytes of output that are kept.
    output_limit: u64,
    /// There was more.
    over_limit: bool,
    exit: Option<Exit>,
    closed: Option<u64>,
    /// The newest number in the spool.
    spooled_to: u64,
    /// Output bytes up to `spooled_to`, counted from the start of the process.
    spilled_bytes: u64,
    spool_broken: bool,
    lost: LostLedger,
    /// Of a program in a sandbox.
    denial: Option<DenialWatch>,
    cursors: Vec<Cursor>,
}

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
            state: Mutex::new(State {
                chunks: VecDeque::new(),
                growing: None,
                memory: 0,
                next_seq: 1,
                totals: OutputTotals::default(),
                output_limit: output_limit.unwrap_or(u64::MAX),
                over_limit: false,
                exit: None,
                closed: None,
                spooled_to: 0,
                spilled_bytes: 0,
                spool_broken: false,
                lost: LostLedger::default(),
                denial: None,
                cursors: Vec::new(),
            }),
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

    // ---- leaving memory: on blocking threads ----

    /// Whether chunks should leave memory.
    pub(super) fn wants_spill(&self) -> bool {
        let memory = self.state().memory;
        memory > MEMORY_BYTES || (self.budget.under_pressure() && memory > 0)
    }

    /// Moves the oldest chunks from memory to the spool, or drops them where there is none; closed processes give way
    /// first, other running ones do not: their actors do the same. Blocks on files.
    pub(super) fn spill(&self) {
        self.budget.relieve_closed();
        self.spill_some(false);
    }

    /// [`Self::spill`] of this log alone, of `all` its chunks or as many as necessary.
    pub(super) fn spill_some(&self, all: bool) {
        let _one_at_a_time = self.spilling.lock().unwrap_or_else(PoisonError::into_inner);
        let (batch, before, spool_on) = {
            let mut state = self.state();
            let spool_on = self.budget.spool.per_process > 0 && !state.spool_broken;
            let keep = match (all || self.budget.under_pressure(), spool_on) {
                (true, _) => 0,
                (false, true) => KEPT_BYTES,
                (false, false) => MEMORY_BYTES,
            };
            // Without a spool what leaves memory is lost, and what somebody waits for must not be.
            let not_from = if spool_on { u64::MAX } else { state.untaken_from() };
            (state.oldest(keep, not_from), state.spilled_bytes, spool_on)
        };
        let Some(newest) = batch.last().map(|chunk| chunk.seq) else { return };
        let bytes: u64 = batch.iter().map(|chunk| chunk.bytes.len() as u64).sum();
        let outcome = if spool_on { self.write_to_spool(&batch, before) } else { Spooled::NoRoom };
        let mut state = self.state();
        // A reader may have given the spool up meanwhile, and with it what was just written.
        let broken = spool_on && (state.spool_broken || matches!(outcome, Spooled::Broken));
        if broken {
            tracing::warn!(process = %self.id.shown(), "output cannot be spooled; only the newest is kept from here on");
            state.spool_broken = true;
            drop(state);
            // A hole behind it makes what is spooled unreachable.
            *self.spool() = None;
            state = self.state();
        }
        if !broken && matches!(outcome, Spooled::Written) {
            state.spooled_to = newest;
        } else {
            let mut position = before;
            for chunk in &batch {
                position += chunk.bytes.len() as u64;
                self.budget.add_lost(state.lost.through(chunk.seq, position));
            }
        }
        state.spilled_bytes = before + bytes;
        let freed = state.forget(batch.len());
        drop(state);
        self.budget.release_memory(freed);
    }

    fn write_to_spool(&self, batch: &[Chunk], before: u64) -> Spooled {
        self.budget.make_spool_room(self, batch);
        let mut spool = self.spool();
        if spool.is_none() {
            match Spool::create(&self.budget) {
                Ok(created) => *spool = Some(created),
                Err(error) => {
                    tracing::warn!(process = %self.id.shown(), %error, "no spool file");
                    return Spooled::Broken;
                }
            }
        }
        let Some(spool) = spool.as_mut() else { return Spooled::Broken };
        let outcome = spool.append(batch, before);
        self.lose(spool.take_dropped());
        match outcome {
            Ok(()) => Spooled::Written,
            // Others have it for now.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Spooled::NoRoom,
            Err(error) => {
                tracing::warn!(process = %self.id.shown(), %error, "cannot spool output");
                Spooled::Broken
            }
        }
    }

    fn lose(&self, dropped: Vec<(u64, u64)>) {
        if !dropped.is_empty() {
            let mut state = self.state();
            for (seq, position) in dropped {
                self.budget.add_lost(state.lost.through(seq, position));
            }
        }
    }

    /// Whether anything of this process is spooled. Blocks on files.
    pub(super) fn has_spool(&self) -> bool {
        self.spool().as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// Gives up the oldest spooled output; false if there is none.
    pub(super) fn drop_oldest_spooled(&self) -> bool {
        let mut spool = self.spool();
        let Some(spool) = spool.as_mut() else { return false };
        let dropped_any = spool.drop_oldest();
        self.lose(spool.take_dropped());
        dropped_any
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
        for chunk in state.chunks.iter().skip_while(|chunk| chunk.seq <= after) {
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

    /// Reads chunks back from the spool; like [`Self::page`]. What cannot be read back counts as lost from then on, so
    /// an empty answer means: look at the page again. Blocks on files.
    pub fn read_spool(&self, after: u64, max_bytes: u64) -> Vec<Chunk> {
        let read = match self.spool().as_ref() {
            Some(spool) => spool.read(after, max_bytes),
            None => Ok(Vec::new()),
        };
        read.unwrap_or_else(|error| {
            tracing::error!(process = %self.id.shown(), %error, "spooled output cannot be read back");
            self.abandon_spool();
            Vec::new()
        })
    }

    fn abandon_spool(&self) {
        *self.spool() = None;
        let mut state = self.state();
        let (seq, position) = (state.spooled_to, state.spilled_bytes);
        self.budget.add_lost(state.lost.through(seq, position));
        state.spooled_to = 0;
        state.spool_broken = true;
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

/// What became of chunks that were to leave memory.
enum Spooled {
    Written,
    /// The spool is off or full: they are lost.
    NoRoom,
    /// They are lost, and so will be those after them.
    Broken,
}

/// What a feed got.
#[derive(Debug)]
pub enum Taken {
    /// Events; `more` if others wait already.
    Events {
        /// In order.
        events: Vec<Event>,
        /// Put the log into the queue again.
        more: bool,
    },
    /// The next chunks lie in the spool, after this number.
    Spooled {
        /// Read from here, then [`OutputLog::skip_to`].
        after: u64,
    },
    /// What the feed wants next is gone, or it may not be served from the spool.
    Lagged,
}

impl State {
    fn number(&mut self) -> u64 {
        self.seal();
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    fn within_limit<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let left = usize::try_from(self.output_limit - self.written()).unwrap_or(usize::MAX);
        self.over_limit |= bytes.len() > left;
        &bytes[..bytes.len().min(left)]
    }

    fn append(&mut self, stream: ExecOutputStream, bytes: &[u8]) {
        let total = match stream {
            ExecOutputStream::Stdout => &mut self.totals.stdout,
            ExecOutputStream::Stderr => &mut self.totals.stderr,
            ExecOutputStream::Pty => &mut self.totals.pty,
        };
        *total += bytes.len() as u64;
        if let Some(watch) = &mut self.denial {
            watch.see(stream, bytes);
        }
        self.memory += bytes.len();
        match &mut self.growing {
            Some((_, same, joined)) if *same == stream && joined.len() + bytes.len() <= JOIN_BYTES => {
                joined.extend_from_slice(bytes);
            }
            _ => {
                let seq = self.number();
                self.memory += CHUNK_COST;
                self.growing = Some((seq, stream, BytesMut::from(bytes)));
            }
        }
    }

    /// Ends the growth of the newest chunk: somebody is about to see it.
    fn seal(&mut self) {
        if let Some((seq, stream, bytes)) = self.growing.take() {
            self.chunks.push_back(Chunk { seq, stream, bytes: bytes.freeze() });
        }
    }

    fn written(&self) -> u64 {
        self.totals.stdout + self.totals.stderr + self.totals.pty
    }

    fn window(&self) -> u64 {
        let written = self.written();
        let pacing = self.cursors.iter().filter(|cursor| cursor.feed.paces());
        pacing
            .map(|cursor| WINDOW_BYTES.saturating_sub(written - cursor.given_bytes.min(written)))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The first number that a pacing feed has not taken.
    fn untaken_from(&self) -> u64 {
        let pacing = self.cursors.iter().filter(|cursor| cursor.feed.paces());
        pacing.map(|cursor| cursor.next).min().unwrap_or(u64::MAX)
    }

    fn status(&self) -> Status {
        Status {
            next_seq: self.next_seq,
            exit: self.exit.clone(),
            closed: self.closed.is_some(),
            totals: self.totals,
            retained_from: self.lost.last_seq() + 1,
        }
    }

    /// The oldest chunks, so many that at most `keep` bytes stay, but none from `not_from` on.
    fn oldest(&mut self, keep: usize, not_from: u64) -> Vec<Chunk> {
        self.seal();
        let mut left = self.memory;
        let leaves = |chunk: &&Chunk| {
            let leaves = left > keep && chunk.seq < not_from;
            left -= chunk.bytes.len() + CHUNK_COST;
            leaves
        };
        self.chunks.iter().take_while(leaves).cloned().collect()
    }

    fn forget(&mut self, count: usize) -> usize {
        let freed = self.chunks.drain(..count).map(|chunk| chunk.bytes.len() + CHUNK_COST).sum();
        self.memory -= freed;
        freed
    }

    fn take(&mut self, feed: &Arc<Feed>, max_bytes: usize) -> Taken {
        let nothing = Taken::Events { events: Vec::new(), more: false };
        let Some(place) = self.cursors.iter().position(|cursor| Arc::ptr_eq(&cursor.feed, feed)) else {
            return nothing;
        };
        let next = self.cursors[place].next.max(self.lost.last_seq() + 1);
        if !feed.paces() && (next > self.cursors[place].next || next <= self.spooled_to) {
            return Taken::Lagged;
        }
        // Processes wait for a pacing feed, so only one that came late can have missed anything: a jump in the numbers.
        self.cursors[place].next = next;
        if next <= self.spooled_to {
            return Taken::Spooled { after: next - 1 };
        }
        let mut events = Vec::new();
        let mut bytes = 0;
        let mut reached = next;
        let start = self.chunks.partition_point(|chunk| chunk.seq < next);
        for chunk in self.chunks.range(start..) {
            if bytes > 0 && bytes + chunk.bytes.len() > max_bytes {
                break;
            }
            self.tell_exit_before(chunk.seq, reached, &mut events);
            bytes += chunk.bytes.len();
            reached = chunk.seq + 1;
            events.push(Event::Output(chunk.clone()));
        }
        let chunks_done = self.chunks.back().is_none_or(|chunk| chunk.seq < reached);
        if chunks_done {
            self.tell_exit_before(u64::MAX, reached, &mut events);
            if let Some(seq) = self.closed {
                events.push(Event::Closed { seq, totals: self.totals });
            }
            reached = self.next_seq;
        }
        let written = self.written();
        let cursor = &mut self.cursors[place];
        cursor.next = reached;
        cursor.given_bytes = if chunks_done { written } else { cursor.given_bytes + bytes as u64 };
        cursor.queued = reached < self.next_seq;
        let more = cursor.queued;
        Taken::Events { events, more }
    }

    fn tell_exit_before(&self, seq: u64, reached: u64, events: &mut Vec<Event>) {
        if let Some(exit) = self.exit.as_ref().filter(|exit| exit.seq >= reached && exit.seq < seq) {
            events.push(Event::Exited(exit.clone()));
        }
    }
}
