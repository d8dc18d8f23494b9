//! How output leaves memory, for the spool file or for good, and comes back. On blocking threads.

use std::sync::PoisonError;

use super::event::Chunk;
use super::{KEPT_BYTES, MEMORY_BYTES, OutputLog};
use crate::process::spool::Spool;

/// What became of chunks that were to leave memory.
enum Spooled {
    Written,
    /// The spool is off or full: they are lost.
    NoRoom,
    /// They are lost, and so will be those after them.
    Broken,
}

impl OutputLog {
    /// Whether chunks should leave memory.
    pub(in crate::process) fn wants_spill(&self) -> bool {
        let memory = self.state().memory;
        memory > MEMORY_BYTES || (self.budget.under_pressure() && memory > 0)
    }

    /// Moves the oldest chunks from memory to the spool, or drops them where there is none; closed processes give way
    /// first, other running ones do not: their actors do the same. Blocks on files.
    pub(in crate::process) fn spill(&self) {
        self.budget.relieve_closed();
        self.spill_some(false);
    }

    /// [`Self::spill`] of this log alone, of `all` its chunks or as many as necessary.
    pub(in crate::process) fn spill_some(&self, all: bool) {
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
    pub(in crate::process) fn has_spool(&self) -> bool {
        self.spool().as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// Gives up the oldest spooled output; false if there is none.
    pub(in crate::process) fn drop_oldest_spooled(&self) -> bool {
        let mut spool = self.spool();
        let Some(spool) = spool.as_mut() else { return false };
        let dropped_any = spool.drop_oldest();
        self.lose(spool.take_dropped());
        dropped_any
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
}
