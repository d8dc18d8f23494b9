//! Settings of this machine.

use std::path::PathBuf;

use crate::backend::{ExecServerError, Result};
use crate::environment_config::EnvironmentConfig;
use crate::error_map::IntoErrorObject;
use crate::protocol::environment::{ConfigReadParams, ConfigReadResponse};

/// Chosen keys of the settings of this machine, for the user with this home. Cancel-safe.
///
/// # Errors
/// [`ExecServerError::Server`] as a server would answer: params that name nothing, a file that cannot be read.
pub async fn read_config(home: Option<PathBuf>, params: ConfigReadParams) -> Result<ConfigReadResponse> {
    match tokio::task::spawn_blocking(move || settings(home).read(&params)).await {
        Ok(answer) => answer.map_err(|error| error.into_error_object().into()),
        Err(error) => Err(ExecServerError::Protocol(format!("the settings were not read: {error}"))),
    }
}

/// Where the settings of the user with this home are.
pub(super) fn settings(home: Option<PathBuf>) -> EnvironmentConfig {
    let codex_home = std::env::var_os("CODEX_HOME").filter(|home| !home.is_empty());
    let hostname = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
    EnvironmentConfig::new(home, codex_home.map(Into::into), hostname)
}
