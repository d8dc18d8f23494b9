use std::fmt;
use std::str::FromStr;

use super::{Host, HostPattern, is_public};

/// Hosts that are out of bounds: `private` for all addresses that are not public, or a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// Everything that is not on the internet, whatever it is called.
    Private,
    /// What matches.
    Hosts(HostPattern),
}

impl Denial {
    /// Whether a host is out of bounds. Of a name, the addresses have to be asked about as well if
    /// [`Self::concerns_addresses`].
    #[must_use]
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Private, Host::Address(address)) => !is_public(*address),
            (Self::Private, Host::Name(_)) => host.is_localhost(),
            (Self::Hosts(pattern), host) => pattern.matches(host),
        }
    }

    /// Whether the address that a name leads to can make a difference.
    #[must_use]
    pub fn concerns_addresses(&self) -> bool {
        match self {
            Self::Private => true,
            Self::Hosts(pattern) => pattern.may_match_addresses(),
        }
    }
}

impl FromStr for Denial {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "private" {
            return Ok(Self::Private);
        }
        let pattern: HostPattern = text.parse().map_err(|error| format!("{error}; or `private`"))?;
        if pattern.is_everything() {
            return Err("expected a narrower pattern: this one denies every host".to_owned());
        }
        Ok(Self::Hosts(pattern))
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private => f.write_str("private"),
            Self::Hosts(pattern) => write!(f, "{pattern}"),
        }
    }
}
