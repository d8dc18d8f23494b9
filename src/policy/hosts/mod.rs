//! Which hosts are meant: patterns of host names, hosts as requests name them, and which addresses are public.
//!
//! A host is an address or a name, never both: text that a resolver might take for an address, such as `0x7f.1`, is a
//! name here and matches no pattern of an address. Whoever decides by patterns has to ask about the addresses that the
//! name leads to as well.

mod address;
mod denial;
mod pattern;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

pub use self::address::{embedded_ipv4, is_public};
pub use self::denial::Denial;
pub use self::pattern::{HostPattern, PatternError};

/// Bytes that the name of a host may have.
const NAME_BYTES: usize = 253;

/// A host, in the form in which hosts are compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address. One of IPv4 in a form of IPv6 is one of IPv4.
    Address(IpAddr),
    /// In lower case, without a dot at its end.
    Name(String),
}

/// No text that can name a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a host or an IP address, without scheme, port and path")]
pub struct HostError;

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if let Some(address) = address::literal(text) {
            return Ok(address.into());
        }
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"/\\:[]@?#%*".contains(&byte);
        let is_long = text.len() > NAME_BYTES;
        if is_long || !text.bytes().all(is_name) || text.split('.').any(str::is_empty) {
            return Err(HostError);
        }
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Host {
    /// Whether it means this machine by its very text.
    #[must_use]
    pub fn is_localhost(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}
