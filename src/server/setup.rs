//! From settings to the parts of a server.

use std::ffi::OsString;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Resources;
use super::connection::Shared;
use super::metrics::Traffic;
use crate::config::{Config, state_dir};
use crate::discovery::Discovery;
use crate::environment_config::EnvironmentConfig;
use crate::environment_info;
use crate::http_request::{HttpClient, HttpSettings};
use crate::memory::MemoryBudget;
use crate::network::proxy::own::OwnListeners;
use crate::network::proxy::site::Site;
use crate::network::proxy::upstream::UpstreamSettings;
use crate::outbound::{HttpClientFactory, OutboundProxyPolicy, find};
use crate::policy::egress::Authority;
use crate::process::SpoolSettings;
use crate::session::{Executor, ExecutorSettings, SessionRegistry};
use crate::snapshot::SnapshotSettings;

/// The server's environment, by name.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What all connections share.
pub(super) fn shared(config: &Config, resources: &Resources, own: Arc<OwnListeners>) -> Arc<Shared> {
    let Resources { mark, environment, sandboxes, limits, telemetry } = resources;
    let variable = |name: &str| find(environment, name);
    let info = environment_info::gather(variable, config.snapshot.enabled);
    let home = environment_info::home(&info);
    let codex_home = variable("CODEX_HOME").filter(|home| !home.is_empty()).map(Into::into);
    let hostname = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
    let memory = MemoryBudget::new(config.limits.memory_bytes);
    let executor = Executor::new(
        ExecutorSettings {
            memory: Arc::clone(&memory),
            limits: limits.clone(),
            telemetry: Arc::clone(telemetry),
            ..executor_settings(config, &variable)
        },
        *mark,
        environment.clone(),
        Arc::clone(sandboxes),
        Arc::new(proxies(config, &variable, own)),
    );
    let settings = EnvironmentConfig::new(home, codex_home, hostname);
    let discovery = Discovery::new(settings.home(), settings.codex_home()).beside(Arc::clone(sandboxes));
    Arc::new(Shared {
        registry: SessionRegistry::new(executor, config.server.max_sessions, config.session.detached_ms),
        info,
        memory,
        sandboxes: Arc::clone(sandboxes),
        config: Arc::new(settings),
        discovery: Arc::new(discovery),
        http: Arc::new(HttpClient::new(http_settings(config, environment))),
        traffic: Arc::new(Traffic::default()),
        concurrent_requests: config.server.concurrent_requests,
        initialize_timeout: config.server.initialize_timeout_ms,
        ping_interval: config.session.ping_interval_ms,
        ping_timeout: config.session.ping_timeout_ms,
        shutdown: CancellationToken::new(),
    })
}

/// What the proxies of processes share.
fn proxies(config: &Config, variable: Variables<'_>, own: Arc<OwnListeners>) -> Site {
    let tcp = config.network.tcp_upstream_proxy.as_ref();
    let upstream = UpstreamSettings {
        tcp: tcp.map(|proxy| Authority { host: proxy.host.to_string(), port: Some(proxy.port.get()) }),
        private_ips: config.network.private_ips_via_upstream,
        variable: Some(variable),
    };
    Site::new(config.network.max_connections.get(), upstream, own)
}

fn http_settings(config: &Config, environment: &[(OsString, OsString)]) -> HttpSettings {
    HttpSettings {
        max_buffered: config.http.max_buffered_bytes,
        allowed_variables: config.http.header_env_allow.iter().map(ToString::to_string).collect(),
        deny: config.http.deny.clone(),
        outbound: HttpClientFactory::with_environment(
            OutboundProxyPolicy::ReqwestDefault,
            environment.to_vec(),
        ),
    }
}

fn executor_settings(config: &Config, variable: Variables<'_>) -> ExecutorSettings {
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
        child_oom_score_adj: u16::try_from(config.limits.child_oom_score_adj).unwrap_or(u16::MAX),
        snapshots: SnapshotSettings {
            enabled: config.snapshot.enabled,
            capture_limit: config.snapshot.capture_ms,
            cache_bytes: usize::try_from(config.snapshot.cache_bytes).unwrap_or(usize::MAX),
        },
        checks_peers: config.network.check_peer,
        ..ExecutorSettings::default()
    }
}
