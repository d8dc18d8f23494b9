use std::process::ExitCode;

use super::args::PsArgs;

/// Lists processes. Placeholder: the client is not wired yet.
pub(super) fn run(args: PsArgs) -> anyhow::Result<ExitCode> {
    drop(args);
    anyhow::bail!("`ps` is not part of this build")
}
