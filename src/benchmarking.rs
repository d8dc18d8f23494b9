//! What the benchmarks need of private parts. No part of the interface: it may change in any release.

use std::path::Path;
use std::sync::Arc;

use crate::fs::{FsError, Purpose, Scope};
use crate::fsops::Route;
use crate::memory::MemoryBudget;
use crate::process::log::OutputLog;
use crate::process::{OutputBudget, SpoolSettings};
use crate::protocol::process::{ExecOutputStream, ProcessId};
use crate::protocol::sandbox::SandboxContext;
pub use crate::server::connection::benchmarking::{AnswerEncoder, notification};

/// An output log that is written to without a process. It has no spool.
#[derive(Debug)]
pub struct WritableLog(Arc<OutputLog>);

impl WritableLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        let spool = SpoolSettings { per_process: 0, total: 0, directories: Vec::new() };
        let budget = OutputBudget::new(usize::MAX, MemoryBudget::new(None), spool);
        Self(OutputLog::new(ProcessId::from("benchmark"), budget, None))
    }

    /// Adds output to stdout and tells readers of it.
    pub fn append(&self, bytes: &[u8]) {
        self.0.append(ExecOutputStream::Stdout, bytes);
        self.0.announce();
    }

    /// The log, for reading.
    #[must_use]
    pub fn log(&self) -> &Arc<OutputLog> {
        &self.0
    }
}

impl Default for WritableLog {
    fn default() -> Self {
        Self::new()
    }
}

/// What one reading file call under a sandbox context may touch.
#[derive(Debug)]
pub struct Confined(Scope);

impl Confined {
    /// The scope of such a call.
    ///
    /// # Errors
    /// The context cannot be enforced.
    pub fn reading(context: &SandboxContext) -> Result<Self, FsError> {
        Scope::of(Some(context), Purpose::Reading, None).map(Self)
    }

    /// A path within the scope.
    #[must_use]
    pub fn route<'a>(&'a self, path: &'a Path) -> Route<'a> {
        self.0.route(path)
    }
}
