//! Connections of programs that do not use their proxy: they come by themselves, with the address that was meant, and go
//! by the rules of SOCKS.
//!
//! Looking up a name gives an address that stands for it (`names`, `dns`), so that the rules see names.

mod dns;
mod names;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::{TcpStream, UdpSocket};

use self::dns::Responder;
pub(super) use self::names::Names;
use super::acceptor::Acceptor;
use super::relay::{End, relay};
use super::visit::Visit;
use crate::protocol::network::NetworkProtocol;

/// What comes of one family.
#[derive(Debug)]
pub struct Redirected {
    /// Connections; the kernel tells the destination of each.
    pub flows: std::net::TcpListener,
    /// Messages for a DNS server.
    pub dns_messages: std::net::UdpSocket,
    /// The same on connections.
    pub dns_connections: std::net::TcpListener,
}

/// Serves what comes of one family, for one run.
pub(super) fn serve(
    acceptor: &Acceptor,
    redirected: Redirected,
    names: &Arc<Names>,
    visits: impl Fn(SocketAddr) -> Visit + Send + Sync + 'static,
    has_ipv6: bool,
) -> io::Result<()> {
    let Redirected { flows, dns_messages, dns_connections } = redirected;
    dns_messages.set_nonblocking(true)?;
    let messages = UdpSocket::from_std(dns_messages)?;
    let known = Arc::clone(names);
    let closing = acceptor.closing().clone();
    acceptor.tasks().spawn(async move {
        let responder = Responder { names: &known, has_ipv6 };
        closing.run_until_cancelled(responder.serve_messages(&messages)).await;
    });
    let known = Arc::clone(names);
    let answer = move |stream, _| {
        let known = Arc::clone(&known);
        async move {
            // Clients go when they have their answer.
            drop(Responder { names: &known, has_ipv6 }.serve_connection(stream).await);
        }
    };
    acceptor.accept(dns_connections, None, answer, ())?;
    let known = Arc::clone(names);
    let carry = move |stream, peer| {
        let (visit, known) = (visits(peer), Arc::clone(&known));
        async move { carry(stream, &visit, &known).await }
    };
    acceptor.accept(flows, None, carry, ())
}

/// Carries one connection to where it was meant to go, or resets it.
async fn carry(stream: TcpStream, visit: &Visit, names: &Names) {
    let far = match destination(&stream) {
        Ok(meant) => reach(visit, names, meant).await,
        Err(error) => Err(error),
    };
    let carried = match far {
        Ok(far) => relay(stream.into(), far).await,
        Err(error) => stream.set_zero_linger().and(Err(error)),
    };
    if let Err(error) = carried {
        tracing::debug!(%error, "a redirected connection has failed");
    }
}

async fn reach(visit: &Visit, names: &Names, meant: SocketAddr) -> io::Result<End> {
    let host = names.name(meant.ip()).map_or_else(|| meant.ip().to_string(), |name| name.to_string());
    let attempt = visit.attempt(NetworkProtocol::Socks5Tcp, (&host, meant.port()), None);
    let route = visit.gate.decide(&attempt).await.map_err(|block| io::Error::other(block.reason))?;
    visit.onward.tcp(&route).await
}

/// Where a connection was meant to go before it was redirected.
fn destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    let meant: SocketAddr = match stream.local_addr()? {
        SocketAddr::V4(_) => ip_original_dst(stream)?.into(),
        SocketAddr::V6(_) => ipv6_original_dst(stream)?.into(),
    };
    // The program has found the listener, and means it: the same address is another one here.
    if meant.ip().is_loopback() { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(meant) }
}
