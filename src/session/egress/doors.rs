//! What one run finds of the proxy: addresses in its variables, and somebody who answers there.
//!
//! In a network of the run's own the doors are made when its program starts, and opened when it has been executed: what
//! has knocked before waits.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;

use super::{Carrier, Egress, OwnProxy, StartError};
use crate::network::endpoints::{self, EndpointError};
use crate::network::proxy::bridge::Bridges;
use crate::network::proxy::guest::{Guest, InsideNetwork};
use crate::network::proxy::transparent::Redirected;
use crate::network::proxy::{Endpoints, variables};
use crate::process::env::Variables;
use crate::sandbox::entrance::{Entrance, Inside, Intercepted};
use crate::sandbox::peer_check::Introduction;
use crate::sandbox::{NetworkIsolation, PrivateNetwork, WantedNetwork};

/// The first port at which a run finds doors in a network of its own, where all ports are free.
const FIRST_PORT: u16 = 61_080;

/// What has been arranged for a run that has not begun.
#[derive(Debug)]
pub(in super::super) struct Way {
    /// The network that it has to get.
    pub(in super::super) network: WantedNetwork,
    /// To be told its first process.
    pub(in super::super) introduction: Option<Introduction>,
    /// Why the program must not be executed, although the start succeeds.
    pub(in super::super) refusal: Option<String>,
    doors: Doors,
    /// In a network of its own, in the order of their ports.
    inside: Vec<Door>,
}

/// The doors of a run. Dropped, bridges to proxies of others are cut; a proxy of this server serves the start's other
/// runs.
#[derive(Debug)]
pub(in super::super) struct Doors {
    egress: Arc<Egress>,
    bridges: Option<Arc<Bridges>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Http,
    Socks,
    Bridge(SocketAddr),
}

impl Egress {
    /// Arranges the way of a run: tells its variables, which come last, and says what network it has to get.
    ///
    /// # Errors
    /// Variables that name no usable proxy, where somebody else's is to carry.
    pub(in super::super) fn arrange(self: &Arc<Self>, variables: &mut Variables) -> Result<Way, StartError> {
        match &self.carrier {
            Carrier::Own(own) => Ok(self.to_own(own, variables)),
            Carrier::Others { listed } => self.to_others(listed, variables),
        }
    }

    fn way(self: &Arc<Self>, network: WantedNetwork) -> Way {
        let doors = Doors { egress: Arc::clone(self), bridges: None };
        Way { network, introduction: None, refusal: None, doors, inside: Vec::new() }
    }

    fn to_own(self: &Arc<Self>, own: &OwnProxy, variables: &mut Variables) -> Way {
        let Some(host) = &own.host else {
            let socks = own.proxy.has_socks().then(|| inside(1));
            variables::lay_over(variables, Endpoints { http: inside(0), socks }, own.allows_local, true);
            let doors = [Some(Door::Http), socks.map(|_| Door::Socks)].into_iter().flatten().collect();
            return self.inwards(doors);
        };
        let is_enforced = self.isolation.is_some();
        variables::lay_over(variables, host.endpoints, own.allows_local, is_enforced);
        let network = if is_enforced { WantedNetwork::Ports(host.ports()) } else { WantedNetwork::ByPolicy };
        Way { introduction: host.expect(), ..self.way(network) }
    }

    fn to_others(self: &Arc<Self>, listed: &[u16], variables: &mut Variables) -> Result<Way, StartError> {
        let invalid = |error: &dyn ToString| StartError::InvalidParams(error.to_string());
        let found = match endpoints::find(variables, listed) {
            // Clients of the reference are used to a program that ends here.
            Err(error @ EndpointError::Unlisted(_)) => {
                return Ok(Way { refusal: Some(error.to_string()), ..self.inwards(Vec::new()) });
            }
            found => found.map_err(|error| invalid(&error))?,
        };
        let bridges = Bridges::new(&found, self.executor.network()).map_err(|error| invalid(&error))?;
        if self.isolation != Some(NetworkIsolation::Private) {
            endpoints::redirect(variables, |_| None);
            return Ok(self.way(WantedNetwork::Ports(found.iter().map(SocketAddr::port).collect())));
        }
        let port = |address| found.iter().position(|one| *one == address).map(|at| inside(at).port());
        endpoints::redirect(variables, port);
        let mut way = self.inwards(found.into_iter().map(Door::Bridge).collect());
        way.doors.bridges = Some(Arc::new(bridges));
        Ok(way)
    }

    fn inwards(self: &Arc<Self>, doors: Vec<Door>) -> Way {
        let ports = (0..doors.len()).map(|number| inside(number).port()).collect();
        let transparent = matches!(&self.carrier, Carrier::Own(own) if own.transparent);
        Way { inside: doors, ..self.way(WantedNetwork::Private(PrivateNetwork { ports, transparent })) }
    }
}

/// Where the door with this number is, in a network of a run's own.
fn inside(number: usize) -> SocketAddr {
    let number = u16::try_from(number).unwrap_or(u16::MAX - FIRST_PORT);
    SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_PORT + number))
}

impl Way {
    /// Has the doors opened as soon as the run's network is there. A promise that is broken is of a start that has failed.
    pub(in super::super) fn open(self, entrance: Option<oneshot::Receiver<Entrance>>) -> Doors {
        let Self { doors, inside, .. } = self;
        if let Some(entrance) = entrance {
            let (egress, bridges) = (Arc::clone(&doors.egress), doors.bridges.clone());
            tokio::spawn(async move {
                let Ok(entrance) = entrance.await else { return };
                if let Err(error) = egress.serve(&inside, entrance, bridges.as_deref()) {
                    tracing::warn!(%error, "a process is left without its proxy");
                }
            });
        }
        doors
    }
}

impl Egress {
    fn serve(&self, doors: &[Door], entrance: Entrance, bridges: Option<&Bridges>) -> io::Result<()> {
        let Entrance { listeners, inside, intercepted } = entrance;
        let guest = Guest { check: None, inside: Some(Arc::new(OwnNetwork(inside))) };
        for (door, listener) in doors.iter().zip(listeners) {
            match (door, &self.carrier, bridges) {
                (Door::Http, Carrier::Own(own), _) => own.proxy.serve_http(listener, &guest)?,
                (Door::Socks, Carrier::Own(own), _) => own.proxy.serve_socks(listener, &guest)?,
                (Door::Bridge(endpoint), _, Some(bridges)) => bridges.serve(listener, *endpoint)?,
                _ => {}
            }
        }
        match &self.carrier {
            Carrier::Own(own) => {
                let redirected = intercepted.into_iter().map(redirected).collect();
                own.proxy.serve_redirected(redirected, &guest)
            }
            Carrier::Others { .. } => Ok(()),
        }
    }
}

fn redirected(intercepted: Intercepted) -> Redirected {
    let Intercepted { flows, dns_messages, dns_connections } = intercepted;
    Redirected { flows, dns_messages, dns_connections }
}

impl Doors {
    /// The process is closed: closes the doors of all runs of the start, and cuts what goes through.
    pub(in super::super) fn close(self) {
        if let Carrier::Own(own) = &self.egress.carrier {
            own.proxy.close();
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
