//! What a listener serves with.

use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::SetupError;
use super::auth::{Authentication, Authenticator};
use super::connection::Shared;
use super::http::Peer;
use super::listen::BoundListener;
use super::metrics::{Exposition, Refusal};
use super::tls::Tls;
use crate::config::{Config, HostName, Settings};
use crate::telemetry::{Entry, Label};

/// Sockets that may be open without having been upgraded.
const STRANGERS: usize = 512;

/// Answers to failed attempts that may be held back at a time; more are given at once.
const HELD_BACK: usize = 512;

/// What all listeners of a server have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) exposition: Arc<Exposition>,
    pub(super) head_timeout: Duration,
    pub(super) max_connections: usize,
    /// One permit for each connection that has been upgraded.
    pub(super) seats: Arc<Semaphore>,
    /// One permit for each socket.
    pub(super) sockets: Arc<Semaphore>,
    /// One permit for each answer that is held back.
    pub(super) held_back: Semaphore,
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
            head_timeout: config.server.head_timeout_ms,
            max_connections,
            seats: Arc::new(Semaphore::new(max_connections)),
            sockets: Arc::new(Semaphore::new(STRANGERS + max_connections)),
            held_back: Semaphore::new(HELD_BACK),
            connections: TaskTracker::new(),
            closed: CancellationToken::new(),
        }
    }

    /// Somebody was turned away, for a reason and with this to say about it.
    pub(super) fn refused(&self, peer: Peer, reason: Refusal, detail: &dyn fmt::Display) {
        self.shared.traffic.refusals.of(reason).increment();
        self.shared.registry.executor().telemetry().audit.record(|| {
            Entry::new("connection.refused")
                .text("peer", &peer.to_string())
                .text("refusal", reason.text())
                .text("reason", &detail.to_string())
        });
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

/// Who is let in at a listener, by the settings of the moment.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) authenticator: Arc<Authenticator>,
    /// Who may read the metrics, where they are served.
    pub(super) readers: Arc<Authenticator>,
    /// Without, it is served in clear.
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) allowed_hosts: Vec<HostName>,
}

/// What one listener serves with.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) common: Arc<Common>,
    access: RwLock<Arc<Access>>,
    is_tcp: bool,
    is_local: bool,
    /// Whether clients of the protocol are served.
    pub(super) upgrades: bool,
    pub(super) serves_metrics: bool,
}

impl Site {
    pub(super) fn new(
        common: &Arc<Common>,
        listener: &BoundListener,
        audience: Audience,
        rules: &Rules,
    ) -> Self {
        let (is_tcp, is_local) = (matches!(listener, BoundListener::Tcp(..)), listener.is_local());
        Self {
            common: Arc::clone(common),
            access: RwLock::new(Arc::new(rules.access(is_tcp, is_local))),
            is_tcp,
            is_local,
            upgrades: audience != Audience::Operators,
            serves_metrics: audience != Audience::Clients { metrics: false },
        }
    }

    /// Who is let in now.
    pub(super) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reached from this machine only, so that a browser here could be made to reach it.
    pub(super) fn is_loopback(&self) -> bool {
        self.is_tcp && self.is_local
    }

    /// Whoever comes from now on is judged by these rules.
    pub(super) fn follow(&self, rules: &Rules) {
        let access = Arc::new(rules.access(self.is_tcp, self.is_local));
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = access;
    }
}

/// What settings say about access, for all listeners.
#[derive(Debug)]
pub(super) struct Rules {
    authentication: Authentication,
    tls: Option<Arc<Tls>>,
    allowed_hosts: Vec<HostName>,
}

impl Rules {
    /// Reads the files that the settings name. It blocks on the disk.
    pub(super) fn new(
        settings: &Settings,
        is_exposed: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SetupError> {
        Ok(Self {
            authentication: Authentication::new(settings, is_exposed, variable)?,
            tls: settings.tls.as_ref().map(Tls::open).transpose()?.map(Arc::new),
            allowed_hosts: settings.config.server.allowed_hosts.clone(),
        })
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What the operator has to know about access, if anything.
    pub(super) fn notice(&self) -> Option<&str> {
        self.authentication.notice()
    }

    fn access(&self, is_tcp: bool, is_local: bool) -> Access {
        Access {
            authenticator: self.authentication.of(is_local),
            readers: self.authentication.readers(is_local),
            tls: self.tls.clone().filter(|_| is_tcp),
            allowed_hosts: self.allowed_hosts.clone(),
        }
    }
}
