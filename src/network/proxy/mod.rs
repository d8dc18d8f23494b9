//! The proxy of one start: HTTP, CONNECT and SOCKS5 by rules, for one process and as long as it lives.
//!
//! A connection goes `acceptor` → `http` or `socks` → `gate` (may it, and to which addresses) → `onward` (there) →
//! `relay`. Nothing is set up before it is needed: a proxy that nobody uses is two listeners and two tasks.
//!
//! * `gate` decides, once for each request, tunnel or datagram, and reports through `report`.
//! * [`guest`] says who may use a listener, and what a run with a network of its own serves to itself.
//! * [`site`] is what all proxies of a server share: [`resolve`], [`own`] listeners, [`upstream`] proxies, limits.
//! * [`transparent`] carries connections that come without the program's doing.
//! * [`bridge`] leads to proxies of others.

mod acceptor;
pub mod bridge;
mod dial;
mod error;
mod gate;
pub mod guest;
pub(crate) mod http;
mod onward;
pub mod own;
mod relay;
mod report;
pub mod resolve;
pub mod site;
pub(crate) mod socks;
pub mod transparent;
pub mod upstream;
mod visit;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use self::acceptor::Acceptor;
pub use self::error::LaunchError;
use self::gate::{Gate, Parts};
use self::guest::Guest;
use self::onward::Onward;
use self::own::{OwnListener, Owner, Transport};
use self::report::Reporter;
use self::site::Site;
use self::transparent::{Names, Redirected};
use self::visit::Visit;
use super::desk::Desk;
use crate::policy::egress::EgressRules;
use crate::protocol::network::{NetworkProxyLaunch, ProxySettings};
use crate::protocol::process::ProcessId;

/// Where a proxy is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints {
    /// The HTTP listener.
    pub http: SocketAddr,
    /// The SOCKS listener, if there is one.
    pub socks: Option<SocketAddr>,
}

/// Listeners of a proxy on this machine's own loopback. Connections wait until they are served.
#[derive(Debug)]
pub struct HostDoors {
    http: HostDoor,
    socks: Option<HostDoor>,
}

#[derive(Debug)]
struct HostDoor {
    listener: TcpListener,
    address: SocketAddr,
    own: OwnListener,
}

/// The proxy of one start. Dropped, it closes its listeners and cuts everything that goes through it.
#[derive(Debug)]
pub struct Proxy {
    gate: Arc<Gate>,
    onward: Arc<Onward>,
    acceptor: Acceptor,
    /// Of transparent runs.
    names: Arc<Names>,
    has_socks: bool,
    has_datagrams: bool,
}

impl Proxy {
    /// Checks everything that a start wants of its proxy. Nothing is bound yet.
    ///
    /// # Errors
    /// Something of it cannot be.
    pub fn new(
        launch: &NetworkProxyLaunch,
        process_id: ProcessId,
        desk: Arc<Desk>,
        site: Arc<Site>,
    ) -> Result<Self, LaunchError> {
        let settings = &launch.proxy;
        check(settings)?;
        let acceptor = Acceptor::new(site.max_connections);
        let gate = Gate::new(Parts {
            process_id,
            rules: EgressRules::new(settings)?,
            time: launch.policy_decision_timeout_ms.map(|time| Duration::from_millis(time.get())),
            reporter: Reporter::new(Arc::clone(&desk), launch),
            desk,
            site: Arc::clone(&site),
            closing: acceptor.closing().clone(),
            tasks: acceptor.tasks().clone(),
        });
        Ok(Self {
            gate: Arc::new(gate),
            onward: Arc::new(Onward { site, allows_upstream: settings.allow_upstream_proxy }),
            acceptor,
            names: Arc::default(),
            has_socks: settings.enable_socks5,
            has_datagrams: settings.enable_socks5_udp,
        })
    }

    /// Whether the start wants a SOCKS listener.
    #[must_use]
    pub fn has_socks(&self) -> bool {
        self.has_socks
    }

    /// Listens on free ports of 127.0.0.1, for a run in the network of this machine.
    ///
    /// # Errors
    /// The system has no more ports or descriptors.
    pub fn bind(&self) -> io::Result<HostDoors> {
        let own = &self.onward.site.own;
        let socks = self.has_socks.then(|| HostDoor::bind(own)).transpose()?;
        Ok(HostDoors { http: HostDoor::bind(own)?, socks })
    }

    /// Serves what was bound. For a task of the runtime.
    ///
    /// # Errors
    /// The runtime cannot watch the listeners.
    pub fn serve(&self, doors: HostDoors, guest: &Guest) -> io::Result<()> {
        let HostDoors { http, socks } = doors;
        self.accept_http(http.listener, guest, http.own)?;
        socks.map_or(Ok(()), |socks| self.accept_socks(socks.listener, guest, socks.own))
    }

    /// Serves HTTP on a listener in the network of a run. For a task of the runtime.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn serve_http(&self, listener: TcpListener, guest: &Guest) -> io::Result<()> {
        self.accept_http(listener, guest, ())
    }

    /// Serves SOCKS on a listener in the network of a run. For a task of the runtime.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn serve_socks(&self, listener: TcpListener, guest: &Guest) -> io::Result<()> {
        self.accept_socks(listener, guest, ())
    }

    /// Serves what a run sends elsewhere and comes here by itself: of IPv4, and of IPv6 where there is that. For a task of
    /// the runtime.
    ///
    /// # Errors
    /// The sockets cannot be used.
    pub fn serve_redirected(&self, redirected: Vec<Redirected>, guest: &Guest) -> io::Result<()> {
        let has_ipv6 = redirected.len() > 1;
        for one in redirected {
            transparent::serve(&self.acceptor, one, &self.names, self.visits(guest), has_ipv6)?;
        }
        Ok(())
    }

    /// Closes listeners and cuts connections, as soon as their tasks notice. Open questions are not waited for.
    pub fn close(&self) {
        self.acceptor.close();
    }

    /// Waits until nothing is left of what [`Self::close`] ends. Cancel-safe.
    pub async fn closed(&self) {
        self.acceptor.closed().await;
    }

    fn accept_http(&self, listener: TcpListener, guest: &Guest, held: impl Send + 'static) -> io::Result<()> {
        let visits = self.visits(guest);
        let serve = move |stream: TcpStream, peer| http::serve(stream, visits(peer));
        self.acceptor.accept(listener, guest.check.clone(), serve, held)
    }

    fn accept_socks(
        &self,
        listener: TcpListener,
        guest: &Guest,
        held: impl Send + 'static,
    ) -> io::Result<()> {
        // Nothing tells who sends a datagram, so there are none where that counts.
        let (visits, has_datagrams) = (self.visits(guest), self.has_datagrams && guest.check.is_none());
        let serve = move |stream: TcpStream, peer| socks::serve(stream, visits(peer), has_datagrams);
        self.acceptor.accept(listener, guest.check.clone(), serve, held)
    }

    fn visits(&self, guest: &Guest) -> impl Fn(SocketAddr) -> Visit + Send + Sync + use<> {
        let (gate, onward, inside) = (Arc::clone(&self.gate), Arc::clone(&self.onward), guest.inside.clone());
        move |peer| Visit {
            gate: Arc::clone(&gate),
            onward: Arc::clone(&onward),
            inside: inside.clone(),
            peer,
        }
    }
}

impl HostDoors {
    /// Where they are.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        Endpoints { http: self.http.address, socks: self.socks.as_ref().map(|door| door.address) }
    }
}

impl HostDoor {
    fn bind(own: &Arc<own::OwnListeners>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let own = own.add(Owner::Proxy, Transport::Tcp, address.port());
        Ok(Self { listener, address, own })
    }
}

fn check(settings: &ProxySettings) -> Result<(), LaunchError> {
    if !settings.enabled {
        return Err(LaunchError::Disabled);
    }
    if settings.credential_masking {
        return Err(LaunchError::CredentialMasking);
    }
    if settings.transparent_tcp && !settings.enable_socks5 {
        return Err(LaunchError::TransparentWithoutSocks);
    }
    let mut sockets = settings.unix_sockets.iter().flat_map(|sockets| sockets.keys());
    match sockets.find(|path| !path.starts_with('/')) {
        Some(relative) => Err(LaunchError::RelativeSocket(relative.clone())),
        None => Ok(()),
    }
}
