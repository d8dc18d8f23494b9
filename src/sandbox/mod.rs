//! From a policy to its enforcement on this machine: prepares, and never touches this process.
//!
//! * [`ground`] is the one normal form: a policy on real paths. Everything that enforces one derives from it.
//! * [`plan`] is what the helper is told about one run; [`launch`] starts a helper with it.
//! * [`placeholders`] keeps protected paths that do not exist from being created.
//! * [`landlock`] and [`seccomp`] build rules; the helper and the child apply them.

pub mod ground;
pub mod landlock;
pub mod launch;
pub mod placeholders;
pub mod plan;
pub mod seccomp;

use std::path::PathBuf;
use std::sync::Arc;

use self::placeholders::Placeholders;
use crate::protocol::sandbox::{SandboxBackend, SandboxGap};

/// The hidden first argument by which the program becomes the init of a sandbox.
pub const WORD: &str = "__exec-server-sandbox";

/// How policies are enforced.
#[derive(Debug, Clone, Default)]
pub struct SandboxSettings {
    /// The only backend that may be used. None: the first that can enforce all of a policy.
    pub backend: Option<SandboxBackend>,
    /// What it may leave open where a policy would be refused otherwise.
    pub accepted_gaps: Vec<SandboxGap>,
    /// Where the journal of placeholders goes. None: into memory.
    pub state_dir: Option<PathBuf>,
}

/// What all sandboxes of one server share.
#[derive(Debug)]
pub struct Sandboxes {
    /// How they are made.
    pub settings: SandboxSettings,
    /// The owner of their placeholders.
    pub placeholders: Placeholders,
}

impl Sandboxes {
    /// Those of a server. Reads the state directory: it blocks for a moment.
    #[must_use]
    pub fn new(settings: SandboxSettings) -> Arc<Self> {
        let placeholders = Placeholders::new(settings.state_dir.as_deref());
        Arc::new(Self { settings, placeholders })
    }
}
