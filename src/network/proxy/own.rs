//! Where this server itself listens: no proxy of it leads there, or a process could have the proxy call itself without
//! end, or speak to the server in the server's name.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::hosts::Host;

/// What is listened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Who listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The server, for its clients.
    Server,
    /// A proxy, for its process.
    Proxy,
}

/// The ports on which this server listens, on whatever address.
#[derive(Debug, Default)]
pub struct OwnListeners(Mutex<HashMap<(Transport, u16), Counts>>);

/// Several may have the same port, on different addresses.
#[derive(Debug, Default)]
struct Counts {
    server: usize,
    proxies: usize,
}

/// A port is listened on for as long as this lives.
#[derive(Debug)]
pub struct OwnListener {
    all: Arc<OwnListeners>,
    key: (Transport, u16),
    owner: Owner,
}

impl OwnListeners {
    /// Notes a listener. To be called before anybody can know its port.
    #[must_use]
    pub fn add(self: &Arc<Self>, owner: Owner, transport: Transport, port: u16) -> OwnListener {
        let key = (transport, port);
        *self.state().entry(key).or_default().of(owner) += 1;
        OwnListener { all: Arc::clone(self), key, owner }
    }

    /// Whether a connection or a datagram to this address would come back to this server. An address of this machine
    /// counts whatever the listener is bound to, since redirections by the system are not seen here.
    #[must_use]
    pub fn own(&self, transport: Transport, address: SocketAddr) -> bool {
        self.state().contains_key(&(transport, address.port())) && is_of_this_machine(address)
    }

    /// Whether it would come to where the server waits for its clients.
    #[must_use]
    pub fn serve(&self, address: SocketAddr) -> bool {
        let is_server = |counts: &Counts| counts.server > 0;
        self.state().get(&(Transport::Tcp, address.port())).is_some_and(is_server)
            && is_of_this_machine(address)
    }

    fn state(&self) -> MutexGuard<'_, HashMap<(Transport, u16), Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn of(&mut self, owner: Owner) -> &mut usize {
        match owner {
            Owner::Server => &mut self.server,
            Owner::Proxy => &mut self.proxies,
        }
    }
}

impl Drop for OwnListener {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if let Some(counts) = state.get_mut(&self.key) {
            *counts.of(self.owner) -= 1;
            if counts.server + counts.proxies == 0 {
                state.remove(&self.key);
            }
        }
    }
}

/// Only on an address of this machine a socket can be bound. Where that cannot be found out, it counts as one.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let Host::Address(ip) = Host::from(address.ip()) else { return true };
    let mut probe = address;
    probe.set_ip(ip);
    probe.set_port(0);
    match UdpSocket::bind(probe) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_listener_is_found_at_every_local_address_while_it_lives() {
        let all = Arc::new(OwnListeners::default());
        let one = all.add(Owner::Proxy, Transport::Tcp, 4000);
        let other = all.add(Owner::Server, Transport::Tcp, 4000);
        for text in [
            "127.0.0.1:4000",
            "127.9.9.9:4000",
            "0.0.0.0:4000",
            "[::]:4000",
            "[::1]:4000",
            "[::ffff:127.0.0.1]:4000",
        ] {
            assert!(all.own(Transport::Tcp, address(text)), "{text}");
            assert!(all.serve(address(text)), "{text}");
        }
        assert!(!all.own(Transport::Tcp, address("127.0.0.1:4001")));
        assert!(!all.own(Transport::Udp, address("127.0.0.1:4000")));
        assert!(!all.own(Transport::Tcp, address("192.0.2.1:4000")), "an address of another machine");
        drop(other);
        assert!(!all.serve(address("127.0.0.1:4000")));
        assert!(all.own(Transport::Tcp, address("127.0.0.1:4000")));
        drop(one);
        assert!(!all.own(Transport::Tcp, address("127.0.0.1:4000")));
    }

    #[test]
    fn addresses_of_interfaces_are_of_this_machine() {
        // The address from which the system would send to the internet, if it would.
        let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
        let outward = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr());
        let Ok(outward) = outward else { return };
        assert!(is_of_this_machine(outward), "{outward}");
    }
}
