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

use super::endpoints::{self, EndpointError};
use super::{Carrier, Egress, OwnProxy, StartError, variables};
use crate::network::proxy::bridge::{self, Bridges};
use crate::network::proxy::guest::{Guest, InsideNetwork};
use crate::network::proxy::transparent::Redirected;
use crate::network::proxy::{Endpoints, Proxy};
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
    /// Who answers at the doors in a network of its own.
    inside: Option<Answering>,
}

/// The doors of a run. Dropped, bridges to proxies of others are cut; a proxy of this server serves the start's other
/// runs.
#[derive(Debug)]
pub(in super::super) struct Doors {
    egress: Arc<Egress>,
    bridges: Option<Arc<Bridges>>,
}

/// Who answers at doors, which come in this order.
#[derive(Debug)]
enum Answering {
    /// By HTTP and, if the start wants it, by SOCKS.
    Proxy(Arc<OwnProxy>),
    /// One endpoint at each door.
    Bridges(Arc<Bridges>, Vec<SocketAddr>),
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
        Way { network, introduction: None, refusal: None, doors, inside: None }
    }

    fn to_own(self: &Arc<Self>, own: &Arc<OwnProxy>, variables: &mut Variables) -> Way {
        let Some(host) = &own.host else {
            let socks = own.proxy.has_socks().then(|| inside(1));
            variables::lay_over(variables, Endpoints { http: inside(0), socks }, own.allows_local, true);
            let way = self.inwards(1 + usize::from(socks.is_some()), own.transparent);
            return Way { inside: Some(Answering::Proxy(Arc::clone(own))), ..way };
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
                return Ok(Way { refusal: Some(error.to_string()), ..self.inwards(0, false) });
            }
            found => found.map_err(|error| invalid(&error))?,
        };
        let site = self.executor.network();
        if self.isolation != Some(NetworkIsolation::Private) {
            bridge::check(&found, site).map_err(|error| invalid(&error))?;
            endpoints::redirect(variables, |_| None);
            return Ok(self.way(WantedNetwork::Ports(found.iter().map(SocketAddr::port).collect())));
        }
        let bridges = Arc::new(Bridges::new(&found, site).map_err(|error| invalid(&error))?);
        let port = |address| found.iter().position(|one| *one == address).map(|at| inside(at).port());
        endpoints::redirect(variables, port);
        let mut way = self.inwards(found.len(), false);
        way.doors.bridges = Some(Arc::clone(&bridges));
        Ok(Way { inside: Some(Answering::Bridges(bridges, found)), ..way })
    }

    fn inwards(self: &Arc<Self>, doors: usize, transparent: bool) -> Way {
        let ports = (0..doors).map(|number| inside(number).port()).collect();
        self.way(WantedNetwork::Private(PrivateNetwork { ports, transparent }))
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
        if let (Some(entrance), Some(inside)) = (entrance, inside) {
            tokio::spawn(async move {
                let Ok(entrance) = entrance.await else { return };
                if let Err(error) = inside.serve(entrance) {
                    tracing::warn!(%error, "a process is left without its proxy");
                }
            });
        }
        doors
    }
}

impl Answering {
    fn serve(&self, entrance: Entrance) -> io::Result<()> {
        let Entrance { listeners, inside, intercepted } = entrance;
        match self {
            Self::Proxy(own) => {
                let guest = Guest { check: None, inside: Some(Arc::new(OwnNetwork(inside))) };
                for (listener, serve) in listeners.into_iter().zip([Proxy::serve_http, Proxy::serve_socks]) {
                    serve(&own.proxy, listener, &guest)?;
                }
                own.proxy.serve_redirected(intercepted.into_iter().map(redirected).collect(), &guest)
            }
            Self::Bridges(bridges, endpoints) => listeners
                .into_iter()
                .zip(endpoints)
                .try_for_each(|(listener, endpoint)| bridges.serve(listener, *endpoint)),
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
