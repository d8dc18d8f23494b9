use std::process::ExitCode;

use super::args::KillArgs;

/// Signals a process. Placeholder: the client is not wired yet.
pub(super) fn run(args: KillArgs) -> anyhow::Result<ExitCode> {
    drop(args);
    anyhow::bail!("`kill` is not part of this build")
}
