use std::fmt;

use super::{AuthMode, Origin};

/// Why the settings cannot be used: everything that is wrong with them, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// A combination of arguments that can never be right, rather than a bad value.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        self.problems.iter().any(|problem| matches!(problem, Problem::StdioNotAlone { .. }))
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Problem {
    #[error("{path} is not valid TOML: {message}")]
    Syntax { path: String, message: String },
    #[error("unknown key {key} in {place}{}", suggested(.suggestion.as_deref()))]
    UnknownKey { key: String, place: String, suggestion: Option<String> },
    #[error("bad value for {key} ({origin}): {}{expected}", shown(.value.as_deref()))]
    BadValue { key: &'static str, value: Option<String>, origin: Origin, expected: String },
    #[error("server.listen ({origin}): stdio stands alone and cannot be combined with other addresses")]
    StdioNotAlone { origin: Origin },
    #[error("metrics.listen ({origin}): metrics cannot be served on stdio; expected HOST:PORT or unix:/path")]
    StdioMetrics { origin: Origin },
    #[error("server.listen ({origin}): at least one address is needed, such as ws://127.0.0.1:8765")]
    NoAddress { origin: Origin },
    #[error("{key} ({origin}) needs auth.mode (--ws-auth) = capability-token or signed-bearer-token")]
    NoMode { key: &'static str, origin: Origin },
    #[error("{key} ({origin}) does not belong to auth.mode = {mode}; remove one of the two")]
    OtherMode { key: &'static str, origin: Origin, mode: AuthMode },
    #[error(
        "auth.mode = capability-token needs auth.token_file (--ws-token-file) or auth.token_sha256 (--ws-token-sha256)"
    )]
    NoToken,
    #[error("auth.token_file ({file}) and auth.token_sha256 ({digest}) are both set; exactly one is needed")]
    TwoTokens { file: Origin, digest: Origin },
    #[error("auth.mode = signed-bearer-token needs auth.shared_secret_file (--ws-shared-secret-file)")]
    NoSecret,
    #[error(
        "auth.mode = {mode} ({origin}) cannot be combined with stdio, which has no clients to authenticate"
    )]
    StdioWithAuth { mode: AuthMode, origin: Origin },
    #[error("{key} ({origin}) needs {missing} for TLS")]
    Without { key: &'static str, origin: Origin, missing: &'static str },
}

fn suggested(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn shown(value: Option<&str>) -> String {
    value.map(|value| format!("{value:?}: ")).unwrap_or_default()
}
