//! Sockets to which redirected packets come, for the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, Result};

use super::{links, listener, redirect};

/// Of one family.
struct Sockets {
    flows: TcpListener,
    /// Messages, and connections that carry them.
    dns: (UdpSocket, TcpListener),
}

/// See the module's description.
pub(super) struct Intercept(Vec<Sockets>);

impl Intercept {
    /// Redirects, and takes what is redirected.
    pub(super) fn new() -> Result<Self> {
        let first = Sockets::bind(Ipv4Addr::LOCALHOST.into(), [0, 0])?;
        let [flows, dns] = first.ports()?;
        let second = match Sockets::bind(Ipv6Addr::LOCALHOST.into(), [flows, dns]) {
            Ok(second) => Some(second),
            // This machine has no IPv6, and nothing goes there.
            Err(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => None,
            Err(errno) => return Err(errno),
        };
        links::everything_to_the_loopback(second.is_some())?;
        redirect::install(flows, dns)?;
        Ok(Self([first].into_iter().chain(second).collect()))
    }

    /// Three of each family.
    pub(super) fn handed_over(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(|one| [one.flows.as_fd(), one.dns.0.as_fd(), one.dns.1.as_fd()])
    }
}

impl Sockets {
    /// At these ports; 0 is a free one.
    fn bind(address: IpAddr, [flows, dns]: [u16; 2]) -> Result<Self> {
        let flows = listener(address, flows)?;
        let messages = UdpSocket::bind((address, dns)).map_err(errno)?;
        let dns = messages.local_addr().map_err(errno)?.port();
        Ok(Self { flows, dns: (messages, listener(address, dns)?) })
    }

    fn ports(&self) -> Result<[u16; 2]> {
        let flows = self.flows.local_addr().map_err(errno)?.port();
        Ok([flows, self.dns.0.local_addr().map_err(errno)?.port()])
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
