//! Running in this process.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::backend::ExecBackend;
use crate::local::LocalBackend;
use crate::sandbox::{SandboxSettings, Sandboxes};
use crate::session::ExecutorSettings;
use crate::spawn::mark::ServerMark;
use crate::spawn::{guard, reaper};

/// A backend that owns everything it starts as the daemon does: nothing outlives this process.
pub(super) struct Local {
    backend: LocalBackend,
    keepers: [JoinHandle<()>; 2],
}

impl Local {
    pub(super) fn start() -> Self {
        let mark = ServerMark::new();
        // Without it a tree that scatters is still known by its mark.
        let _ = reaper::become_subreaper();
        let reaper = tokio::spawn(async { drop(reaper::reap_orphans().await) });
        let sandboxes = Sandboxes::new(SandboxSettings::default());
        let backend = LocalBackend::guarded(ExecutorSettings::default(), mark, Arc::clone(&sandboxes));
        let keepers =
            [reaper, tokio::spawn(guard::keep(mark, None, move || sandboxes.placeholders.journal()))];
        Self { backend, keepers }
    }

    pub(super) fn backend(&self) -> Arc<dyn ExecBackend> {
        Arc::new(self.backend.clone())
    }

    /// Ends what is left.
    pub(super) async fn end(self) {
        self.backend.shutdown().await;
        self.keepers.iter().for_each(JoinHandle::abort);
    }
}
