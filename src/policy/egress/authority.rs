use std::fmt;
use std::str::FromStr;

use crate::policy::hosts::Host;

/// A host as it was written, and perhaps a port: `example.com`, `example.com:80`, `[::1]:80`. What a host may be is not
/// checked here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Without brackets and not empty.
    pub host: String,
    /// `None` where none was written, or an empty one.
    pub port: Option<u16>,
}

/// No host, or no port where one has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected HOST or HOST:PORT, an IPv6 address in brackets, without user name")]
pub struct AuthorityError;

impl Authority {
    /// Whether both mean the same place, if `default` is the port that need not be written.
    #[must_use]
    pub fn is_same(&self, other: &Self, default: u16) -> bool {
        self.port.unwrap_or(default) == other.port.unwrap_or(default)
            && match (self.host.parse::<Host>(), other.host.parse::<Host>()) {
                (Ok(one), Ok(other)) => one == other,
                _ => self.host.eq_ignore_ascii_case(&other.host),
            }
    }
}

impl FromStr for Authority {
    type Err = AuthorityError;

    fn from_str(text: &str) -> Result<Self, AuthorityError> {
        let (host, port) = split(text).ok_or(AuthorityError)?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"[]@/\\?#".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_plain) {
            return Err(AuthorityError);
        }
        Ok(Self { host: host.to_owned(), port: port_of(port)? })
    }
}

/// The host without its brackets, and what stands behind the colon.
fn split(text: &str) -> Option<(&str, &str)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        let port = if rest.is_empty() { rest } else { rest.strip_prefix(':')? };
        return host.contains(':').then_some((host, port));
    }
    match text.split_once(':') {
        None => Some((text, "")),
        Some((_, port)) if port.contains(':') => None,
        Some(parts) => Some(parts),
    }
}

fn port_of(text: &str) -> Result<Option<u16>, AuthorityError> {
    if text.is_empty() {
        return Ok(None);
    }
    // `+80` would parse too.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if is_number { text.parse().ok() } else { None };
    port.map(Some).ok_or(AuthorityError)
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') { write!(f, "[{}]", self.host) } else { f.write_str(&self.host) }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}
