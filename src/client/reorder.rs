//! Puts the events of a process into the order of their numbers.

use std::collections::BTreeMap;

use crate::backend::ExecProcessEvent;
use crate::protocol::process::{AccountedRead, LostOutput};

/// What may wait for events with smaller numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Events.
    pub(super) events: usize,
    /// Output bytes.
    pub(super) bytes: usize,
}

/// An answer with this much output may have been cut there, so there may be more.
const MAYBE_CUT_BYTES: usize = 8 << 20;

/// Too much waits for a missing event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overflow;

/// What a read has settled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    /// Output that will never come.
    pub(super) lost: Option<LostOutput>,
    /// The answer was cut: read on after the last event taken.
    pub(super) more: bool,
}

/// The events of one process on their way to its subscribers.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    /// Every event up to this number has been taken or is lost.
    taken: u64,
    exit_taken: bool,
    waiting: BTreeMap<u64, ExecProcessEvent>,
    waiting_bytes: usize,
    /// Numbers below this one are settled: what is missing there is lost.
    settled: u64,
}

impl Reorder {
    /// The last number taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The largest number seen.
    pub(super) fn seen(&self) -> u64 {
        self.waiting.last_key_value().map_or(self.taken, |(seq, _)| *seq)
    }

    /// Adds an event; one that is known already is dropped.
    ///
    /// # Errors
    /// [`Overflow`] when it cannot be taken next and the limits forbid to keep it.
    pub(super) fn insert(&mut self, event: ExecProcessEvent, limits: Limits) -> Result<(), Overflow> {
        let Some(seq) = event.seq().filter(|seq| *seq > self.taken && !self.waiting.contains_key(seq)) else {
            return Ok(());
        };
        let size = output_bytes(&event);
        let full =
            self.waiting.len() >= limits.events || self.waiting_bytes.saturating_add(size) > limits.bytes;
        if full && seq != self.taken + 1 {
            return Err(Overflow);
        }
        self.keep(seq, event);
        Ok(())
    }

    fn keep(&mut self, seq: u64, event: ExecProcessEvent) {
        self.waiting_bytes += output_bytes(&event);
        self.waiting.insert(seq, event);
    }

    /// The next event in order, if it has come.
    pub(super) fn take(&mut self) -> Option<ExecProcessEvent> {
        let next = self.waiting.first_entry()?;
        let seq = *next.key();
        if seq != self.taken + 1 && seq >= self.settled {
            return None;
        }
        let event = next.remove();
        self.waiting_bytes -= output_bytes(&event);
        self.taken = seq;
        self.exit_taken |= matches!(event, ExecProcessEvent::Exited { .. });
        Some(event)
    }

    /// Adds what a read without a limit after [`Self::taken`] found. It tells no numbers for the exit and the close,
    /// but where they must be: the close comes last, the exit is the number that is missing.
    pub(super) fn fill(&mut self, read: AccountedRead) -> Filled {
        let AccountedRead { response, lost } = read;
        let end = response.next_seq;
        let last_chunk = response.chunks.last().map(|chunk| chunk.seq);
        let bytes: usize = response.chunks.iter().map(|chunk| chunk.chunk.as_slice().len()).sum();
        for chunk in response.chunks {
            if chunk.seq > self.taken && !self.waiting.contains_key(&chunk.seq) {
                self.keep(chunk.seq, ExecProcessEvent::Output(chunk));
            }
        }
        let mut filled = Filled { lost: None, more: bytes >= MAYBE_CUT_BYTES };
        if response.closed && last_chunk.is_some_and(|seq| seq.saturating_add(1) >= end) {
            filled.more = true;
        } else if response.closed && end > 0 && end - 1 > self.taken {
            filled.more = false;
            self.waiting.entry(end - 1).or_insert(ExecProcessEvent::Closed { seq: end - 1 });
        }
        if response.exited && !self.knows_exit() {
            match self.place_of_exit(end, lost, filled.more) {
                Some(seq) => {
                    let exit_code = response.exit_code.unwrap_or(-1);
                    let sandbox_denied = Some(response.sandbox_denied);
                    self.keep(seq, ExecProcessEvent::Exited { seq, exit_code, sandbox_denied });
                }
                None => filled.more = true,
            }
        }
        filled.lost = self.gaps(end).fold(None, |sum: Option<LostOutput>, (first, last)| {
            let first_seq = sum.map_or(first, |sum| sum.first_seq);
            Some(LostOutput { bytes: lost.map_or(0, |lost| lost.bytes), first_seq, last_seq: last })
        });
        self.settled = self.settled.max(end);
        filled
    }

    fn knows_exit(&self) -> bool {
        self.exit_taken || self.waiting.values().any(|event| matches!(event, ExecProcessEvent::Exited { .. }))
    }

    /// Missing numbers below `end`, as inclusive ranges.
    fn gaps(&self, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let known = self.waiting.range(..end).map(|(seq, _)| *seq).chain(std::iter::once(end));
        let mut next = self.taken.saturating_add(1);
        known.filter_map(move |seq| {
            let gap = (next < seq).then(|| (next, seq - 1));
            next = next.max(seq.saturating_add(1));
            gap
        })
    }

    /// The number that is missing although no output is lost there. Where lost output leaves more than one, the
    /// last: that is when the exit is known to have happened.
    fn place_of_exit(&self, end: u64, lost: Option<LostOutput>, cut: bool) -> Option<u64> {
        let in_lost = |seq: u64| lost.is_some_and(|lost| (lost.first_seq..=lost.last_seq).contains(&seq));
        let mut last = None;
        for (_, gap_end) in self.gaps(end) {
            if !in_lost(gap_end) || !cut {
                last = Some(gap_end);
            }
        }
        last
    }
}

fn output_bytes(event: &ExecProcessEvent) -> usize {
    match event {
        ExecProcessEvent::Output(chunk) => chunk.chunk.as_slice().len(),
        _ => 0,
    }
}

#[cfg(test)]
#[path = "reorder_tests.rs"]
mod tests;
