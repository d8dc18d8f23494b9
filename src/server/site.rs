//! What a listener serves with.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::{Authentication, Authenticator};
use super::connection::Shared;
use super::listen::BoundListener;
use super::metrics::{Exposition, Refusal};
use super::tls::Tls;
use crate::config::{Config, HostName};

/// Sockets that may be open without having been upgraded.
const STRANGERS: usize = 512;

/// What all listeners of a server have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) exposition: Arc<Exposition>,
    pub(super) allowed_hosts: Vec<HostName>,
    pub(super) head_timeout: Duration,
    pub(super) max_connections: usize,
    /// One permit for each connection that has been upgraded.
    pub(super) seats: Arc<Semaphore>,
    /// One permit for each socket.
    pub(super) sockets: Arc<Semaphore>,
    /// Upgraded connections, so that the end of the server can wait for them.
    pub(super) connections: TaskTracker,
    /// The server has ended.
    pub(super) closed: CancellationToken,
}

impl Common {
    pub(super) fn new(config: &Config, shared: Arc<Shared>) -> Self {
        let max_connections = config.server.max_connections.get();
        Self {
            exposition: Arc::new(Exposition::new(&shared)),
            shared,
            allowed_hosts: config.server.allowed_hosts.clone(),
            head_timeout: config.server.head_timeout_ms,
            max_connections,
            seats: Arc::new(Semaphore::new(max_connections)),
            sockets: Arc::new(Semaphore::new(STRANGERS + max_connections)),
            connections: TaskTracker::new(),
            closed: CancellationToken::new(),
        }
    }

    pub(super) fn refused(&self, reason: Refusal) {
        self.shared.traffic.refusals.of(reason).increment();
    }

    /// The server has begun to end: those who are here go on for a moment, others should go elsewhere.
    pub(super) fn is_draining(&self) -> bool {
        self.shared.shutdown.is_cancelled()
    }
}

/// Whom a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// Clients of the protocol.
    Clients {
        /// Whether operators come here as well.
        metrics: bool,
    },
    /// Operators alone.
    Operators,
}

/// What one listener serves with.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) common: Arc<Common>,
    pub(super) authenticator: Arc<Authenticator>,
    /// Without, it is served in clear.
    pub(super) tls: Option<Arc<Tls>>,
    /// Reached from this machine only, so that a browser here could be made to reach it.
    pub(super) is_loopback: bool,
    /// Whether clients of the protocol are served.
    pub(super) upgrades: bool,
    /// Who may read the metrics here, if they are served.
    pub(super) readers: Option<Arc<Authenticator>>,
}

impl Site {
    pub(super) fn new(
        common: &Arc<Common>,
        listener: &BoundListener,
        audience: Audience,
        authentication: &Authentication,
        tls: Option<&Arc<Tls>>,
    ) -> Self {
        let is_tcp = matches!(listener, BoundListener::Tcp(..));
        let is_local = listener.is_local();
        let serves_metrics = audience != Audience::Clients { metrics: false };
        Self {
            common: Arc::clone(common),
            authenticator: authentication.of(is_local),
            tls: tls.filter(|_| is_tcp).cloned(),
            is_loopback: is_tcp && is_local,
            upgrades: audience != Audience::Operators,
            readers: serves_metrics.then(|| authentication.readers(is_local)),
        }
    }
}
