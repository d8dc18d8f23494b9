//! Programs that the local environment needs beside the one that embeds it.

use std::path::{Path, PathBuf};

/// Where the programs of a local environment are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecServerRuntimePaths {
    sandbox_helper: Option<PathBuf>,
}

impl ExecServerRuntimePaths {
    /// Sandboxes are built by the embedding program itself. It has to call [`crate::helper::dispatch`] first in `main`;
    /// otherwise starts that ask for a sandbox with a view of its own are refused.
    #[must_use]
    pub fn itself() -> Self {
        Self::default()
    }

    /// Sandboxes are built by this program, an `exec-server` of the same version, by its absolute path.
    pub fn with_sandbox_helper(path: impl Into<PathBuf>) -> Self {
        Self { sandbox_helper: Some(path.into()) }
    }

    /// The program that builds sandboxes, if it is another one.
    #[must_use]
    pub fn sandbox_helper(&self) -> Option<&Path> {
        self.sandbox_helper.as_deref()
    }
}
