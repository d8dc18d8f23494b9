//! Where a server is, and what may be sent there.

use std::fmt;
use std::path::PathBuf;

use tokio_tungstenite::tungstenite::http::{HeaderValue, Uri};

use crate::backend::{ExecServerError, Result};
use crate::outbound::Endpoint;

/// The destination of a connection, parsed and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) target: Target,
    /// The `Host` header.
    pub(super) host: String,
    /// Path and query, as given.
    pub(super) path: String,
}

/// What to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A place on a network, or on this machine.
    Network(Endpoint),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Parses `ws://host[:port][/path]`, `wss://host[:port][/path]` or `unix:/path`.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] with what is wrong and what would be right.
    pub(super) fn parse(url: &str) -> Result<Self> {
        if let Some(path) = url.strip_prefix("unix:") {
            return Self::unix(path);
        }
        let tls = url.starts_with("wss://");
        if !tls && !url.starts_with("ws://") {
            return refuse(format!("the server URL `{url}` must start with ws://, wss:// or unix:/"));
        }
        match url.parse::<Uri>() {
            Ok(uri) => Self::network(&uri, tls),
            Err(error) => refuse(format!("the server URL `{url}` is not a valid URL: {error}")),
        }
    }

    fn unix(path: &str) -> Result<Self> {
        if !path.starts_with('/') {
            return refuse(format!(
                "`unix:{path}` must name an absolute path, as in unix:/run/exec-server.sock"
            ));
        }
        Ok(Self { target: Target::Unix(path.into()), host: "localhost".into(), path: "/".into() })
    }

    fn network(uri: &Uri, tls: bool) -> Result<Self> {
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
            return refuse(format!("the server URL `{uri}` names no host"));
        };
        let port = uri.port_u16();
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let default = if tls { 443 } else { 80 };
        Ok(Self {
            target: Target::Network(Endpoint { host: name, port: port.unwrap_or(default), tls }),
            host: port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), absolute),
        })
    }

    /// Whether nobody between here and there can read what is sent.
    fn is_private(&self) -> bool {
        match &self.target {
            Target::Unix(_) => true,
            Target::Network(endpoint) => endpoint.tls || endpoint.is_loopback(),
        }
    }
}

fn absolute(path: &tokio_tungstenite::tungstenite::http::uri::PathAndQuery) -> String {
    let path = path.as_str();
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Without user info and query, which may be secrets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Network(endpoint) => {
                let path = self.path.split('?').next().unwrap_or_default();
                write!(f, "{}://{}{}", endpoint.scheme(), self.host, path.trim_end_matches('/'))
            }
        }
    }
}

/// The optional headers of the upgrade, sent again with every reconnect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) authorization: Option<HeaderValue>,
    pub(super) request_id: Option<HeaderValue>,
}

impl Headers {
    /// The headers of a token and a request id.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] for an empty token, for values that are no header values, and for a destination
    /// that they would reach in clear text over a network.
    pub(super) fn new(
        bearer_token: Option<&str>,
        request_id: Option<&str>,
        address: &Address,
    ) -> Result<Self> {
        let wanted = bearer_token.is_some() || request_id.is_some();
        if wanted && !address.is_private() {
            return refuse(format!(
                "headers would travel to {address} in clear text: use a wss:// URL or a loopback address"
            ));
        }
        Ok(Self {
            authorization: bearer_token.map(bearer).transpose()?,
            request_id: request_id.map(|id| header("x-request-id", id)).transpose()?,
        })
    }
}

fn bearer(token: &str) -> Result<HeaderValue> {
    if token.is_empty() {
        return refuse("the bearer token is empty".into());
    }
    let mut value = header("the bearer token", &format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn header(name: &str, value: &str) -> Result<HeaderValue> {
    let value = HeaderValue::from_bytes(value.as_bytes());
    value.or_else(|_| refuse(format!("{name} has control characters, which no header can carry")))
}

fn refuse<T>(why: String) -> Result<T> {
    Err(ExecServerError::Protocol(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use test_case::test_case;

    #[test_case("ws://127.0.0.1:8765", "127.0.0.1", 8765, "127.0.0.1:8765", "/")]
    #[test_case("ws://host", "host", 80, "host", "/")]
    #[test_case("wss://host/x", "host", 443, "host", "/x")]
    #[test_case("ws://u:p@host:1/a/../b?t=1#f", "host", 1, "host:1", "/a/../b?t=1")]
    #[test_case("ws://host:1?t=1", "host", 1, "host:1", "/?t=1")]
    #[test_case("ws://[::1]:9/", "::1", 9, "[::1]:9", "/")]
    fn network_urls(url: &str, name: &str, port: u16, host: &str, path: &str) {
        let address = Address::parse(url).unwrap();
        let tls = url.starts_with("wss");
        assert_eq!(address.target, Target::Network(Endpoint { host: name.into(), port, tls }));
        assert_eq!((address.host.as_str(), address.path.as_str()), (host, path));
    }

    #[test]
    fn socket_paths() {
        let address = Address::parse("unix:/run/x.sock").unwrap();
        assert_eq!(address.target, Target::Unix("/run/x.sock".into()));
        assert_eq!(address.to_string(), "unix:/run/x.sock");
    }

    #[test_case("WSS://host:1", "must start with")]
    #[test_case("http://host:1", "must start with")]
    #[test_case("WS://host:1", "must start with")]
    #[test_case("unix:relative", "absolute")]
    #[test_case("ws://", "")]
    #[test_case("ws://h o:1", "")]
    fn refused_urls(url: &str, part: &str) {
        let error = Address::parse(url).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn messages_carry_no_secrets() {
        let address = Address::parse("ws://user:secret@host:1/p?token=secret").unwrap();
        assert_eq!(address.to_string(), "ws://host:1/p");
    }

    fn with_token(url: &str, token: &str) -> Result<Headers> {
        Headers::new(Some(token), None, &Address::parse(url).unwrap())
    }

    #[test_case("ws://localhost:1", true)]
    #[test_case("ws://LOCALHOST:1", true)]
    #[test_case("ws://127.9.9.9:1", true)]
    #[test_case("ws://[::1]:1", true)]
    #[test_case("wss://box:1", true; "by TLS")]
    #[test_case("unix:/s", true)]
    #[test_case("ws://0.0.0.0:1", false)]
    #[test_case("ws://10.0.0.1:1", false)]
    #[test_case("ws://127.0.0.1.example:1", false)]
    #[test_case("ws://box:1", false)]
    fn a_token_stays_on_this_machine(url: &str, allowed: bool) {
        assert_eq!(with_token(url, "t").is_ok(), allowed);
    }

    #[test]
    fn tokens_are_sent_verbatim_or_refused() {
        let headers = with_token("ws://localhost:1", " tök ").unwrap();
        assert_eq!(headers.authorization.unwrap().as_bytes(), "Bearer  tök ".as_bytes());
        assert!(with_token("ws://localhost:1", "").is_err());
        assert!(with_token("ws://localhost:1", "a\nb").is_err());
    }
}
