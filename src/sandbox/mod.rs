//! What confines a run, and what it leaves behind on the host while it is confined.
//!
//! * [`placeholders`] keeps protected paths that do not exist from being created.
//! * [`networked`] knows the runs that can reach the server, and [`origin`] refuses connections that come from them.

pub mod networked;
pub mod origin;
pub mod placeholders;
mod sock_diag;

use std::path::PathBuf;
use std::sync::Arc;

use self::networked::NetworkedRuns;
use self::placeholders::Placeholders;
use crate::protocol::sandbox::{SandboxBackend, SandboxGap};

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
    /// Those that have a network.
    pub networked: Arc<NetworkedRuns>,
}

impl Sandboxes {
    /// Those of a server. Reads the state directory: it blocks for a moment.
    #[must_use]
    pub fn new(settings: SandboxSettings) -> Arc<Self> {
        let placeholders = Placeholders::new(settings.state_dir.as_deref());
        Arc::new(Self { settings, placeholders, networked: Arc::default() })
    }
}
