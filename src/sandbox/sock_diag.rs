//! Asks the kernel about one TCP socket of this network namespace (`sock_diag(7)`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 72;
const REQUEST_LENGTH: u32 = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
const NO_COOKIE: u32 = u32::MAX;
const NOT_FOUND: i32 = -2;

/// The state of a connection that neither side has begun to close.
pub(super) const ESTABLISHED: u8 = 1;

/// What the kernel says of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpSocket {
    /// `TCP_ESTABLISHED`, ….
    pub(super) state: u8,
    /// Whose it is. Means nothing without an inode.
    pub(super) uid: u32,
    /// 0 if no process has it any more.
    pub(super) inode: u32,
}

/// The connected socket with this address of its own and that of its peer.
pub(super) fn find(own: SocketAddr, peer: SocketAddr) -> io::Result<Option<TcpSocket>> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let netlink = socket_with(family, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    sendto(&netlink, &request(own, peer), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    answer(&netlink, own.port(), peer.port())
}

/// Both addresses in their shortest form: the kernel looks for IPv4 wherever it is mapped.
fn request(own: SocketAddr, peer: SocketAddr) -> [u8; REQUEST_BYTES] {
    let (own_ip, peer_ip) = (own.ip().to_canonical(), peer.ip().to_canonical());
    let family = if own_ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    bytes.extend(REQUEST_LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family.to_ne_bytes()[0], libc::IPPROTO_TCP.to_ne_bytes()[0], 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(own.port().to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(sixteen(own_ip));
    bytes.extend(sixteen(peer_ip));
    bytes.extend(scope(own).to_ne_bytes());
    bytes.extend(NO_COOKIE.to_ne_bytes());
    bytes.extend(NO_COOKIE.to_ne_bytes());
    let mut request = [0; REQUEST_BYTES];
    request.copy_from_slice(&bytes);
    request
}

fn sixteen(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

/// The interface of a link-local address.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

fn answer(netlink: &OwnedFd, own_port: u16, peer_port: u16) -> io::Result<Option<TcpSocket>> {
    let mut buffer = [0; 512];
    let (length, _) = recv(netlink, &mut buffer, RecvFlags::empty())?;
    parse(&buffer[..length], own_port, peer_port)
}

fn parse(answer: &[u8], own_port: u16, peer_port: u16) -> io::Result<Option<TcpSocket>> {
    let unreadable = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = two(answer, 4).map(u16::from_ne_bytes).ok_or_else(unreadable)?;
    let body = &answer[HEADER_BYTES.min(answer.len())..];
    match kind {
        ERROR => match four(body, 0).map(i32::from_ne_bytes).ok_or_else(unreadable)? {
            NOT_FOUND => Ok(None),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        SOCK_DIAG_BY_FAMILY => {
            let ports = two(body, 4).zip(two(body, 6)).ok_or_else(unreadable)?;
            let socket = TcpSocket {
                state: *body.get(1).ok_or_else(unreadable)?,
                uid: four(body, 64).map(u32::from_ne_bytes).ok_or_else(unreadable)?,
                inode: four(body, 68).map(u32::from_ne_bytes).ok_or_else(unreadable)?,
            };
            // Where there is no such connection, the kernel shows who listens at its address.
            Ok((ports == (own_port.to_be_bytes(), peer_port.to_be_bytes())).then_some(socket))
        }
        _ => Err(unreadable()),
    }
}

fn two(bytes: &[u8], at: usize) -> Option<[u8; 2]> {
    bytes.get(at..at + 2)?.try_into().ok()
}

fn four(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::linux::fs::MetadataExt;
    use test_case::test_case;

    fn inode(stream: &TcpStream) -> u64 {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(stream));
        std::fs::metadata(link).unwrap().st_ino()
    }

    #[test_case("127.0.0.1:0", "127.0.0.1"; "IPv4")]
    #[test_case("[::1]:0", "::1"; "IPv6")]
    #[test_case("[::]:0", "127.0.0.1"; "IPv4 to a listener of both")]
    #[test_case("[::]:0", "::ffff:127.0.0.1"; "mapped on both sides")]
    #[test_case("0.0.0.0:0", "::ffff:127.0.0.1"; "mapped on one side")]
    #[test_case("127.0.0.1:0", "127.0.0.2"; "nobody there")]
    fn a_socket_is_found_by_its_addresses(listen: &str, connect: &str) {
        let listener = TcpListener::bind(listen).unwrap();
        let target = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
        let Ok(client) = TcpStream::connect(target) else { return assert_eq!(connect, "127.0.0.2") };
        let (server, peer) = listener.accept().unwrap();
        let own = server.local_addr().unwrap();
        let found = find(peer, own).unwrap().expect("it is there");
        assert_eq!(u64::from(found.inode), inode(&client));
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert_eq!(found.state, ESTABLISHED);
        assert_eq!(u64::from(find(own, peer).unwrap().unwrap().inode), inode(&server));
        drop(client);
        assert_ne!(find(own, peer).unwrap().unwrap().state, ESTABLISHED);
        assert_eq!(find(peer, own).unwrap().map_or(0, |left| left.inode), 0);
    }

    #[test]
    fn who_only_listens_is_not_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        assert_eq!(find(own, "127.0.0.1:9".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        for length in 0..90 {
            let mut answer = vec![0; length];
            for kind in [SOCK_DIAG_BY_FAMILY, ERROR, 9] {
                if length >= 6 {
                    answer[4..6].copy_from_slice(&kind.to_ne_bytes());
                }
                let parsed = parse(&answer, 0, 0);
                assert_eq!(parsed.is_ok(), kind == SOCK_DIAG_BY_FAMILY && length >= 88, "{length} {kind}");
            }
        }
    }
}
