//! One environment as it is configured, checked before anything is made of it.

use std::time::Duration;

use super::{Environment, LOCAL_ENVIRONMENT_ID};
use crate::backend::{ExecServerError, Result};
use crate::client::{ClientOptions, ProgramCommand, Server};
use crate::outbound::HttpClientFactory;

/// The longest id.
const MAX_ID: usize = 64;

/// A server to be added to an [`super::EnvironmentManager`]. What is not set is the default.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RemoteEnvironmentOptions {
    /// `ws://` or `wss://`; space around it does not count.
    pub url: String,
    /// Sent as `Authorization: Bearer`, verbatim; only by `wss://` or to this machine. Not empty.
    pub auth_bearer_token: Option<String>,
    /// Sent as `x-request-id`, under the same rule.
    pub request_id: Option<String>,
    /// Time for connecting, the upgrade included; 10 s if not set.
    pub connect_timeout: Option<Duration>,
    /// Time for the answer to `initialize`; 10 s if not set.
    pub initialize_timeout: Option<Duration>,
}

/// Without the token, and without what of the URL may be secret.
impl std::fmt::Debug for RemoteEnvironmentOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteEnvironmentOptions")
            .field("url", &shown(&self.url))
            .field("has_auth_bearer_token", &self.auth_bearer_token.is_some())
            .finish_non_exhaustive()
    }
}

/// A checked environment. Building it can fail no more.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) server: Server,
    /// What is not set is the default.
    pub(super) connect_timeout: Option<Duration>,
    pub(super) initialize_timeout: Option<Duration>,
}

impl Definition {
    /// Checks a server.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] with what is wrong.
    pub(super) fn remote(options: RemoteEnvironmentOptions) -> Result<Self> {
        let RemoteEnvironmentOptions {
            url,
            auth_bearer_token,
            request_id,
            connect_timeout,
            initialize_timeout,
        } = options;
        let url = check_url(&url)?;
        let server = Server::at(url, auth_bearer_token.as_deref(), request_id.as_deref())?;
        Ok(Self { server, connect_timeout, initialize_timeout })
    }

    /// Checks a program.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] when it is empty.
    pub(super) fn program(command: ProgramCommand, initialize_timeout: Option<Duration>) -> Result<Self> {
        Ok(Self { server: Server::program(command)?, connect_timeout: None, initialize_timeout })
    }

    /// Whether connecting starts a process.
    pub(super) fn is_program(&self) -> bool {
        self.server.is_program()
    }

    /// The environment, whose connections leave this process so.
    pub(super) fn build(self, outbound: HttpClientFactory) -> Environment {
        let default = ClientOptions::with_outbound(outbound);
        let options = ClientOptions {
            connect_timeout: self.connect_timeout.unwrap_or(default.connect_timeout),
            initialize_timeout: self.initialize_timeout.unwrap_or(default.initialize_timeout),
            ..default
        };
        Environment::at(self.server, options)
    }
}

fn check_url(url: &str) -> Result<&str> {
    let url = url.trim();
    if url.is_empty() || url.eq_ignore_ascii_case("none") {
        return refuse("environment url must not be empty or `none`: use ws:// or wss://".to_owned());
    }
    if !url.starts_with("ws://") && !url.starts_with("wss://") {
        return refuse(format!("environment url `{}` must use ws:// or wss://", shown(url)));
    }
    Ok(url)
}

/// A URL without user info and query, which may be secrets.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

/// Passes if an environment may have this id.
///
/// # Errors
/// [`ExecServerError::Protocol`] with the rule that it breaks.
pub(super) fn check_id(id: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let why = if id.is_empty() {
        "must not be empty"
    } else if id.trim() != id {
        "must not have surrounding space"
    } else if id == LOCAL_ENVIRONMENT_ID || id.eq_ignore_ascii_case("none") {
        "is reserved"
    } else if id.len() > MAX_ID {
        "must not be longer than 64 characters"
    } else if !id.chars().all(is_plain) {
        "may have letters, digits, `-` and `_` only"
    } else {
        return Ok(());
    };
    refuse(format!("environment id `{id}` {why}"))
}

fn refuse<T>(why: String) -> Result<T> {
    Err(ExecServerError::Protocol(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use test_case::test_case;

    #[test_case("http://u:p@host/p?token=t", "http://host/p")]
    #[test_case("ws://u:p@host?token=t", "ws://host"; "no path")]
    #[test_case("ws://host/a@b", "ws://host/a@b"; "an at sign in the path")]
    #[test_case("nonsense", "nonsense")]
    fn urls_are_shown_without_secrets(url: &str, expected: &str) {
        assert_eq!(shown(url), expected);
        let options = RemoteEnvironmentOptions {
            url: url.into(),
            auth_bearer_token: Some("s3cret".into()),
            ..RemoteEnvironmentOptions::default()
        };
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
