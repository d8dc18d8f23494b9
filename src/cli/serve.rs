use std::process::ExitCode;

use crate::config::Settings;

/// Serves until the process is told to end. Placeholder: the server is not wired yet.
pub(super) fn serve(settings: Settings) -> anyhow::Result<ExitCode> {
    drop(settings);
    anyhow::bail!("serving is not part of this build")
}
