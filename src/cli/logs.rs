use std::process::ExitCode;

use super::args::LogsArgs;

/// Prints the output of a process. Placeholder: the client is not wired yet.
pub(super) fn run(args: LogsArgs) -> anyhow::Result<ExitCode> {
    drop(args);
    anyhow::bail!("`logs` is not part of this build")
}
