use std::path::PathBuf;

use super::args::ServeArgs;
use crate::config::{self, ConfigFile, Settings};

/// The settings of these arguments, the environment and the configuration file.
pub(super) fn load(args: &ServeArgs) -> anyhow::Result<Settings> {
    let file = ConfigFile::read(file_of(args).as_deref())?;
    Ok(config::load(&args.flags(), std::env::vars_os(), file.as_ref())?)
}

fn file_of(args: &ServeArgs) -> Option<PathBuf> {
    let variable = || std::env::var_os("EXEC_SERVER_CONFIG").filter(|value| !value.is_empty());
    args.config.clone().or_else(|| variable().map(PathBuf::from))
}
