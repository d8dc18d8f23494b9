//! How a run reaches the network: through which proxy, and whether its network is its own.
//!
//! What a start says is checked once. Each run of it, the command and the capture of its shell, then gets doors to the
//! one proxy, by variables that are laid over everything else, and a network in which there is nothing but these doors
//! where that is enforced. Doors are opened when the program has been executed; what has knocked before waits.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;

use super::{Executor, Session, StartError};
use crate::network::endpoints;
use crate::network::proxy::bridge::Bridges;
use crate::network::proxy::guest::{Guest, InsideNetwork, PeerCheck};
use crate::network::proxy::{Endpoints, HostDoors, Proxy, variables};
use crate::process::StartFailure;
use crate::process::env::Variables;
use crate::protocol::process::ExecParams;
use crate::sandbox::entrance::{Entrance, Inside};
use crate::sandbox::{NetworkIsolation, Prepared, PrivateNetwork, WantedNetwork};

/// The first port at which a run finds doors in a network of its own, where all ports are free.
const FIRST_PORT: u16 = 61_080;

/// What a start has of the network, for all its runs.
#[derive(Debug)]
pub(super) struct Egress {
    carrier: Carrier,
    /// How it is enforced; `None` if the run may pass its proxy by.
    isolation: Option<NetworkIsolation>,
    transparent: bool,
    checks_peer: bool,
    executor: Arc<Executor>,
}

/// Who carries the connections.
#[derive(Debug)]
enum Carrier {
    /// A proxy of this server.
    Own { proxy: Proxy, allows_local: bool },
    /// Proxies of somebody else, which the variables name; with any `listed`, at these ports only.
    Others { listed: Vec<u16> },
}

impl Egress {
    /// Checks what a start wants of the network. `None` if that is nothing.
    ///
    /// # Errors
    /// What can never be right, what this machine cannot enforce. Nothing has been taken yet.
    pub(super) async fn of(exec: &ExecParams, session: &Session) -> Result<Option<Arc<Self>>, StartError> {
        check(exec)?;
        let executor = Arc::clone(&session.executor);
        let transparent = exec.network_proxy.as_ref().is_some_and(|launch| launch.proxy.transparent_tcp);
        let is_enforced = exec.sandbox.is_some() && (exec.enforce_managed_network || transparent);
        let carrier = match &exec.network_proxy {
            Some(launch) => {
                let (desk, site) = (Arc::clone(&session.desk), Arc::clone(executor.network()));
                let proxy = Proxy::new(launch, exec.process_id.clone(), desk, site)
                    .map_err(|error| StartError::InvalidParams(error.to_string()))?;
                Carrier::Own { proxy, allows_local: launch.proxy.allow_local_binding }
            }
            None if is_enforced => {
                let listed = exec.managed_network.as_ref().map(|facts| facts.loopback_ports.clone());
                Carrier::Others { listed: listed.unwrap_or_default() }
            }
            None => return Ok(None),
        };
        let isolation = if is_enforced { Some(isolation(&executor, transparent).await?) } else { None };
        let checks_peer = exec.sandbox.is_some() || executor.settings().checks_peers;
        Ok(Some(Arc::new(Self { carrier, isolation, transparent, checks_peer, executor })))
    }

    /// Gives a run its doors: tells its variables, and says what network it has to get.
    ///
    /// # Errors
    /// Variables that name no usable proxy, where somebody else's is to carry; a system without ports.
    pub(super) fn arrange(
        self: &Arc<Self>,
        variables: &mut Variables,
    ) -> Result<(WantedNetwork, Passage), StartError> {
        let (network, doors, bridges) = match &self.carrier {
            Carrier::Own { proxy, allows_local } => {
                let (network, doors) = self.doors_of(proxy, *allows_local, variables)?;
                (network, doors, None)
            }
            Carrier::Others { listed } => {
                let invalid = |error: &dyn ToString| StartError::InvalidParams(error.to_string());
                let found = endpoints::find(variables, listed).map_err(|error| invalid(&error))?;
                let bridges =
                    Bridges::new(&found, self.executor.network()).map_err(|error| invalid(&error))?;
                let (network, doors) = self.bridged(&found, variables);
                (network, doors, Some(bridges))
            }
        };
        Ok((network, Passage { egress: Arc::clone(self), doors, bridges, entrance: None }))
    }

    fn doors_of(
        &self,
        proxy: &Proxy,
        allows_local: bool,
        variables: &mut Variables,
    ) -> Result<(WantedNetwork, Doors), StartError> {
        if self.isolation == Some(NetworkIsolation::Private) {
            let doors: Vec<Door> =
                [Door::Http].into_iter().chain(proxy.has_socks().then_some(Door::Socks)).collect();
            let at = |door| doors.iter().position(|one| *one == door).map(inside);
            if let Some(http) = at(Door::Http) {
                variables::lay_over(variables, Endpoints { http, socks: at(Door::Socks) }, allows_local, true);
            }
            return Ok((self.private(doors.len()), Doors::Inside(doors)));
        }
        let doors = proxy.bind().map_err(|error| {
            StartFailure::other(&format!("the proxy of the process cannot listen on 127.0.0.1: {error}"))
        })?;
        let endpoints = doors.endpoints();
        variables::lay_over(variables, endpoints, allows_local, self.isolation.is_some());
        let ports = [Some(endpoints.http), endpoints.socks].iter().flatten().map(SocketAddr::port).collect();
        let network = match self.isolation {
            Some(_) => WantedNetwork::Ports(ports),
            None => WantedNetwork::ByPolicy,
        };
        Ok((network, Doors::Host(doors)))
    }

    fn bridged(&self, found: &[SocketAddr], variables: &mut Variables) -> (WantedNetwork, Doors) {
        if self.isolation == Some(NetworkIsolation::Private) {
            let port = |address| found.iter().position(|one| *one == address).map(|at| inside(at).port());
            endpoints::redirect(variables, port);
            let doors = found.iter().map(|endpoint| Door::Bridge(*endpoint)).collect();
            return (self.private(found.len()), Doors::Inside(doors));
        }
        endpoints::redirect(variables, |_| None);
        (WantedNetwork::Ports(found.iter().map(SocketAddr::port).collect()), Doors::None)
    }

    fn private(&self, doors: usize) -> WantedNetwork {
        let ports = (0..doors).map(|number| inside(number).port()).collect();
        WantedNetwork::Private(PrivateNetwork { ports, transparent: self.transparent })
    }
}

/// Where the door with this number is, in a network of a run's own.
fn inside(number: usize) -> SocketAddr {
    let number = u16::try_from(number).unwrap_or(u16::MAX - FIRST_PORT);
    SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_PORT + number))
}

/// What can be told from the params alone.
fn check(exec: &ExecParams) -> Result<(), StartError> {
    let invalid = |text: &str| Err(StartError::InvalidParams(text.to_owned()));
    let transparent = exec.network_proxy.as_ref().is_some_and(|launch| launch.proxy.transparent_tcp);
    if transparent && exec.sandbox.is_none() {
        return invalid("`networkProxy.proxy.transparentTcp` needs `sandbox`: it is for a network of a run's own");
    }
    if exec.network_proxy.is_none() && exec.managed_network.as_ref().is_some_and(|facts| facts.transparent_tcp) {
        return invalid("`managedNetwork.transparentTcp` needs `networkProxy`, a proxy of this server");
    }
    Ok(())
}

/// How this machine isolates the network of a run.
async fn isolation(executor: &Arc<Executor>, transparent: bool) -> Result<NetworkIsolation, StartError> {
    let sandboxes = Arc::clone(executor.sandboxes());
    let looked = tokio::task::spawn_blocking(move || sandboxes.network_isolation(transparent)).await;
    Ok(looked.map_err(|_| StartError::SessionEnded)??)
}

/// The doors of one run, before its program is executed.
#[derive(Debug)]
pub(super) struct Passage {
    egress: Arc<Egress>,
    doors: Doors,
    bridges: Option<Bridges>,
    entrance: Option<oneshot::Receiver<Entrance>>,
}

#[derive(Debug)]
enum Doors {
    /// The run finds its way alone.
    None,
    /// In the network of this machine.
    Host(HostDoors),
    /// In the run's own, in the order of their ports.
    Inside(Vec<Door>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Http,
    Socks,
    Bridge(SocketAddr),
}

impl Passage {
    /// Takes where the doors will be, if the run has a network of its own.
    pub(super) fn lead_through(&mut self, sandbox: &mut Prepared) {
        self.entrance = sandbox.take_entrance();
    }

    /// Opens the doors to a program that has been executed, and to what it starts.
    ///
    /// # Errors
    /// The system cannot watch the listeners.
    pub(super) fn open(self, leader: i32) -> io::Result<Opened> {
        let Self { egress, doors, bridges, entrance } = self;
        match doors {
            Doors::None => {}
            Doors::Host(doors) => egress.open_on_the_host(doors, leader)?,
            Doors::Inside(doors) => {
                let entrance = entrance.and_then(|mut entrance| entrance.try_recv().ok());
                let entrance = entrance.ok_or_else(|| io::Error::other("the network of the run is not there"))?;
                egress.open_inside(&doors, entrance, bridges.as_ref())?;
            }
        }
        Ok(Opened { egress, bridges })
    }
}

impl Egress {
    fn open_on_the_host(&self, doors: HostDoors, leader: i32) -> io::Result<()> {
        let Carrier::Own { proxy, .. } = &self.carrier else { return Ok(()) };
        let check = self.checks_peer.then(|| Arc::new(Peers::of(&self.executor, leader)) as Arc<dyn PeerCheck>);
        proxy.serve(doors, &Guest { check, inside: None })
    }

    fn open_inside(&self, doors: &[Door], entrance: Entrance, bridges: Option<&Bridges>) -> io::Result<()> {
        let Entrance { listeners, inside } = entrance;
        let guest = Guest { check: None, inside: Some(Arc::new(OwnNetwork(inside))) };
        for (door, listener) in doors.iter().zip(listeners) {
            match (door, &self.carrier, bridges) {
                (Door::Http, Carrier::Own { proxy, .. }, _) => proxy.serve_http(listener, &guest)?,
                (Door::Socks, Carrier::Own { proxy, .. }, _) => proxy.serve_socks(listener, &guest)?,
                (Door::Bridge(endpoint), _, Some(bridges)) => bridges.serve(listener, *endpoint)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Open doors. Dropped, the bridges are cut; a proxy of this server serves the start's other runs.
#[derive(Debug)]
pub(super) struct Opened {
    egress: Arc<Egress>,
    #[expect(dead_code, reason = "held for its drop")]
    bridges: Option<Bridges>,
}

impl Opened {
    /// Closes the doors of all runs of the start, and cuts what goes through.
    pub(super) fn close(self) {
        if let Carrier::Own { proxy, .. } = &self.egress.carrier {
            proxy.close();
        }
    }
}

/// The network of a run, for its proxy.
#[derive(Debug)]
struct OwnNetwork(Inside);

impl InsideNetwork for OwnNetwork {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(self.0.connect(address))
    }

    fn datagrams(&self) -> BoxFuture<'_, io::Result<UdpSocket>> {
        Box::pin(self.0.datagrams())
    }
}
