//! Remembered states of shells: what the start-up files do, done once and put back at each start.
//!
//! `capture` runs the start-up files under the conditions of one start and makes a [`Snapshot`]; `restore` is what a
//! snapshot does to another start; `cache` remembers, per session, and lets one capture serve all who wait for it.
//! What is particular to a kind of shell is in `shell`. The start-up files are hostile code: they get the time, the
//! output and the environment that they are given, and end with what they started.
//!
//! A snapshot is in memory only: the variables in ours, the rest in a sealed file without a name. It is never logged.
//!
//! Nothing here decides in which environment or sandbox a shell runs: `session` composes every run, captures included,
//! and gives a ready [`crate::process::ProcessSpec`].

use std::time::Duration;

mod cache;
mod capture;
mod error;
mod records;
mod restore;
mod shell;
mod variables;

pub use cache::{Answer, Key, SessionSnapshots, SnapshotCache};
pub use capture::Capture;
pub use error::{CaptureError, Fallback};
pub use restore::Snapshot;
pub use shell::Shell;

/// How shells are remembered.
#[derive(Debug, Clone)]
pub struct SnapshotSettings {
    /// At all.
    pub enabled: bool,
    /// How long the start-up files may take.
    pub capture_limit: Duration,
    /// Bytes of all snapshots of all sessions together.
    pub cache_bytes: usize,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { enabled: true, capture_limit: Duration::from_secs(10), cache_bytes: 256 << 20 }
    }
}
