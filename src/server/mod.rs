//! The server: listeners, authentication, connections, and its end.

mod accept;
pub mod auth;
pub mod connection;
mod followed;
pub mod host_check;
mod http;
pub mod listen;
mod metrics;
mod reload;
mod setup;
mod site;
mod stream;
mod tls;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::{Kind, Who};
use self::listen::{BoundListener, ListenAddress};
pub use self::reload::{ReloadError, Reloader};
use self::site::{Audience, Common, Rules, Site};
pub use self::tls::TlsError;
use crate::config::{Config, Settings};
use crate::network::proxy::own::{OwnListener, OwnListeners, Owner, Transport};
use crate::outbound::find;
use crate::process::end_scope;
use crate::rpc::lines::Lines;
use crate::sandbox::Sandboxes;
use crate::service::Sockets;
use crate::session::{LimitPolicy, SessionRegistry};
use crate::spawn::cgroup::Hierarchy;
use crate::spawn::mark::ServerMark;
use crate::spawn::tree::Scope;
use crate::telemetry::Telemetry;

/// How long connections may take for their goodbyes.
const GOODBYES: Duration = Duration::from_millis(1500);

/// A server that has bound its addresses.
#[derive(Debug)]
pub struct Server {
    common: Arc<Common>,
    sites: Vec<(BoundListener, Arc<Site>)>,
    /// Those of the settings that clients use; the others are for operators.
    client_sites: usize,
    notice: Option<String>,
    is_exposed: bool,
    environment: Vec<(OsString, OsString)>,
    state_dir: Option<PathBuf>,
    drain: Duration,
    grace: Duration,
    owned: Owned,
    /// Its proxies lead nobody here.
    _ports: Vec<OwnListener>,
}

/// What a server is given by its process.
#[derive(Debug)]
pub struct Resources {
    /// The mark of everything that it starts.
    pub mark: ServerMark,
    /// The environment that processes may inherit, and that names files.
    pub environment: Vec<(OsString, OsString)>,
    /// What enforces policies.
    pub sandboxes: Arc<Sandboxes>,
    /// What runs are limited to, and what holds them to it.
    pub limits: LimitPolicy,
    /// Where everything is counted and accounted for.
    pub telemetry: Arc<Telemetry>,
}

/// How a server is told to end.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Say goodbye, and let processes end in their grace.
    pub begin: CancellationToken,
    /// Kill what is left.
    pub at_once: CancellationToken,
}

/// Why a server cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] listen::BindError),
    /// The authentication cannot be set up.
    #[error(transparent)]
    Auth(#[from] auth::AuthError),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Server {
    /// Binds the addresses of the settings, or takes the sockets that stand for them, and sets everything up. Nothing is served
    /// before [`Self::run`].
    ///
    /// # Errors
    /// An address that cannot be bound, authentication that cannot be set up.
    pub async fn bind(
        settings: &Settings,
        resources: Resources,
        sockets: Sockets,
    ) -> Result<Self, SetupError> {
        let config = &settings.config;
        let mut listeners = listen::all(&config.server.listen, sockets.clients).await?;
        let client_sites = listeners.len();
        listeners.extend(listen::all(&config.metrics.listen, sockets.operators).await?);
        let is_exposed = listeners.iter().any(|listener| !listener.is_local());
        // Before anybody can know of the ports.
        let own = Arc::new(OwnListeners::default());
        let ports: Vec<OwnListener> = listeners
            .iter()
            .filter_map(BoundListener::port)
            .map(|port| own.add(Owner::Server, Transport::Tcp, port))
            .collect();
        let rules = Rules::new(settings, is_exposed, |name| find(&resources.environment, name))?;
        let common = Arc::new(Common::new(config, setup::shared(config, &resources, own)));
        let metrics = listeners.len() == client_sites;
        let site = |(index, listener): (usize, BoundListener)| {
            let is_for_clients = index < client_sites;
            let audience = if is_for_clients { Audience::Clients { metrics } } else { Audience::Operators };
            let site = Site::new(&common, &listener, audience, &rules);
            (listener, Arc::new(site))
        };
        Ok(Self {
            sites: listeners.into_iter().enumerate().map(site).collect(),
            client_sites,
            notice: rules.notice().map(str::to_owned),
            is_exposed,
            owned: Owned::by(&resources),
            environment: resources.environment,
            state_dir: config.server.state_dir.clone(),
            drain: config.server.drain_ms,
            grace: config.process.grace_ms,
            _ports: ports,
            common,
        })
    }

    /// Where clients connect, in the order of the settings.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.urls_of(0..self.client_sites)
    }

    /// Where `metrics.listen` is served, in the order of the settings.
    #[must_use]
    pub fn metrics_urls(&self) -> Vec<String> {
        let http = |url: String| url.replacen("ws", "http", usize::from(url.starts_with("ws")));
        self.urls_of(self.client_sites..self.sites.len()).into_iter().map(http).collect()
    }

    fn urls_of(&self, sites: std::ops::Range<usize>) -> Vec<String> {
        self.sites[sites].iter().map(|(listener, site)| listener.url(site.access().tls.is_some())).collect()
    }

    /// Changes the server while it runs.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader {
            sites: self.sites.iter().map(|(_, site)| Arc::clone(site)).collect(),
            is_exposed: self.is_exposed,
            environment: self.environment.clone(),
            state_dir: self.state_dir.clone(),
        }
    }

    /// What the operator has to know about access, if anything.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Serves until `shutdown`, then says goodbye to all connections and ends all processes. Meanwhile `/readyz` says
    /// that it is not ready, and nobody is let in.
    pub async fn run(self, shutdown: Shutdown) {
        let (common, accepting) = (self.common, TaskTracker::new());
        for (listener, site) in self.sites {
            accepting.spawn(accept::run(listener, site));
        }
        shutdown.begin.cancelled().await;
        common.shared.shutdown.cancel();
        common.connections.close();
        let goodbyes = tokio::time::timeout(GOODBYES, common.connections.wait());
        let registry = &common.shared.registry;
        let ends = end_everything(registry, self.owned, self.grace, self.drain, &shutdown.at_once);
        let _ = tokio::join!(goodbyes, ends);
        common.closed.cancel();
        accepting.close();
        accepting.wait().await;
    }
}

/// What everything that a server started is known by.
#[derive(Debug)]
struct Owned {
    mark: ServerMark,
    groups: Option<Arc<Hierarchy>>,
}

impl Owned {
    fn by(resources: &Resources) -> Self {
        Self { mark: resources.mark, groups: resources.limits.groups().cloned() }
    }
}

/// Ends all sessions, and at the end of the drain whatever is left.
async fn end_everything(
    registry: &SessionRegistry,
    owned: Owned,
    grace: Duration,
    drain: Duration,
    at_once: &CancellationToken,
) {
    let grace = grace.min(drain.saturating_sub(Duration::from_secs(1)));
    tokio::select! {
        _ = tokio::time::timeout(drain, registry.end_all(grace)) => {}
        () = at_once.cancelled() => {}
    }
    let group = owned.groups.as_ref().map(|groups| groups.runs().clone());
    let scope = Scope { group, marks: owned.mark.range(), descendants: true, ..Scope::default() };
    end_scope(scope, Duration::ZERO).await;
    if let Some(groups) = owned.groups {
        let _ = tokio::task::spawn_blocking(move || groups.end()).await;
    }
}

/// Serves one connection on standard input and output, until the input ends or `shutdown`.
pub async fn serve_stdio(settings: &Settings, resources: Resources, shutdown: Shutdown) {
    let (config, owned) = (&settings.config, Owned::by(&resources));
    let shared = setup::shared(config, &resources, Arc::default());
    let registry = Arc::clone(&shared.registry);
    let transport = Lines::new(tokio::io::stdin(), tokio::io::stdout());
    let stop = shared.shutdown.clone();
    let serving = Box::pin(connection::serve(transport, shared, Kind::Stdio, Who::stdio()));
    tokio::select! {
        () = serving => {}
        () = async { shutdown.begin.cancelled().await; stop.cancel() } => {}
    }
    let (grace, drain) = (config.process.grace_ms, config.server.drain_ms);
    end_everything(&registry, owned, grace, drain, &shutdown.at_once).await;
}

/// Tries the files that the settings name: of tokens, secrets and certificates.
///
/// # Errors
/// The first one that cannot be used.
pub fn check_files(settings: &Settings) -> Result<(), SetupError> {
    // As if nothing were exposed: checking must not make a token.
    Rules::new(settings, false, |_| None).map(drop)
}

/// Whether the settings ask for standard input and output instead of sockets.
#[must_use]
pub fn is_stdio(config: &Config) -> bool {
    config.server.listen.contains(&ListenAddress::Stdio)
}
