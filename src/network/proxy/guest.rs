//! Who may use a proxy, and what it can reach beside the rules.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};

use super::dial;
use super::resolve::loopback;
use crate::policy::egress::LOCALHOST;
use crate::policy::hosts::Host;

/// Tells the processes of a run from others on the same machine.
pub trait PeerCheck: fmt::Debug + Send + Sync {
    /// Whether the connection from `peer` to `own`, the address of a listener, is made by a process of the run.
    fn is_own(&self, peer: SocketAddr, own: SocketAddr) -> BoxFuture<'_, bool>;
}

/// The network of a run that has one of its own.
pub trait InsideNetwork: fmt::Debug + Send + Sync {
    /// Connects in it. Refused where nothing listens.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;

    /// A socket for datagrams in it, on its loopback.
    fn datagrams(&self) -> BoxFuture<'_, io::Result<UdpSocket>>;
}

/// Who uses a listener.
#[derive(Debug, Clone, Default)]
pub struct Guest {
    /// Whose connections count. `None`: everybody's who can make one.
    pub check: Option<Arc<dyn PeerCheck>>,
    /// Where the guest is, if not in the network of this machine.
    pub inside: Option<Arc<dyn InsideNetwork>>,
}

/// The network of a run, and what in it is the proxy itself.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub(super) network: Arc<dyn InsideNetwork>,
    pub(super) doors: Arc<InsideDoors>,
}

/// The ports on which a proxy listens inside a run.
#[derive(Debug, Default)]
pub(super) struct InsideDoors(Mutex<HashSet<u16>>);

impl InsideDoors {
    pub(super) fn add(&self, port: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
    }

    fn have(&self, port: u16) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&port)
    }
}

impl Inside {
    /// A connection to what the run itself serves on its loopback, if that is what is meant, and something is there.
    pub(super) async fn connect(&self, host: &str, port: u16) -> Option<TcpStream> {
        if self.doors.have(port) {
            return None;
        }
        let addresses = match host.parse().ok()? {
            Host::Address(address) if address.is_loopback() => vec![SocketAddr::new(address, port)],
            Host::Name(name) if name == LOCALHOST => loopback(port).into(),
            _ => return None,
        };
        for address in addresses {
            let connected = tokio::time::timeout(dial::LIMIT, self.network.connect(address)).await;
            if let Ok(Ok(stream)) = connected {
                return Some(stream);
            }
        }
        None
    }
}
