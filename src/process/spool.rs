//! Output that left memory: an unlinked file of one process, used as a ring.
//!
//! Chunks are written in blocks of what one spill moved. A block is the unit that falls out; the list of blocks is
//! all that stays in memory. Everything here blocks on files and is called on blocking threads.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::budget::OutputBudget;
use super::log::{Chunk, OutputLog};
use crate::protocol::process::ExecOutputStream;

/// Positions kept per block for the accounts of lost output.
const POSITIONS_PER_BLOCK: usize = 512;
/// Number (8), stream (1), length (4).
const RECORD_HEAD: usize = 13;

/// How much may be spooled, and where.
#[derive(Debug, Clone)]
pub struct SpoolSettings {
    /// Bytes per process; 0 turns the spool off.
    pub per_process: u64,
    /// Bytes for all processes.
    pub total: u64,
    /// Directories to try in order.
    pub directories: Vec<PathBuf>,
}

#[derive(Debug)]
struct Block {
    first: u64,
    last: u64,
    offset: u64,
    length: u64,
    /// (number, output bytes up to and with it) at the ends of chunks, the last one always.
    positions: Box<[(u64, u64)]>,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    /// Oldest first; their places in the file follow each other around the ring.
    blocks: VecDeque<Block>,
    head: u64,
    dropped: Vec<(u64, u64)>,
    budget: Arc<OutputBudget>,
}

impl OutputBudget {
    /// Lets closed processes give up what a batch of `log` needs of the server's total.
    pub(super) fn make_spool_room(&self, log: &OutputLog, batch: &[Chunk]) {
        let needed = encoded_length(batch);
        while self.spool_used.load(Ordering::Relaxed) + needed > self.spool.total {
            match self.first_closed().filter(|closed| !std::ptr::eq(closed.as_ref(), log)) {
                Some(closed) if closed.drop_oldest_spooled() => {}
                _ => break,
            }
        }
    }
}

fn encoded_length(batch: &[Chunk]) -> u64 {
    batch.iter().map(|chunk| (RECORD_HEAD + chunk.bytes.len()) as u64).sum()
}

impl Spool {
    pub(super) fn create(budget: &Arc<OutputBudget>) -> io::Result<Self> {
        if budget.spool_files.fetch_add(1, Ordering::Relaxed) >= budget.max_spool_files {
            budget.spool_files.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other("too many processes have spooled output"));
        }
        let created = Self::create_file(budget);
        if created.is_err() {
            budget.spool_files.fetch_sub(1, Ordering::Relaxed);
        }
        created
    }

    fn create_file(budget: &Arc<OutputBudget>) -> io::Result<Self> {
        let mut failure = io::Error::other("no spool directory is configured");
        for directory in &budget.spool.directories {
            match tempfile::tempfile_in(directory) {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        blocks: VecDeque::new(),
                        head: 0,
                        dropped: Vec::new(),
                        budget: Arc::clone(budget),
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Writes chunks as one block; older blocks make room. `before` is the output's position ahead of them.
    pub(super) fn append(&mut self, batch: &[Chunk], before: u64) -> io::Result<()> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let length = encoded_length(batch);
        let capacity = self.budget.spool.per_process;
        if length > capacity || length > self.budget.spool.total {
            return Err(io::Error::other("the spool is smaller than one batch of output"));
        }
        let offset = if self.head + length > capacity { 0 } else { self.head };
        if !self.make_room(offset, length) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut encoded = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        for chunk in batch {
            encoded.extend_from_slice(&chunk.seq.to_le_bytes());
            encoded.push(chunk.stream as u8);
            encoded.extend_from_slice(&u32::try_from(chunk.bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            encoded.extend_from_slice(&chunk.bytes);
        }
        self.file.write_all_at(&encoded, offset)?;
        self.budget.spool_used.fetch_add(length, Ordering::Relaxed);
        let positions = positions(batch, before);
        self.blocks.push_back(Block { first: first.seq, last: last.seq, offset, length, positions });
        self.head = offset + length;
        Ok(())
    }

    /// False if others hold the server's total.
    fn make_room(&mut self, offset: u64, length: u64) -> bool {
        let overlaps = |block: &Block| block.offset < offset + length && offset < block.offset + block.length;
        // Around the ring the oldest blocks are the next ahead, those behind a wrap included.
        while self.blocks.iter().any(overlaps) {
            self.drop_oldest();
        }
        while self.budget.spool_used.load(Ordering::Relaxed) + length > self.budget.spool.total {
            if !self.drop_oldest() {
                return false;
            }
        }
        true
    }

    /// Gives up the oldest block; false if there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let Some(block) = self.blocks.pop_front() else { return false };
        self.budget.spool_used.fetch_sub(block.length, Ordering::Relaxed);
        self.dropped.extend_from_slice(&block.positions);
        if self.blocks.is_empty() {
            self.head = 0;
            let _ = self.file.set_len(0);
        }
        true
    }

    /// Ends of the chunks that were given up since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn read(&self, after: u64, max_bytes: u64) -> io::Result<Vec<Chunk>> {
        let mut chunks = Vec::new();
        let mut sum = 0_u64;
        for block in self.blocks.iter().filter(|block| block.last > after) {
            let mut encoded = vec![0; usize::try_from(block.length).map_err(io::Error::other)?];
            self.file.read_exact_at(&mut encoded, block.offset)?;
            let encoded = Bytes::from(encoded);
            for chunk in (Records { rest: encoded }).filter(|chunk| chunk.seq > after.max(block.first - 1)) {
                sum = sum.saturating_add(chunk.bytes.len() as u64);
                if sum > max_bytes && !chunks.is_empty() {
                    return Ok(chunks);
                }
                chunks.push(chunk);
            }
        }
        Ok(chunks)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let used = self.blocks.iter().map(|block| block.length).sum();
        self.budget.spool_used.fetch_sub(used, Ordering::Relaxed);
        self.budget.spool_files.fetch_sub(1, Ordering::Relaxed);
    }
}

fn positions(batch: &[Chunk], before: u64) -> Box<[(u64, u64)]> {
    let every = batch.len().div_ceil(POSITIONS_PER_BLOCK).max(1);
    let mut position = before;
    batch
        .iter()
        .enumerate()
        .filter_map(|(index, chunk)| {
            position += chunk.bytes.len() as u64;
            let kept = index % every == 0 || index + 1 == batch.len();
            kept.then_some((chunk.seq, position))
        })
        .collect()
}

/// Decodes a block.
struct Records {
    rest: Bytes,
}

impl Iterator for Records {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        if self.rest.len() < RECORD_HEAD {
            return None;
        }
        let head = self.rest.split_to(RECORD_HEAD);
        let seq = u64::from_le_bytes(head[..8].try_into().ok()?);
        let stream = match head[8] {
            0 => ExecOutputStream::Stdout,
            1 => ExecOutputStream::Stderr,
            _ => ExecOutputStream::Pty,
        };
        let length = usize::try_from(u32::from_le_bytes(head[9..].try_into().ok()?)).ok()?;
        (length <= self.rest.len()).then(|| Chunk { seq, stream, bytes: self.rest.split_to(length) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryBudget;
    use proptest::prelude::*;

    fn budget(per_process: u64, total: u64) -> Arc<OutputBudget> {
        let directories = vec![std::env::temp_dir()];
        OutputBudget::new(1 << 20, MemoryBudget::new(None), SpoolSettings { per_process, total, directories })
    }

    fn chunk(seq: u64, size: usize) -> Chunk {
        let bytes: Vec<u8> = (0..size).map(|at| u8::try_from((at as u64 * 7 + seq) % 251).unwrap()).collect();
        Chunk { seq, stream: ExecOutputStream::Stderr, bytes: bytes.into() }
    }

    proptest! {
        #[test]
        fn the_newest_chunks_are_kept_exactly_and_the_rest_is_accounted_for(
            batches in proptest::collection::vec(proptest::collection::vec(1_usize..3000, 1..8), 1..40),
            capacity in 24_100_u64..80_000,
        ) {
            let budget = budget(capacity, 1 << 30);
            let mut spool = Spool::create(&budget).unwrap();
            let (mut seq, mut position, mut written) = (0, 0, Vec::new());
            let mut lost_to = (0, 0);
            for sizes in batches {
                let batch: Vec<Chunk> = sizes.iter().map(|size| { seq += 1; chunk(seq, *size) }).collect();
                spool.append(&batch, position).unwrap();
                position += sizes.iter().sum::<usize>() as u64;
                written.extend(batch);
                if let Some(last) = spool.take_dropped().last() { lost_to = *last; }
                let kept = spool.read(0, u64::MAX).unwrap();
                let expected: Vec<&Chunk> = written.iter().filter(|chunk| chunk.seq > lost_to.0).collect();
                prop_assert_eq!(kept.len(), expected.len());
                for (kept, expected) in kept.iter().zip(expected) {
                    prop_assert_eq!((kept.seq, &kept.bytes), (expected.seq, &expected.bytes));
                }
                let kept_bytes: usize = kept.iter().map(|chunk| chunk.bytes.len()).sum();
                prop_assert_eq!(lost_to.1 + kept_bytes as u64, position);
            }
            drop(spool);
            prop_assert_eq!(budget.spool_used.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_read_gives_at_least_one_chunk_and_keeps_to_its_limit() {
        let budget = budget(1 << 20, 1 << 20);
        let mut spool = Spool::create(&budget).unwrap();
        spool.append(&[chunk(1, 100), chunk(2, 100), chunk(4, 100)], 0).unwrap();
        let numbers = |after, max| -> Vec<u64> {
            spool.read(after, max).unwrap().iter().map(|chunk| chunk.seq).collect()
        };
        assert_eq!(numbers(0, 0), [1]);
        assert_eq!(numbers(0, 200), [1, 2]);
        assert_eq!(numbers(1, u64::MAX), [2, 4]);
        assert_eq!(numbers(4, u64::MAX), [0; 0]);
    }
}
