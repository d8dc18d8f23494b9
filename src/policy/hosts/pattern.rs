use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{Host, address, embedded_ipv4};

/// Hosts, by their names or addresses: `example.com` itself, `*.example.com` everything below it, `**.example.com` both,
/// `*` everything. Inside a label `*` is any text and `?` one character. An address matches in whatever form it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// As it was written.
    text: String,
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Everything,
    Address(IpAddr),
    /// Labels, the last one first, behind what may stand below them.
    Labels(Below, Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Nothing,
    Something,
    Anything,
}

/// What is wrong with a pattern, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a pattern of hosts.
    #[error(
        "expected a host name, an IP address, or a pattern such as *.example.com, without scheme, port and path"
    )]
    Form,
    /// It has letters beyond ASCII.
    #[error("expected the ASCII form of an international name (xn--…)")]
    NotAscii,
    /// It could be meant for addresses, and would match none.
    #[error("expected all four parts of an address, such as 10.*.*.*")]
    PartOfAddress,
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if !text.is_ascii() {
            return Err(PatternError::NotAscii);
        }
        Ok(Self { text: text.to_owned(), form: form(text)? })
    }
}

fn form(text: &str) -> Result<Form, PatternError> {
    if matches!(text, "*" | "**.*") {
        return Ok(Form::Everything);
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    if let Some(address) = address::literal(text) {
        return Ok(Form::Address(address.to_canonical()));
    }
    let (below, rest) = match (text.strip_prefix("**."), text.strip_prefix("*.")) {
        (Some(rest), _) => (Below::Anything, rest),
        (None, Some(rest)) if !is_address_like(text) => (Below::Something, rest),
        _ => (Below::Nothing, text),
    };
    let labels: Vec<String> = rest.rsplit('.').map(str::to_ascii_lowercase).collect();
    if labels.iter().any(|label| !is_label(label)) {
        return Err(PatternError::Form);
    }
    if is_address_like(rest) && (labels.len() != 4 || below != Below::Nothing) {
        return Err(PatternError::PartOfAddress);
    }
    Ok(Form::Labels(below, labels))
}

fn is_label(label: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_*?".contains(&byte);
    !label.is_empty() && !label.contains("**") && label.bytes().all(allowed)
}

/// Digits, dots and wildcards only, with a digit.
fn is_address_like(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_digit() || b".*?".contains(&byte);
    text.bytes().all(allowed) && text.bytes().any(|byte| byte.is_ascii_digit())
}

impl HostPattern {
    /// Whether every host matches.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.form == Form::Everything
    }

    /// Whether the pattern is a host's very name or address, without wildcards.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        match &self.form {
            Form::Everything => false,
            Form::Address(_) => true,
            Form::Labels(below, labels) => {
                *below == Below::Nothing && !labels.iter().any(|label| label.contains(['*', '?']))
            }
        }
    }

    /// Whether an address can match, and not only names.
    #[must_use]
    pub fn may_match_addresses(&self) -> bool {
        let may_be_part =
            |label: &String| label.bytes().all(|byte| byte.is_ascii_digit() || b"*?".contains(&byte));
        match &self.form {
            Form::Everything | Form::Address(_) => true,
            Form::Labels(_, labels) => labels.iter().all(may_be_part),
        }
    }

    /// Whether a host matches.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match (&self.form, host) {
            (Form::Everything, _) => true,
            (Form::Address(pattern), Host::Address(address)) => are_same(*pattern, *address),
            (Form::Address(_), Host::Name(_)) => false,
            (Form::Labels(below, labels), Host::Name(name)) => match_labels(*below, labels, name),
            (Form::Labels(below, labels), Host::Address(address)) => {
                ipv4_of(*address).is_some_and(|address| match_labels(*below, labels, &address.to_string()))
            }
        }
    }
}

fn ipv4_of(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(_) => Some(address),
        IpAddr::V6(address) => embedded_ipv4(address).map(IpAddr::V4),
    }
}

fn are_same(pattern: IpAddr, address: IpAddr) -> bool {
    pattern == address || ipv4_of(address).is_some_and(|inner| ipv4_of(pattern) == Some(inner))
}

fn match_labels(below: Below, labels: &[String], name: &str) -> bool {
    let mut given = name.rsplit('.');
    let all = labels
        .iter()
        .all(|label| given.next().is_some_and(|text| is_match(label.as_bytes(), text.as_bytes())));
    all && match below {
        Below::Nothing => given.next().is_none(),
        Below::Something => given.next().is_some_and(|text| !text.is_empty()),
        Below::Anything => true,
    }
}

/// `*` is any text, `?` one character. Takes time in proportion to the product of both lengths at most.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[place] => {
                at += 1;
                place += 1;
            }
            // The last star takes one more.
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    (at, place) = (star_at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
