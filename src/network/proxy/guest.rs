//! Who may use a proxy, and what it can reach beside the rules.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

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
    /// Connects in it. Refused where nothing listens, and where the proxy itself does: who implements this knows its ports,
    /// and a proxy that reaches itself would go round without end.
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

/// A connection to what a run itself serves on its loopback, if that is what is meant, and something is there.
pub(super) async fn connect_inside(network: &dyn InsideNetwork, host: &str, port: u16) -> Option<TcpStream> {
    let addresses = match host.parse().ok()? {
        Host::Address(address) if address.is_loopback() => vec![SocketAddr::new(address, port)],
        Host::Name(name) if name == LOCALHOST => loopback(port).into(),
        _ => return None,
    };
    for address in addresses {
        let connected = tokio::time::timeout(dial::LIMIT, network.connect(address)).await;
        if let Ok(Ok(stream)) = connected {
            return Some(stream);
        }
    }
    None
}
