use std::io::Write;
use std::process::ExitCode;

use super::args::ServeArgs;
use super::settings;
use crate::server::auth::Authentication;

/// Prints the settings in force and where each came from, after trying the files that they name.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = settings::load(args)?;
    for warning in &settings.warnings {
        eprintln!("warning: {warning}");
    }
    // As if nothing were exposed: checking must not make a token.
    Authentication::new(&settings, false, |_| None)?;
    std::io::stdout().write_all(settings.table().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
