//! Who may connect: the `Authorization` header of an upgrade against what is configured.
//!
//! Tokens are compared by digest in constant time, and neither logged nor kept in clear. A file of tokens that turns
//! unreadable keeps its last good content: a server neither opens nor closes by a failed rotation.

mod capability;
mod setup;
mod signed;
pub mod token;

use std::fmt::Display;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};

use capability::Tokens;
pub use setup::{AuthError, Authentication};
use sha2::{Digest, Sha256};
use signed::SignedTokens;

/// Why an upgrade is refused; the text is the body of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AuthRefusal {
    #[error("missing client certificate")]
    NoCertificate,
    #[error("missing websocket bearer token")]
    Missing,
    #[error("invalid authorization header")]
    InvalidHeader,
    #[error("invalid websocket bearer token")]
    WrongToken,
    #[error("invalid websocket jwt")]
    InvalidJwt,
    #[error("expired websocket jwt")]
    Expired,
    #[error("websocket jwt is not valid yet")]
    NotYetValid,
    #[error("websocket jwt issuer mismatch")]
    Issuer,
    #[error("websocket jwt audience mismatch")]
    Audience,
}

impl AuthRefusal {
    /// Always 401.
    pub const STATUS: StatusCode = StatusCode::UNAUTHORIZED;
}

/// Decides about the upgrades of one listener.
#[derive(Debug)]
pub struct Authenticator {
    rule: Rule,
    failure_delay: Duration,
}

#[derive(Debug)]
enum Rule {
    Open,
    Capability(Tokens),
    Signed(SignedTokens),
}

impl Authenticator {
    const fn open() -> Self {
        Self { rule: Rule::Open, failure_delay: Duration::ZERO }
    }

    /// Everybody passes.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.rule, Rule::Open)
    }

    /// Whether a request with these headers may upgrade, and by which token, as [`label`] names it. It may block on the
    /// disk.
    pub fn check(&self, headers: &HeaderMap) -> Result<Option<String>, AuthRefusal> {
        match &self.rule {
            Rule::Open => return Ok(None),
            Rule::Capability(tokens) => tokens.check(bearer(headers)?),
            Rule::Signed(rules) => rules.check(bearer(headers)?),
        }?;
        Ok(Some(label(bearer(headers)?.as_bytes())))
    }

    /// Logs a refused attempt, and says for how long the caller must hold its answer back.
    #[must_use]
    pub fn refused(&self, peer: &dyn Display, refusal: AuthRefusal) -> Duration {
        tracing::warn!(%peer, reason = %refusal, "authentication failed");
        self.failure_delay
    }
}

/// A name for what somebody has proved to have, which does not tell it: the beginning of its digest.
#[must_use]
pub fn label(secret: &[u8]) -> String {
    let digest = Sha256::digest(secret);
    let hex: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The token of the first `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthRefusal> {
    let header = headers.get(AUTHORIZATION).ok_or(AuthRefusal::Missing)?;
    let text = header.to_str().map_err(|_| AuthRefusal::InvalidHeader)?;
    let (scheme, token) = text.split_once(' ').ok_or(AuthRefusal::InvalidHeader)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(AuthRefusal::InvalidHeader);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use test_case::test_case;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_bytes(value).unwrap())).collect()
    }

    #[test_case(b"Bearer abc")]
    #[test_case(b"bEARER   abc  "; "case and spaces")]
    fn a_token_is_found(value: &[u8]) {
        assert_eq!(bearer(&headers(&[value])), Ok("abc"));
    }

    #[test_case(b""; "empty")]
    #[test_case(b"Bearer"; "scheme alone")]
    #[test_case(b"Bearer "; "empty token")]
    #[test_case(b"Bearer\tabc"; "tab")]
    #[test_case(b"Basic abc"; "scheme")]
    #[test_case(b"abc def"; "no scheme")]
    #[test_case(b"Bearer \xe4"; "not ascii")]
    fn a_malformed_header_is_refused(value: &[u8]) {
        assert_eq!(bearer(&headers(&[value])), Err(AuthRefusal::InvalidHeader));
    }

    #[test]
    fn the_first_header_counts() {
        assert_eq!(bearer(&headers(&[])), Err(AuthRefusal::Missing));
        assert_eq!(bearer(&headers(&[b"Bearer a", b"Bearer b"])), Ok("a"));
        assert!(Authenticator::open().check(&headers(&[])).is_ok());
    }
}
