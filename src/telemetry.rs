//! Log events on stderr; stdout belongs to the URLs of the listeners.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::fmt;

use crate::config::{LogConfig, LogFormat};

/// A second set-up in one process.
#[derive(Debug, thiserror::Error)]
#[error("logging is already set up")]
pub struct TelemetryError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Sets logging up for the whole process.
pub fn init(log: &LogConfig) -> Result<(), TelemetryError> {
    let builder = fmt().with_env_filter(log.filter.to_filter()).with_writer(stderr);
    match log.format {
        LogFormat::Text => builder.with_ansi(wants_color()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    }
    .map_err(TelemetryError)
}

fn wants_color() -> bool {
    stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
