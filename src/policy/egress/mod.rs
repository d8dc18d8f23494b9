//! Where a process with a proxy of its own may connect, pure: nothing here resolves a name or opens a connection.
//!
//! A destination is judged in steps, and the caller does what lies between them. [`EgressRules::judge`] looks at the text
//! alone; whoever is `Unlisted` is put to the client or refused; then the name is resolved, once, and
//! [`EgressRules::check_addresses`] says whether these very addresses may be dialled; [`EgressRules::check_mode`] comes last.

mod authority;
mod error;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

pub use self::authority::{Authority, AuthorityError};
pub use self::error::EgressError;
use super::hosts::{Host, HostPattern, is_public};
use crate::protocol::network::{DomainAccess, NetworkProtocol, ProxyMode, ProxySettings};

/// The most patterns that one proxy may have, in `domains` and in `reviewDomains`.
pub const MAX_PATTERNS: usize = 16_384;

/// The methods that only read.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// Behind it is TLS, so that nobody sees what is done there.
const TLS_PORT: u16 = 443;

/// The rules of one proxy.
#[derive(Debug, Clone)]
pub struct EgressRules {
    allow: Vec<HostPattern>,
    /// What of `allow` is the very text of a host.
    literals: HashSet<Host>,
    deny: Vec<HostPattern>,
    review: Vec<HostPattern>,
    allows_local: bool,
    mode: ProxyMode,
}

/// What the text of a destination says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// A rule allows it.
    Allowed,
    /// It has to be asked about: no rule allows it, or one wants it confirmed.
    Unlisted,
    /// It is refused, whoever would allow it.
    Refused(Refusal),
}

/// Why a destination is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A rule denies it.
    Denied,
    /// No rule allows it.
    NotAllowed,
    /// It is not on the internet, or cannot be shown to be.
    NotAllowedLocal,
    /// Only reading is allowed, and this method may write.
    MethodNotAllowed,
    /// Only reading is allowed, and nobody could see what this tunnel does.
    MitmRequired,
}

impl Refusal {
    /// The word for it on the wire.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::NotAllowed => "not_allowed",
            Self::NotAllowedLocal => "not_allowed_local",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::MitmRequired => "mitm_required",
        }
    }
}

impl EgressRules {
    /// Reads the rules of a proxy's settings.
    ///
    /// # Errors
    /// A pattern that means nothing, or denies everything.
    pub fn new(settings: &ProxySettings) -> Result<Self, EgressError> {
        let none = BTreeMap::new();
        let domains = settings.domains.as_ref().unwrap_or(&none);
        if domains.len() + settings.review_domains.len() > MAX_PATTERNS {
            return Err(EgressError::TooMany);
        }
        let (mut allow, mut deny) = (Vec::new(), Vec::new());
        for (text, access) in domains {
            let pattern = pattern("domains", text)?;
            match access {
                DomainAccess::None => {}
                DomainAccess::Allow => allow.push(pattern),
                DomainAccess::Deny if pattern.is_everything() => {
                    return Err(EgressError::DeniesEverything { pattern: text.clone() });
                }
                DomainAccess::Deny => deny.push(pattern),
            }
        }
        let review = settings.review_domains.iter().map(|text| pattern("reviewDomains", text));
        Ok(Self {
            literals: literals(&allow),
            allow,
            deny,
            review: review.collect::<Result<_, _>>()?,
            allows_local: settings.allow_local_binding,
            mode: settings.mode,
        })
    }

    /// The first step: what can be said of a host by its text.
    #[must_use]
    pub fn judge(&self, host: &Host) -> Judgement {
        let matches = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.matches(host));
        if matches(&self.deny) {
            Judgement::Refused(Refusal::Denied)
        } else if !self.allows_local && is_local(host) && !self.literals.contains(host) {
            Judgement::Refused(Refusal::NotAllowedLocal)
        } else if matches(&self.review) || !matches(&self.allow) {
            Judgement::Unlisted
        } else {
            Judgement::Allowed
        }
    }

    /// The step after the lookup: whether all of these addresses of a host may be dialled. There are none where the lookup
    /// failed.
    ///
    /// # Errors
    /// One of them may not, or nothing is known of a host that has to be on the internet.
    pub fn check_addresses(&self, host: &Host, found: &[IpAddr]) -> Result<(), Refusal> {
        let is_denied = |address: &IpAddr| {
            let address = Host::from(*address);
            self.deny.iter().any(|pattern| pattern.matches(&address))
        };
        if found.iter().any(is_denied) {
            return Err(Refusal::Denied);
        }
        let may_be_dialled = match host {
            Host::Address(_) => true,
            _ if self.allows_local => true,
            // It is here by a rule of its own, and must not lead elsewhere.
            Host::Name(name) if name == LOCALHOST => found.iter().all(IpAddr::is_loopback),
            Host::Name(_) => !found.is_empty() && found.iter().all(|address| is_public(*address)),
        };
        if may_be_dialled { Ok(()) } else { Err(Refusal::NotAllowedLocal) }
    }

    /// The last step: whether the mode lets this be done. `method` is that of HTTP.
    ///
    /// # Errors
    /// The mode is for reading only, and this may be more.
    pub fn check_mode(
        &self,
        protocol: NetworkProtocol,
        method: Option<&str>,
        port: u16,
    ) -> Result<(), Refusal> {
        match (self.mode, protocol) {
            (ProxyMode::Full, _) => Ok(()),
            (ProxyMode::Limited, NetworkProtocol::Http) => match method {
                Some(method) if READING.contains(&method) => Ok(()),
                _ => Err(Refusal::MethodNotAllowed),
            },
            (ProxyMode::Limited, NetworkProtocol::HttpsConnect) => Err(Refusal::MitmRequired),
            (ProxyMode::Limited, NetworkProtocol::Socks5Tcp | NetworkProtocol::Socks5Udp) => {
                Err(if port == TLS_PORT { Refusal::MitmRequired } else { Refusal::MethodNotAllowed })
            }
        }
    }

    /// Whether only reading is allowed.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.mode == ProxyMode::Limited
    }
}

/// The one name that means this machine by itself.
pub const LOCALHOST: &str = "localhost";

/// Whether a text alone says that a host is not on the internet. Other names have to be resolved first.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Address(address) => !is_public(*address),
        Host::Name(name) => name == LOCALHOST,
    }
}

/// An address counts in one form only: others of it may lead elsewhere.
fn literals(patterns: &[HostPattern]) -> HashSet<Host> {
    let literal = patterns.iter().filter(|pattern| pattern.is_literal());
    literal.filter_map(|pattern| pattern.to_string().parse().ok()).collect()
}

fn pattern(field: &'static str, text: &str) -> Result<HostPattern, EgressError> {
    text.parse().map_err(|reason| EgressError::Pattern { field, pattern: text.to_owned(), reason })
}
