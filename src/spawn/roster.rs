//! The children that this process has not reaped, in a place that outlives it: an unnamed file in memory, which the
//! guard holds too.
//!
//! A mark can be lost by a program that sets its limits; what the server started itself is known all the same. Writing
//! a slot wakes nobody, so it costs a start next to nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

const SLOT_BYTES: u64 = 4;

static ROSTER: LazyLock<Option<Roster>> = LazyLock::new(Roster::create);

struct Roster {
    file: File,
    /// Slots that are free again, and the first that was never used.
    free: Mutex<(Vec<u32>, u32)>,
}

/// Where a child is written down.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot(u32);

impl Roster {
    fn create() -> Option<Self> {
        let file = memfd_create("exec-server-roster", MemfdFlags::CLOEXEC).ok()?;
        Some(Self { file: file.into(), free: Mutex::default() })
    }

    fn write(&self, slot: Slot, pid: i32) {
        let _ = self.file.write_all_at(&pid.to_ne_bytes(), u64::from(slot.0) * SLOT_BYTES);
    }
}

/// Writes a child down.
pub(super) fn add(pid: i32) -> Option<Slot> {
    let roster = ROSTER.as_ref()?;
    let slot = {
        let mut free = roster.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.pop().unwrap_or_else(|| {
            free.1 += 1;
            free.1 - 1
        })
    };
    roster.write(Slot(slot), pid);
    Some(Slot(slot))
}

/// Strikes a child out.
pub(super) fn remove(slot: Slot) {
    if let Some(roster) = ROSTER.as_ref() {
        roster.write(slot, 0);
        roster.free.lock().unwrap_or_else(PoisonError::into_inner).0.push(slot.0);
    }
}

/// The file, for the guard.
pub(super) fn file() -> Option<std::io::Result<File>> {
    ROSTER.as_ref().map(|roster| roster.file.try_clone())
}

/// The children in a roster.
pub(super) fn read(file: &File) -> Vec<i32> {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    if file.read_exact_at(&mut bytes, 0).is_err() {
        return Vec::new();
    }
    bytes
        .chunks_exact(4)
        .filter_map(|slot| slot.try_into().ok().map(i32::from_ne_bytes))
        .filter(|pid| *pid > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_and_not_removed_is_there() {
        let (kept, gone) = (add(1_000_001).unwrap(), add(1_000_002).unwrap());
        remove(gone);
        let file = file().unwrap().unwrap();
        let pids = read(&file);
        assert!(pids.contains(&1_000_001) && !pids.contains(&1_000_002));
        remove(kept);
        assert!(!read(&file).contains(&1_000_001));
    }
}
