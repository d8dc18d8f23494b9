//! What a log holds, without its locks and files: chunks, how far each feed has come, and how the process stands.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;

use super::event::{Chunk, Event, Exit, Status, Taken};
use super::{CHUNK_COST, JOIN_BYTES, WINDOW_BYTES};
use crate::process::denial::DenialWatch;
use crate::process::feed::Feed;
use crate::process::lost::LostLedger;
use crate::protocol::process::{ExecOutputStream, OutputTotals};

/// A feed's place in the log.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) feed: Arc<Feed>,
    /// The next number to give.
    pub(super) next: u64,
    /// Output bytes given, counted from the start of the process.
    pub(super) given_bytes: u64,
    /// In the feed's queue already.
    pub(super) queued: bool,
}

#[derive(Debug)]
pub(super) struct State {
    /// In memory, ascending.
    pub(super) chunks: VecDeque<Chunk>,
    /// The newest chunk while nobody has seen it.
    pub(super) growing: Option<(u64, ExecOutputStream, BytesMut)>,
    pub(super) memory: usize,
    pub(super) next_seq: u64,
    pub(super) totals: OutputTotals,
    /// Bytes of output that are kept.
    pub(super) output_limit: u64,
    /// There was more.
    pub(super) over_limit: bool,
    pub(super) exit: Option<Exit>,
    pub(super) closed: Option<u64>,
    /// The newest number in the spool.
    pub(super) spooled_to: u64,
    /// Output bytes up to `spooled_to`, counted from the start of the process.
    pub(super) spilled_bytes: u64,
    pub(super) spool_broken: bool,
    pub(super) lost: LostLedger,
    /// Of a program in a sandbox.
    pub(super) denial: Option<DenialWatch>,
    pub(super) cursors: Vec<Cursor>,
}

impl State {
    pub(super) fn new(output_limit: Option<u64>) -> Self {
        Self {
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
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.seal();
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    pub(super) fn within_limit<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let left = usize::try_from(self.output_limit - self.written()).unwrap_or(usize::MAX);
        self.over_limit |= bytes.len() > left;
        &bytes[..bytes.len().min(left)]
    }

    pub(super) fn append(&mut self, stream: ExecOutputStream, bytes: &[u8]) {
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
    pub(super) fn seal(&mut self) {
        if let Some((seq, stream, bytes)) = self.growing.take() {
            self.chunks.push_back(Chunk { seq, stream, bytes: bytes.freeze() });
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.totals.stdout + self.totals.stderr + self.totals.pty
    }

    pub(super) fn window(&self) -> u64 {
        let written = self.written();
        let pacing = self.cursors.iter().filter(|cursor| cursor.feed.paces());
        pacing
            .map(|cursor| WINDOW_BYTES.saturating_sub(written - cursor.given_bytes.min(written)))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The first number that a pacing feed has not taken.
    pub(super) fn untaken_from(&self) -> u64 {
        let pacing = self.cursors.iter().filter(|cursor| cursor.feed.paces());
        pacing.map(|cursor| cursor.next).min().unwrap_or(u64::MAX)
    }

    pub(super) fn status(&self) -> Status {
        Status {
            next_seq: self.next_seq,
            exit: self.exit.clone(),
            closed: self.closed.is_some(),
            totals: self.totals,
            retained_from: self.lost.last_seq() + 1,
        }
    }

    /// The oldest chunks, so many that at most `keep` bytes stay, but none from `not_from` on.
    pub(super) fn oldest(&mut self, keep: usize, not_from: u64) -> Vec<Chunk> {
        self.seal();
        let mut left = self.memory;
        let leaves = |chunk: &&Chunk| {
            let leaves = left > keep && chunk.seq < not_from;
            left -= chunk.bytes.len() + CHUNK_COST;
            leaves
        };
        self.chunks.iter().take_while(leaves).cloned().collect()
    }

    pub(super) fn forget(&mut self, count: usize) -> usize {
        let freed = self.chunks.drain(..count).map(|chunk| chunk.bytes.len() + CHUNK_COST).sum();
        self.memory -= freed;
        freed
    }

    pub(super) fn take(&mut self, feed: &Arc<Feed>, max_bytes: usize) -> Taken {
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
