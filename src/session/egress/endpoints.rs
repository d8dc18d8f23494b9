//! Proxies that somebody else runs on this machine, as the variables of a start name them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::process::env::Variables;
use crate::protocol::network::{ALL_VARIABLES, BYPASS_VARIABLES, HTTP_VARIABLES};

/// Endpoints that one start may have.
const ENDPOINTS: usize = 32;

/// Why no endpoint can be made of what a start says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EndpointError {
    /// A variable names none.
    #[error(
        "`enforceManagedNetwork`: the variable `{name}` must name a proxy on the loopback of this machine, such as \
         http://127.0.0.1:3128: {why}"
    )]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A variable names one that the client has not listed.
    #[error("the proxy variable `{0}` names a port that is not in `managedNetwork.loopbackPorts`")]
    Unlisted(String),
    /// No variable names one.
    #[error(
        "`enforceManagedNetwork` needs `networkProxy`, or variables such as `HTTP_PROXY` in `env` that name a proxy"
    )]
    None,
    /// There are too many.
    #[error("`enforceManagedNetwork`: the variables name more than {ENDPOINTS} proxies")]
    TooMany,
}

/// The different endpoints that the variables name. With `listed`, these ports only.
///
/// # Errors
/// One variable that is of no use is enough: what it names would not be there.
pub(super) fn find(variables: &Variables, listed: &[u16]) -> Result<Vec<SocketAddr>, EndpointError> {
    let mut found = Vec::new();
    for (name, value) in variables.iter().filter(|(name, value)| is_address(name) && !value.is_empty()) {
        let unusable =
            |why| EndpointError::Variable { name: String::from_utf8_lossy(name).into_owned(), why };
        let address = Parts::of(value).ok_or("it is not the URL of one").and_then(|parts| parts.address());
        let address = address.map_err(unusable)?;
        if !listed.is_empty() && !listed.contains(&address.port()) {
            return Err(EndpointError::Unlisted(String::from_utf8_lossy(name).into_owned()));
        }
        if !found.contains(&address) {
            found.push(address);
        }
    }
    match found.len() {
        0 => Err(EndpointError::None),
        1..=ENDPOINTS => Ok(found),
        _ => Err(EndpointError::TooMany),
    }
}

/// Has the variables name other ports of 127.0.0.1 instead, and nothing bypass them.
pub(super) fn redirect(variables: &mut Variables, port: impl Fn(SocketAddr) -> Option<u16>) {
    for (name, value) in variables.iter_mut() {
        if is_named(name, &BYPASS_VARIABLES) {
            value.clear();
        } else if is_address(name)
            && let Some(parts) = Parts::of(value)
            && let Ok(address) = parts.address()
            && let Some(port) = port(address)
        {
            *value = parts.with_port(port).into_bytes();
        }
    }
    for name in BYPASS_VARIABLES {
        variables.insert(name.into(), Vec::new());
    }
}

fn is_address(name: &[u8]) -> bool {
    is_named(name, &HTTP_VARIABLES) || is_named(name, &ALL_VARIABLES)
}

fn is_named(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// `scheme://user@host:port/rest`, of which only host and port are needed.
struct Parts<'a> {
    before: &'a str,
    host: &'a str,
    after: &'a str,
}

impl<'a> Parts<'a> {
    fn of(value: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let begin = text.find("://").map_or(0, |at| at + 3);
        let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |at| begin + at);
        let begin = text[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
        Some(Self { before: &text[..begin], host: &text[begin..end], after: &text[end..] })
    }

    fn address(&self) -> Result<SocketAddr, &'static str> {
        let address = match self.host.strip_prefix("localhost:").map(str::parse) {
            Some(Ok(port)) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            _ => self.host.parse::<SocketAddr>(),
        };
        let address = address.map_err(|_| "it has no address with a port")?;
        if !address.ip().is_loopback() {
            return Err("its address is not of the loopback");
        }
        if address.port() == 0 { Err("its port is 0") } else { Ok(address) }
    }

    fn with_port(&self, port: u16) -> String {
        format!("{}127.0.0.1:{port}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test_case("http://127.0.0.1:3128", "http://127.0.0.1:9"; "plain")]
    #[test_case("127.0.0.1:3128", "127.0.0.1:9"; "no scheme")]
    #[test_case("socks5h://user:p%40ss@localhost:3128/x?y", "socks5h://user:p%40ss@127.0.0.1:9/x?y"; "with everything")]
    #[test_case("http://[::1]:3128/", "http://127.0.0.1:9/"; "ipv6")]
    #[test_case("http://a@b@127.9.9.9:3128", "http://a@b@127.9.9.9:3128"; "another address")]
    fn only_host_and_port_change(value: &str, expected: &str) {
        let mut given =
            variables(&[("HTTPS_proxy", value), ("no_proxy", "*"), ("OTHER", "http://127.0.0.1:3128")]);
        let found = find(&given, &[3128]).unwrap();
        assert_eq!(found.len(), 1);
        redirect(&mut given, |address| (!address.to_string().starts_with("127.9")).then_some(9));
        assert_eq!(given[b"HTTPS_proxy".as_slice()], expected.as_bytes());
        assert_eq!(given[b"OTHER".as_slice()], b"http://127.0.0.1:3128");
        assert!(given[b"no_proxy".as_slice()].is_empty() && given[b"NO_PROXY".as_slice()].is_empty());
    }

    #[test_case("http://10.0.0.1:3128", "not of the loopback")]
    #[test_case("http://proxy.test:3128", "no address with a port")]
    #[test_case("http://127.0.0.1", "no address with a port")]
    #[test_case("http://127.0.0.1:0", "port is 0")]
    #[test_case("http://127.0.0.1:3129", "loopbackPorts")]
    #[test_case("http://127.0.0.1:3128@evil.test:80", "no address with a port")]
    #[test_case("http://0.0.0.0:3128", "not of the loopback")]
    #[test_case("http://[::ffff:127.0.0.1]:3128", "not of the loopback")]
    fn one_bad_variable_is_enough(value: &str, part: &str) {
        let given = variables(&[("HTTP_PROXY", "http://127.0.0.1:3128"), ("pip_proxy", value)]);
        let error = find(&given, &[3128]).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("`pip_proxy`"), "{error}");
    }

    #[test]
    fn endpoints_count_once_and_have_to_be_there() {
        let given = variables(&[
            ("HTTP_PROXY", "http://127.0.0.1:1"),
            ("HTTPS_PROXY", "http://u@127.0.0.1:1/"),
            ("ALL_PROXY", "socks5h://127.0.0.1:2"),
            ("FTP_PROXY", ""),
        ]);
        let ports: Vec<u16> = find(&given, &[]).unwrap().iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), 2);
        assert_eq!(find(&variables(&[("FTP_PROXY", ""), ("PATH", "/")]), &[]), Err(EndpointError::None));
    }
}
