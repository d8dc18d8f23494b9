//! From settings to authenticators: reads the files, and makes a token where nobody thought of one.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonwebtoken::DecodingKey;

use super::capability::{TokenFile, Tokens};
use super::signed::SignedTokens;
use super::{Authenticator, Rule, token};
use crate::config::{AuthSettings, Settings, StateDirError, state_dir};

const MIN_SECRET_BYTES: usize = 32;

/// Authentication cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AuthError {
    #[error("cannot use auth.token_file {path}")]
    TokenFile { path: PathBuf, source: io::Error },
    #[error("cannot use metrics.token_file {path}")]
    MetricsTokens { path: PathBuf, source: io::Error },
    #[error("cannot use auth.shared_secret_file {path}")]
    SecretFile { path: PathBuf, source: io::Error },
    #[error("cannot make a token for an address that others can reach, and auth.mode (--ws-auth) is not set")]
    StateDir(#[source] StateDirError),
    #[error("cannot use the token in the state directory {path}")]
    StateToken { path: PathBuf, source: io::Error },
}

/// Whether clients must show certificates, whatever else they must.
fn has_certificates(settings: &Settings) -> bool {
    settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
}

/// The authenticators of a server's listeners.
#[derive(Debug)]
pub struct Authentication {
    local: Arc<Authenticator>,
    exposed: Arc<Authenticator>,
    /// Readers of metrics, where others than clients are meant.
    readers: Option<Arc<Authenticator>>,
    notice: Option<String>,
}

impl Authentication {
    /// Reads what is configured. When nothing is, and `is_exposed` says that a listener can be reached from other
    /// machines, a token in the state directory protects that listener.
    pub fn new(
        settings: &Settings,
        is_exposed: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, AuthError> {
        let with_delay = |rule| Authenticator { rule, failure_delay: settings.config.auth.failure_delay_ms };
        let clients = Self::of_clients(settings, is_exposed, variable, &with_delay)?;
        let readers = match &settings.config.metrics.token_file {
            Some(path) => {
                let file = TokenFile::open(path)
                    .map_err(|source| AuthError::MetricsTokens { path: path.into(), source })?;
                Some(Arc::new(with_delay(Rule::Capability(Tokens::File(file)))))
            }
            None => None,
        };
        Ok(Self { readers, ..clients })
    }

    fn of_clients(
        settings: &Settings,
        is_exposed: bool,
        variable: impl Fn(&str) -> Option<OsString>,
        with_delay: &dyn Fn(Rule) -> Authenticator,
    ) -> Result<Self, AuthError> {
        let rule = match &settings.auth {
            AuthSettings::Open => return Ok(Self::open(is_exposed && !has_certificates(settings))),
            AuthSettings::Automatic if !is_exposed => return Ok(Self::open(false)),
            AuthSettings::Automatic => {
                let (path, tokens) = generated(settings.config.server.state_dir.as_deref(), variable)?;
                return Ok(Self {
                    local: Arc::new(Authenticator::open()),
                    exposed: Arc::new(with_delay(Rule::Capability(tokens))),
                    readers: None,
                    notice: Some(token_notice(&path)),
                });
            }
            AuthSettings::TokenFile(path) => Rule::Capability(configured(path)?),
            AuthSettings::TokenDigests(digests) => Rule::Capability(Tokens::Fixed(digests.clone())),
            AuthSettings::Signed(signed) => Rule::Signed(SignedTokens {
                key: secret(&signed.secret_file)?,
                issuer: signed.issuer.clone(),
                audience: signed.audience.clone(),
                skew_seconds: signed.max_clock_skew_seconds,
            }),
        };
        let all = Arc::new(with_delay(rule));
        Ok(Self { local: Arc::clone(&all), exposed: all, readers: None, notice: None })
    }

    fn open(is_exposed: bool) -> Self {
        let open = Arc::new(Authenticator::open());
        let notice = is_exposed.then(|| OPEN_NOTICE.to_owned());
        Self { local: Arc::clone(&open), exposed: open, readers: None, notice }
    }

    /// The authenticator of a listener.
    #[must_use]
    pub fn of(&self, is_local: bool) -> Arc<Authenticator> {
        Arc::clone(if is_local { &self.local } else { &self.exposed })
    }

    /// Who may read the metrics of a listener: everybody on this machine, elsewhere who has a token.
    #[must_use]
    pub fn readers(&self, is_local: bool) -> Arc<Authenticator> {
        match &self.readers {
            _ if is_local => Arc::new(Authenticator::open()),
            Some(readers) => Arc::clone(readers),
            None => Arc::clone(&self.exposed),
        }
    }

    /// What a person must be told on stderr, whatever is logged.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }
}

const OPEN_NOTICE: &str = "WARNING: authentication is off (auth.mode = none) and this server can be reached from \
    other machines.\nWARNING: whoever reaches it can run any program as this user. Use --ws-auth capability-token, or \
    listen on 127.0.0.1.";

fn token_notice(path: &Path) -> String {
    format!(
        "This server can be reached from other machines, so it asks for a token. The token is in {}\n\
         Clients send it in the header `Authorization: Bearer <token>`. To choose another way, see --ws-auth.",
        path.display()
    )
}

fn configured(path: &Path) -> Result<Tokens, AuthError> {
    match TokenFile::open(path) {
        Ok(file) => Ok(Tokens::File(file)),
        Err(source) => Err(AuthError::TokenFile { path: path.into(), source }),
    }
}

fn generated(
    configured: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(PathBuf, Tokens), AuthError> {
    let directory = state_dir(configured, variable).map_err(AuthError::StateDir)?;
    let unusable = |source| AuthError::StateToken { path: directory.clone(), source };
    let path = token::ensure(&directory).map_err(unusable)?;
    let file = TokenFile::open(&path).map_err(unusable)?;
    Ok((path, Tokens::File(file)))
}

fn secret(path: &Path) -> Result<DecodingKey, AuthError> {
    let read = || {
        let text = std::fs::read_to_string(path)?;
        let secret = text.trim();
        if secret.len() < MIN_SECRET_BYTES {
            let message = format!("the secret must have at least {MIN_SECRET_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        DecodingKey::from_secret(secret.as_bytes()).map_err(io::Error::other)
    };
    read().map_err(|source| AuthError::SecretFile { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flag, load};
    use crate::server::auth::AuthRefusal;
    use axum::http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

    fn prepared(flags: &[(&str, &str)], is_exposed: bool) -> Result<Authentication, AuthError> {
        let flags: Vec<Flag> = flags.iter().map(|(key, value)| Flag::set(key, value)).collect();
        Authentication::new(&load(&flags, [], None).unwrap(), is_exposed, |_| None)
    }

    fn check(authenticator: &Authenticator, token: &str) -> Result<(), AuthRefusal> {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        authenticator.check(&HeaderMap::from_iter([(AUTHORIZATION, value)])).map(drop)
    }

    #[test]
    fn local_listeners_are_open_by_default() {
        let authentication = prepared(&[], false).unwrap();
        assert!(authentication.of(true).is_open());
        assert_eq!(authentication.notice(), None);
    }

    #[test]
    fn a_reachable_listener_gets_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let authentication = prepared(&[("server.state_dir", state.to_str().unwrap())], true).unwrap();
        assert!(authentication.of(true).is_open());
        let exposed = authentication.of(false);
        assert_eq!(exposed.check(&HeaderMap::new()), Err(AuthRefusal::Missing));
        assert_eq!(check(&exposed, "guess"), Err(AuthRefusal::WrongToken));
        let path = state.join("token");
        assert_eq!(check(&exposed, std::fs::read_to_string(&path).unwrap().trim()), Ok(()));
        let notice = authentication.notice().unwrap();
        assert!(notice.contains(path.to_str().unwrap()) && notice.contains("Authorization: Bearer"));
        assert_eq!(exposed.refused(&"peer", AuthRefusal::Missing).as_secs(), 1);
        assert!(matches!(prepared(&[], true), Err(AuthError::StateDir(_))));
    }

    #[test]
    fn open_to_all_is_said_loudly() {
        let authentication = prepared(&[("auth.mode", "none")], true).unwrap();
        assert!(authentication.of(false).is_open());
        assert!(authentication.notice().unwrap().contains("WARNING"));
        assert_eq!(prepared(&[("auth.mode", "none")], false).unwrap().notice(), None);
    }

    #[test]
    fn configured_tokens_guard_every_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "abc\n").unwrap();
        let flags = [("auth.mode", "capability-token"), ("auth.token_file", path.to_str().unwrap())];
        let authentication = prepared(&flags, false).unwrap();
        assert_eq!(check(&authentication.of(true), "abc"), Ok(()));
        assert_eq!(check(&authentication.of(false), "abd"), Err(AuthRefusal::WrongToken));
        std::fs::write(&path, " \n").unwrap();
        assert!(matches!(prepared(&flags, false), Err(AuthError::TokenFile { .. })));
    }

    #[test]
    fn a_secret_is_trimmed_and_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let flags =
            [("auth.mode", "signed-bearer-token"), ("auth.shared_secret_file", path.to_str().unwrap())];
        assert!(matches!(prepared(&flags, false), Err(AuthError::SecretFile { .. })));
        for (text, accepted) in [("k".repeat(31) + "\n", false), (" ".to_owned() + &"k".repeat(32), true)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(prepared(&flags, false).is_ok(), accepted);
        }
        assert_eq!(check(&prepared(&flags, false).unwrap().of(false), "x"), Err(AuthRefusal::InvalidJwt));
    }
}
