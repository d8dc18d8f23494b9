use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path that a socket address holds, without its final zero byte.
const MAX_SOCKET_PATH: usize = 107;

/// Where to listen, as it is written in `--listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// WebSocket over TCP; with TLS, if there is a certificate.
    Tcp {
        /// The address or name to bind.
        host: Host,
        /// 0 lets the kernel choose.
        port: u16,
        /// Written `wss://`: never without TLS.
        secure: bool,
    },
    /// WebSocket over a unix socket at an absolute path.
    Unix(PathBuf),
    /// One connection on stdin and stdout.
    Stdio,
}

/// The host part of a TCP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name, resolved when it is bound.
    Name(String),
}

/// Why a text is no address to listen on, and what would be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AddressError {
    #[error("it is empty; expected ws://HOST:PORT, unix:/absolute/path or stdio")]
    Empty,
    #[error("the port is missing; expected HOST:PORT, such as 0.0.0.0:8765")]
    MissingPort,
    #[error("the port must be a number from 0 to 65535")]
    BadPort,
    #[error("the host is missing; 0.0.0.0:PORT listens on all IPv4 addresses, 127.0.0.1:PORT on loopback")]
    MissingHost,
    #[error(
        "the host must be an IP address or a host name; an IPv6 address stands in brackets, such as [::1]:8765"
    )]
    BadHost,
    #[error(
        "a path, a query or a slash at the end cannot be listened on; expected ws://HOST:PORT and nothing after it"
    )]
    Path,
    #[error(
        "the scheme must be ws:// or wss:// in lower case; expected ws://HOST:PORT, unix:/absolute/path or stdio"
    )]
    Scheme,
    #[error("a unix socket is written unix:/absolute/path, with one slash after the colon")]
    UnixPath,
    #[error("the path of a unix socket may have at most {MAX_SOCKET_PATH} bytes")]
    LongUnixPath,
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if matches!(text, "stdio" | "stdio://") {
            return Ok(Self::Stdio);
        }
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path);
        }
        match text.split_once("://") {
            None => tcp(text, false),
            Some(("ws", rest)) => tcp(rest, false),
            Some(("wss", rest)) => tcp(rest, true),
            Some(_) => Err(AddressError::Scheme),
        }
    }
}

fn unix(path: &str) -> Result<ListenAddress, AddressError> {
    if !path.starts_with('/')
        || path.starts_with("//")
        || path.ends_with('/')
        || path.contains(char::is_control)
    {
        return Err(AddressError::UnixPath);
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(AddressError::LongUnixPath);
    }
    Ok(ListenAddress::Unix(path.into()))
}

fn tcp(text: &str, secure: bool) -> Result<ListenAddress, AddressError> {
    if text.contains(['/', '?', '#']) {
        return Err(AddressError::Path);
    }
    let (host, port) = split_port(text)?;
    let host = parse_host(host)?;
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AddressError::BadPort);
    }
    Ok(ListenAddress::Tcp { host, port: port.parse().map_err(|_| AddressError::BadPort)?, secure })
}

fn split_port(text: &str) -> Result<(&str, &str), AddressError> {
    let (host, port) = text.rsplit_once(':').ok_or(AddressError::MissingPort)?;
    if host.starts_with('[') && !host.ends_with(']') {
        return Err(if text.ends_with(']') { AddressError::MissingPort } else { AddressError::BadHost });
    }
    if port.is_empty() { Err(AddressError::MissingPort) } else { Ok((host, port)) }
}

fn parse_host(text: &str) -> Result<Host, AddressError> {
    if text.is_empty() {
        return Err(AddressError::MissingHost);
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().map(|ip| Host::Ip(ip.into())).map_err(|_| AddressError::BadHost);
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    if is_name(text) { Ok(Host::Name(text.to_ascii_lowercase())) } else { Err(AddressError::BadHost) }
}

/// A name ends in a label that is no number: `256.1.1.1` is a mistyped address, not a name.
fn is_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, secure: false } => write!(f, "ws://{host}:{port}"),
            Self::Tcp { host, port, secure: true } => write!(f, "wss://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Stdio => f.write_str("stdio"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    #[test_case("ws://127.0.0.1:0", "ws://127.0.0.1:0")]
    #[test_case("127.0.0.1:65535", "ws://127.0.0.1:65535")]
    #[test_case("0.0.0.0:8765", "ws://0.0.0.0:8765")]
    #[test_case("[::1]:80", "ws://[::1]:80")]
    #[test_case("ws://[::]:0", "ws://[::]:0")]
    #[test_case("LocalHost:1", "ws://localhost:1"; "name")]
    #[test_case("ws://my_box.example.:1", "ws://my_box.example.:1")]
    #[test_case("wss://0.0.0.0:8765", "wss://0.0.0.0:8765")]
    #[test_case("unix:/run/exec server.sock", "unix:/run/exec server.sock")]
    #[test_case("stdio", "stdio"; "stdio")]
    #[test_case("stdio://", "stdio"; "stdio with scheme")]
    fn accepted(text: &str, shown: &str) {
        let address: ListenAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), shown);
        assert_eq!(shown.parse(), Ok(address));
    }

    #[test_case("", AddressError::Empty; "empty")]
    #[test_case("ws://", AddressError::MissingPort; "nothing")]
    #[test_case("ws://127.0.0.1", AddressError::MissingPort; "no port")]
    #[test_case("127.0.0.1:", AddressError::MissingPort; "empty port")]
    #[test_case("[::1]", AddressError::MissingPort; "no port after brackets")]
    #[test_case("8765", AddressError::MissingPort; "a port alone")]
    #[test_case(":8765", AddressError::MissingHost; "no host")]
    #[test_case("ws://127.0.0.1:0/", AddressError::Path; "slash")]
    #[test_case("127.0.0.1:0/ws", AddressError::Path; "path")]
    #[test_case("127.0.0.1:0?x", AddressError::Path; "query")]
    #[test_case("http://127.0.0.1:0", AddressError::Scheme; "http")]
    #[test_case("WS://127.0.0.1:0", AddressError::Scheme; "upper case")]
    #[test_case("unix://", AddressError::UnixPath; "unix url")]
    #[test_case("unix:///run/x", AddressError::UnixPath; "unix url with path")]
    #[test_case("unix:", AddressError::UnixPath; "unix alone")]
    #[test_case("unix:run/x", AddressError::UnixPath; "relative")]
    #[test_case("unix:/run/", AddressError::UnixPath; "directory")]
    #[test_case("127.0.0.1:65536", AddressError::BadPort; "large port")]
    #[test_case("127.0.0.1:+1", AddressError::BadPort; "signed port")]
    #[test_case("a:b", AddressError::BadPort; "word port")]
    #[test_case("::1:80", AddressError::BadHost; "no brackets")]
    #[test_case("[::1:80", AddressError::BadHost; "half brackets")]
    #[test_case("[127.0.0.1]:80", AddressError::BadHost; "v4 in brackets")]
    #[test_case("256.1.1.1:80", AddressError::BadHost; "mistyped address")]
    #[test_case("user@host:80", AddressError::BadHost; "user")]
    #[test_case(" 127.0.0.1:80", AddressError::BadHost; "space")]
    fn refused(text: &str, error: AddressError) {
        assert_eq!(text.parse::<ListenAddress>(), Err(error));
    }

    #[test]
    fn a_socket_path_fits_its_address() {
        let fits = format!("unix:/{}", "x".repeat(106));
        assert!(fits.parse::<ListenAddress>().is_ok());
        assert_eq!(format!("{fits}x").parse::<ListenAddress>(), Err(AddressError::LongUnixPath));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|(ws://|unix:|\\[)?[a-z0-9.:/\\[\\]]{0,24}") {
            if let Ok(address) = text.parse::<ListenAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
