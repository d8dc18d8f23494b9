//! From names to addresses: one lookup a decision, and what it finds is what is dialled.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::policy::egress::LOCALHOST;
use crate::policy::hosts::Host;

/// Lookups at a time. The system's resolver takes a thread for each, and cannot be interrupted.
const LOOKUPS: usize = 64;

/// Looks names up.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name. Callers limit the time. Cancel-safe.
    fn resolve(&self, name: String, port: u16) -> BoxFuture<'_, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of this system.
#[derive(Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: String, port: u16) -> BoxFuture<'_, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let lookup = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            let found = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
                drop(lookup);
                found
            });
            found.await?
        })
    }
}

/// The addresses of a host.
pub(super) async fn addresses(resolver: &dyn Resolve, host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
    match known(host, port) {
        Some(found) => Ok(found),
        None => resolver.resolve(host.to_string(), port).await,
    }
}

/// The addresses of a host that needs no lookup. An address is its own, and `localhost` is this machine whatever a resolver
/// says.
pub(super) fn known(host: &Host, port: u16) -> Option<Vec<SocketAddr>> {
    match host {
        Host::Address(address) => Some(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) => (name == LOCALHOST).then(|| loopback(port).into()),
    }
}

/// What `localhost` means.
pub(super) fn loopback(port: u16) -> [SocketAddr; 2] {
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        .map(|address| SocketAddr::new(address, port))
}
