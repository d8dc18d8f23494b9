//! One connection of a process to its proxy: whose it is, and where it may go from here.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::gate::{Attempt, Block, Gate, Route};
use super::guest::{InsideNetwork, connect_inside};
use super::onward::Onward;
use crate::protocol::network::NetworkProtocol;

/// See the module's description.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) gate: Arc<Gate>,
    pub(super) onward: Arc<Onward>,
    pub(super) inside: Option<Arc<dyn InsideNetwork>>,
    pub(super) peer: SocketAddr,
}

/// Where a destination is.
#[derive(Debug)]
pub(super) enum Way {
    /// The process itself serves it.
    Inside(TcpStream),
    /// Elsewhere, and it may go there.
    Onward(Route),
}

impl Visit {
    /// What a process wants, from this connection.
    pub(super) fn attempt<'a>(
        &self,
        protocol: NetworkProtocol,
        (host, port): (&'a str, u16),
        method: Option<&'a str>,
    ) -> Attempt<'a> {
        Attempt { protocol, host, port, method, peer: Some(self.peer) }
    }

    /// Finds the way, if there is one. What a run serves on its own loopback is its own affair.
    pub(super) async fn way(&self, attempt: &Attempt<'_>) -> Result<Way, Block> {
        if let Some(inside) = &self.inside
            && let Some(stream) = connect_inside(&**inside, attempt.host, attempt.port).await
        {
            return Ok(Way::Inside(stream));
        }
        self.gate.decide(attempt).await.map(Way::Onward)
    }
}
