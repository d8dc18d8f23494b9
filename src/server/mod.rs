//! The server: listeners, authentication, connections, and its end.

mod accept;
pub mod auth;
pub mod connection;
pub mod host_check;
mod http;
pub mod listen;
mod stream;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::auth::Authentication;
use self::connection::{Kind, Shared};
use self::http::Site;
use self::listen::{BoundListener, ListenAddress};
use crate::config::{Config, Settings, state_dir};
use crate::environment_config::EnvironmentConfig;
use crate::environment_info;
use crate::http_request::{HttpClient, HttpSettings};
use crate::memory::MemoryBudget;
use crate::process::{SpoolSettings, end_scope};
use crate::rpc::lines::Lines;
use crate::sandbox::Sandboxes;
use crate::session::{Executor, ExecutorSettings, LimitPolicy, SessionRegistry};
use crate::snapshot::SnapshotSettings;
use crate::spawn::cgroup::Hierarchy;
use crate::spawn::mark::ServerMark;
use crate::spawn::tree::Scope;

/// Sockets that may be open without having been upgraded.
const STRANGERS: usize = 512;
/// How long connections may take for their goodbyes.
const GOODBYES: Duration = Duration::from_millis(1500);

/// A server that has bound its addresses.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    sites: Vec<(BoundListener, Arc<Site>)>,
    connections: TaskTracker,
    strangers: Arc<Semaphore>,
    notice: Option<String>,
    drain: Duration,
    grace: Duration,
    mark: ServerMark,
    groups: Option<Arc<Hierarchy>>,
}

/// What runs are confined and limited by.
pub type Confinement = (Arc<Sandboxes>, LimitPolicy);

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
}

/// The server's environment, by name.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Server {
    /// Binds the addresses of the settings and sets everything up. Nothing is served before [`Self::run`].
    ///
    /// # Errors
    /// An address that cannot be bound, authentication that cannot be set up.
    pub async fn bind(
        settings: &Settings,
        mark: ServerMark,
        environment: Vec<(OsString, OsString)>,
        confinement: Confinement,
    ) -> Result<Self, SetupError> {
        let config = &settings.config;
        let mut listeners = Vec::new();
        for address in &config.server.listen {
            listeners.push(BoundListener::bind(address).await?);
        }
        let variable = |name: &str| find(&environment, name);
        let is_exposed = listeners.iter().any(|listener| !listener.is_local());
        let authentication = Authentication::new(settings, is_exposed, variable)?;
        let notice = authentication.notice().map(str::to_owned);
        let groups = confinement.1.groups().cloned();
        let shared = shared(config, mark, &environment, confinement);
        let connections = TaskTracker::new();
        let seats = Arc::new(Semaphore::new(config.server.max_connections.get()));
        let site = |listener: &BoundListener| {
            Arc::new(Site {
                shared: Arc::clone(&shared),
                authenticator: authentication.of(listener.is_local()),
                is_loopback: matches!(listener, BoundListener::Tcp(..)) && listener.is_local(),
                allowed_hosts: config.server.allowed_hosts.clone(),
                head_timeout: config.server.head_timeout_ms,
                seats: Arc::clone(&seats),
                max_connections: config.server.max_connections.get(),
                connections: connections.clone(),
            })
        };
        let sites = listeners
            .into_iter()
            .map(|listener| {
                let site = site(&listener);
                (listener, site)
            })
            .collect();
        Ok(Self {
            shared,
            sites,
            connections,
            strangers: Arc::new(Semaphore::new(STRANGERS + config.server.max_connections.get())),
            notice,
            drain: config.server.drain_ms,
            grace: config.process.grace_ms,
            mark,
            groups,
        })
    }

    /// Where clients connect, in the order of the settings.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sites.iter().map(|(listener, _)| listener.url()).collect()
    }

    /// What the operator has to know about access, if anything.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Serves until `shutdown`, then says goodbye to all connections and ends all processes.
    pub async fn run(self, shutdown: Shutdown) {
        let accepting = TaskTracker::new();
        // Found out before it is needed.
        let sandboxes = Arc::clone(&self.shared.sandboxes);
        tokio::task::spawn_blocking(move || sandboxes.host());
        for (listener, site) in self.sites {
            accepting.spawn(accept::run(listener, site, Arc::clone(&self.strangers)));
        }
        shutdown.begin.cancelled().await;
        self.shared.shutdown.cancel();
        self.connections.close();
        let goodbyes = tokio::time::timeout(GOODBYES, self.connections.wait());
        let owned = Owned { mark: self.mark, groups: self.groups };
        let ends = end_everything(&self.shared.registry, owned, self.grace, self.drain, &shutdown.at_once);
        let _ = tokio::join!(goodbyes, ends);
    }
}

fn find(environment: &[(OsString, OsString)], name: &str) -> Option<OsString> {
    environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

fn shared(
    config: &Config,
    mark: ServerMark,
    environment: &[(OsString, OsString)],
    (sandboxes, limits): Confinement,
) -> Arc<Shared> {
    let variable = |name: &str| find(environment, name);
    let info = environment_info::gather(variable, config.snapshot.enabled);
    let home = environment_info::home(&info);
    let codex_home = variable("CODEX_HOME").filter(|home| !home.is_empty()).map(Into::into);
    let hostname = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
    let memory = MemoryBudget::new(config.limits.memory_bytes);
    let executor = Executor::new(
        ExecutorSettings { memory: Arc::clone(&memory), ..executor_settings(config, limits, &variable) },
        mark,
        environment.to_vec(),
        Arc::clone(&sandboxes),
    );
    Arc::new(Shared {
        registry: SessionRegistry::new(executor, config.server.max_sessions, config.session.detached_ms),
        info,
        memory,
        sandboxes,
        config: Arc::new(EnvironmentConfig::new(home, codex_home, hostname)),
        http: Arc::new(HttpClient::new(http_settings(config, environment))),
        concurrent_requests: config.server.concurrent_requests,
        initialize_timeout: config.server.initialize_timeout_ms,
        ping_interval: config.session.ping_interval_ms,
        ping_timeout: config.session.ping_timeout_ms,
        shutdown: CancellationToken::new(),
    })
}

fn http_settings(config: &Config, environment: &[(OsString, OsString)]) -> HttpSettings {
    HttpSettings {
        max_buffered: config.http.max_buffered_bytes,
        allowed_variables: config.http.header_env_allow.iter().map(ToString::to_string).collect(),
        deny: config.http.deny.clone(),
        environment: environment.to_vec(),
    }
}

fn executor_settings(config: &Config, limits: LimitPolicy, variable: Variables<'_>) -> ExecutorSettings {
    let configured = config.process.spool_dir.clone();
    let directories = match configured {
        Some(directory) => vec![directory],
        None => state_dir(config.server.state_dir.as_deref(), variable)
            .into_iter()
            .chain([std::env::temp_dir()])
            .collect(),
    };
    ExecutorSettings {
        grace: config.process.grace_ms,
        spool: SpoolSettings {
            per_process: config.process.spool_bytes,
            total: config.process.spool_total_bytes,
            directories,
        },
        max_processes: config.limits.processes,
        max_processes_per_session: config.limits.processes_per_session,
        limits,
        child_oom_score_adj: u16::try_from(config.limits.child_oom_score_adj).unwrap_or(u16::MAX),
        snapshots: SnapshotSettings {
            enabled: config.snapshot.enabled,
            capture_limit: config.snapshot.capture_ms,
            cache_bytes: usize::try_from(config.snapshot.cache_bytes).unwrap_or(usize::MAX),
        },
        ..ExecutorSettings::default()
    }
}

/// What everything that a server started is known by.
struct Owned {
    mark: ServerMark,
    groups: Option<Arc<Hierarchy>>,
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
pub async fn serve_stdio(
    settings: &Settings,
    mark: ServerMark,
    environment: Vec<(OsString, OsString)>,
    confinement: Confinement,
    shutdown: Shutdown,
) {
    let config = &settings.config;
    let owned = Owned { mark, groups: confinement.1.groups().cloned() };
    let shared = shared(config, mark, &environment, confinement);
    let registry = Arc::clone(&shared.registry);
    let transport = Lines::new(tokio::io::stdin(), tokio::io::stdout());
    let stop = shared.shutdown.clone();
    let serving = Box::pin(connection::serve(transport, shared, Kind::Stdio));
    tokio::select! {
        () = serving => {}
        () = async { shutdown.begin.cancelled().await; stop.cancel() } => {}
    }
    let (grace, drain) = (config.process.grace_ms, config.server.drain_ms);
    end_everything(&registry, owned, grace, drain, &shutdown.at_once).await;
}

/// Whether the settings ask for standard input and output instead of sockets.
#[must_use]
pub fn is_stdio(config: &Config) -> bool {
    config.server.listen.contains(&ListenAddress::Stdio)
}
