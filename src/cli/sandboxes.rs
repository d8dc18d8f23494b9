use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Config, state_dir};
use crate::sandbox::{SandboxSettings, Sandboxes};

/// What the sandboxes of a server with these settings share.
pub(super) fn of(config: &Config) -> Arc<Sandboxes> {
    // Without a state directory the guard alone knows of the placeholders.
    Sandboxes::new(SandboxSettings { state_dir: state_directory(config), ..settings(config) })
}

/// The same for a look at what they would be: nothing is taken over from other servers.
pub(super) fn on_trial(config: &Config) -> Arc<Sandboxes> {
    Sandboxes::new(settings(config))
}

pub(super) fn state_directory(config: &Config) -> Option<PathBuf> {
    state_dir(config.server.state_dir.as_deref(), |name| std::env::var_os(name)).ok()
}

fn settings(config: &Config) -> SandboxSettings {
    SandboxSettings {
        backend: config.sandbox.backend.forced(),
        accepted_gaps: config.sandbox.accept_gaps.iter().map(|accepted| accepted.0).collect(),
        state_dir: None,
        helper: None,
        credentials_dir: std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from),
    }
}
