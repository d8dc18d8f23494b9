//! Log events on stderr; stdout belongs to the URLs of the listeners.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, fmt};

/// A second set-up in one process.
#[derive(Debug, thiserror::Error)]
#[error("logging is already set up")]
pub struct TelemetryError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Sets logging up for the whole process: lines for people, or one JSON object a line.
pub fn init(filter: EnvFilter, as_json: bool) -> Result<(), TelemetryError> {
    let builder = fmt().with_env_filter(filter).with_writer(stderr);
    let outcome =
        if as_json { builder.json().try_init() } else { builder.with_ansi(wants_color()).try_init() };
    outcome.map_err(TelemetryError)
}

fn wants_color() -> bool {
    stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
