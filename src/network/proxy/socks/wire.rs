//! The messages of SOCKS5 (RFC 1928), pure.
//!
//! There are three of a few bytes each. Crates for them come with a server that connects by itself, and the steps between
//! the messages are the point here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The longest greeting or request.
pub(crate) const LONGEST: usize = 3 + 2 + 255 + 2;

/// What the server says to a greeting.
pub(super) const CHOSEN: [u8; 2] = [VERSION, NO_AUTHENTICATION];
pub(super) const NOTHING_SUITS: [u8; 2] = [VERSION, 0xff];

/// What has come of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed<T> {
    /// Not all of it.
    Incomplete,
    /// It is none.
    Invalid,
    /// All of it, in so many bytes.
    Complete(T, usize),
}

impl<T> Parsed<T> {
    fn and<U>(self, next: impl FnOnce(T, usize) -> Parsed<U>) -> Parsed<U> {
        match self {
            Self::Incomplete => Parsed::Incomplete,
            Self::Invalid => Parsed::Invalid,
            Self::Complete(value, used) => next(value, used),
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// What is to be done.
    pub(crate) command: Command,
    /// With what. `None`: a kind of address that does not exist.
    pub(crate) destination: Option<Destination>,
}

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// A connection.
    Connect,
    /// Datagrams.
    Associate,
    /// Something that is not offered.
    Other,
}

/// A host as it was written, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// An address or a name, or what its bytes look like.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
}

/// The answers to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reply {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    Unreachable = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// A greeting: whether it is content without authentication.
pub(crate) fn greeting(bytes: &[u8]) -> Parsed<bool> {
    match bytes {
        [] | [VERSION] => Parsed::Incomplete,
        [VERSION, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            None => Parsed::Incomplete,
            Some(methods) => Parsed::Complete(methods.contains(&NO_AUTHENTICATION), 2 + methods.len()),
        },
        _ => Parsed::Invalid,
    }
}

/// A request.
pub(crate) fn request(bytes: &[u8]) -> Parsed<Request> {
    match bytes {
        [] | [VERSION] | [VERSION, _] => Parsed::Incomplete,
        [VERSION, command, 0, rest @ ..] => {
            let command = match command {
                1 => Command::Connect,
                3 => Command::Associate,
                _ => Command::Other,
            };
            destination(rest)
                .and(|destination, used| Parsed::Complete(Request { command, destination }, 3 + used))
        }
        _ => Parsed::Invalid,
    }
}

/// The destination of a datagram, and how long its header is. `None`: it is no datagram, or a part of one.
pub(crate) fn datagram(bytes: &[u8]) -> Option<(Destination, usize)> {
    let [0, 0, 0, rest @ ..] = bytes else { return None };
    match destination(rest) {
        Parsed::Complete(Some(destination), used) => Some((destination, 3 + used)),
        _ => None,
    }
}

/// A destination; nothing within, if it is of a kind that does not exist.
fn destination(bytes: &[u8]) -> Parsed<Option<Destination>> {
    let (length, begin) = match bytes {
        [] | [NAME] => return Parsed::Incomplete,
        [IPV4, ..] => (4, 1),
        [IPV6, ..] => (16, 1),
        [NAME, length, ..] => (usize::from(*length), 2),
        _ => return Parsed::Complete(None, bytes.len()),
    };
    let end = begin + length;
    let (Some(host), Some([high, low])) = (bytes.get(begin..end), bytes.get(end..end + 2)) else {
        return Parsed::Incomplete;
    };
    let port = u16::from_be_bytes([*high, *low]);
    Parsed::Complete(Some(Destination { host: host_text(bytes[0], host), port }), end + 2)
}

fn host_text(kind: u8, host: &[u8]) -> String {
    let address = match (kind, <[u8; 4]>::try_from(host), <[u8; 16]>::try_from(host)) {
        (IPV4, Ok(octets), _) => Some(IpAddr::V4(Ipv4Addr::from(octets))),
        (IPV6, _, Ok(octets)) => Some(IpAddr::V6(Ipv6Addr::from(octets))),
        _ => None,
    };
    address.map_or_else(|| String::from_utf8_lossy(host).into_owned(), |address| address.to_string())
}

/// The answer to a request.
pub(super) fn reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    headed([VERSION, reply as u8, 0], bound)
}

/// What stands before a datagram that comes from an address.
pub(crate) fn header(from: SocketAddr) -> Vec<u8> {
    headed([0, 0, 0], from)
}

fn headed(head: [u8; 3], address: SocketAddr) -> Vec<u8> {
    let mut message = head.to_vec();
    match address.ip().to_canonical() {
        IpAddr::V4(address) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        IpAddr::V6(address) => {
            message.push(IPV6);
            message.extend(address.octets());
        }
    }
    message.extend(address.port().to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn to(host: &str, port: u16) -> Option<Destination> {
        Some(Destination { host: host.to_owned(), port })
    }

    #[test]
    fn greetings() {
        assert_eq!(greeting(b"\x05\x02\x00\x02"), Parsed::Complete(true, 4));
        assert_eq!(greeting(b"\x05\x01\x02more"), Parsed::Complete(false, 3));
        assert_eq!(greeting(b"\x05\x00"), Parsed::Complete(false, 2));
        assert_eq!(greeting(b"\x05\x03\x00\x01"), Parsed::Incomplete);
        for other in [&b"\x04\x01"[..], b"GET / HTTP/1.1", b"\x00"] {
            assert_eq!(greeting(other), Parsed::Invalid);
        }
    }

    #[test]
    fn requests() {
        let complete = |command, destination, used| Parsed::Complete(Request { command, destination }, used);
        let connect = Command::Connect;
        assert_eq!(
            request(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"),
            complete(connect, to("127.0.0.1", 80), 10)
        );
        assert_eq!(request(b"\x05\x01\x00\x03\x01a\x01\xbbtls"), complete(connect, to("a", 443), 8));
        assert_eq!(request(b"\x05\x03\x00\x03\x00\x00\x00"), complete(Command::Associate, to("", 0), 7));
        assert_eq!(request(b"\x05\x02\x00\x02"), complete(Command::Other, None, 4));
        let v6 = [&[5, 9, 0, 4], &[0; 15][..], &[1, 0, 1]].concat();
        assert_eq!(request(&v6), complete(Command::Other, to("::1", 1), 22));
        assert_eq!(request(b"\x05\x01\x00\x03\x01\xff\x00\x01"), complete(connect, to("\u{fffd}", 1), 8));
        assert_eq!(request(b"\x05\x01\x01"), Parsed::Invalid, "reserved");
        assert_eq!(request(b"\x04\x01\x00"), Parsed::Invalid, "version");
    }

    #[test]
    fn datagrams() {
        assert_eq!(
            datagram(b"\0\0\0\x03\x01a\x00\x35data").map(|(to, used)| (Some(to), used)),
            Some((to("a", 53), 8))
        );
        assert_eq!(datagram(b"\0\0\x01\x03\x01a\x00\x35data"), None, "a part of one");
        assert_eq!(datagram(b"\0\0\0\x03\x09a"), None, "cut");
        assert_eq!(datagram(b"\0\0\0\x09a"), None, "kind");
    }

    proptest! {
        #[test]
        fn more_bytes_change_nothing(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(3), Just(5), any::<u8>()], 0..40)) {
            for cut in 0..bytes.len() {
                match request(&bytes[..cut]) {
                    Parsed::Complete(Request { destination: None, .. }, _) => {}
                    Parsed::Complete(found, used) => prop_assert_eq!(request(&bytes), Parsed::Complete(found, used)),
                    Parsed::Invalid => prop_assert_eq!(request(&bytes), Parsed::Invalid),
                    Parsed::Incomplete => prop_assert!(cut < LONGEST),
                }
            }
        }

        #[test]
        fn headers_come_back(bits in any::<u128>(), port in any::<u16>(), data in prop::collection::vec(any::<u8>(), 0..9)) {
            let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), port);
            let bytes = [header(address), data.clone()].concat();
            let (to, used) = datagram(&bytes).unwrap();
            prop_assert_eq!((to.host.parse::<IpAddr>().unwrap(), to.port), (address.ip().to_canonical(), port));
            prop_assert_eq!(&bytes[used..], &data);
        }
    }
}
