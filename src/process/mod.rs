//! Processes: one actor each, its output log, its input, its end.
//!
//! A [`Process`] is the shared handle; a task ([`actor`]) is the only reader of its streams and the only one that
//! reaps it. Nothing here knows of connections or JSON: output leaves through [`feed::Feed`]s, which pull.
//!
//! Invariants:
//! 1. Order: per process, `seq` runs 1, 2, 3 … without a hole over output, exited and closed; closed is last.
//! 2. No lost bytes: while a pacing feed is attached every byte waits for it; without one the newest are kept.
//! 3. Bounded memory: the log, the input queue and the remembered write ids each have a limit.
//! 5. Cancel safety: between taking bytes from a stream and logging them there is no await.
//! 6. No strays: a signal goes to a group whose leader is not yet reaped, or through a pidfd.

pub mod actor;
mod budget;
mod collect;
mod denial;
mod ending;
pub mod env;
pub mod feed;
mod handle;
pub mod log;
mod lost;
mod source;
mod spool;
mod stdin;

pub use budget::{OutputBudget, OutputUsage};
pub use collect::Collected;
pub use ending::end_scope;
pub use handle::{Process, ProcessError, ProcessSpec, StartFailure, StartFailureKind};
pub use spool::SpoolSettings;
pub use stdin::{WaitingBudget, WriteOutcome};
