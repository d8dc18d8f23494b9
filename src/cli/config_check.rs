use std::io::Write;
use std::process::ExitCode;

use super::args::ServeArgs;
use super::settings;
use crate::server;

/// Prints the settings in force and where each came from, after trying the files that they name.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = settings::load(args)?;
    for warning in &settings.warnings {
        eprintln!("warning: {warning}");
    }
    server::check_files(&settings)?;
    std::io::stdout().write_all(settings.table().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
