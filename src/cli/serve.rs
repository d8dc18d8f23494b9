//! `exec-server` itself: the daemon.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use super::args::ServeArgs;
use super::signals::{self, Reload};
use super::{limits, sandboxes, settings};
use crate::config::{LogFormat, Settings};
use crate::server::{self, Resources, Server, Shutdown};
use crate::service::{self, Manager, Sockets, State};
use crate::spawn::mark::ServerMark;
use crate::spawn::{guard, reaper};
use crate::telemetry::{self, LogControl, Telemetry};

/// How long the last entries of the audit log may take.
const LAST_ENTRIES: Duration = Duration::from_secs(2);

/// Serves until the process is told to end.
pub(super) fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = settings::load(args)?;
    let log = &settings.config.log;
    let control = telemetry::init(log.filter.to_filter(), log.format == LogFormat::Json)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    // Before anything else opens a descriptor or starts a thread.
    let sockets = service::take_sockets()?;
    let resources = Resources {
        mark: ServerMark::new(),
        environment: environment(),
        sandboxes: sandboxes::of(&settings.config),
        limits: limits::policy(&settings.config)?,
        telemetry: Arc::new(Telemetry::new(settings.config.log.audit.as_ref())?),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let daemon = Daemon { args: args.clone(), settings, log: control, sockets, resources };
    let served = runtime.block_on(daemon.run());
    // A thread that is stuck in the kernel must not hold up the end.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

/// What the daemon is made of.
struct Daemon {
    args: ServeArgs,
    settings: Settings,
    log: LogControl,
    sockets: Sockets,
    resources: Resources,
}

impl Daemon {
    async fn run(self) -> anyhow::Result<()> {
        let manager = Manager::from_environment();
        let (shutdown, reloads) = signals::watch(manager.is_some())?;
        tend_processes();
        // The first client needs to know; it is found out while everything else is set up.
        let sandboxes = Arc::clone(&self.resources.sandboxes);
        let tried = Arc::clone(&sandboxes);
        tokio::task::spawn_blocking(move || tried.host());
        let runs = self.resources.limits.groups().map(|groups| groups.runs().clone());
        tokio::spawn(guard::keep(self.resources.mark, runs, move || sandboxes.placeholders.journal()));
        let audit = self.resources.telemetry.audit.clone();
        let outcome = if server::is_stdio(&self.settings.config) {
            self.serve_stdio(shutdown).await
        } else {
            self.serve(manager, shutdown, reloads).await
        };
        // The last entries are those of the end. Nobody can be told that the log is stuck but those who miss them: it may
        // be the same stream that errors go to.
        let flushing = tokio::task::spawn_blocking(move || audit.flush(LAST_ENTRIES));
        let _ = tokio::time::timeout(LAST_ENTRIES, flushing).await;
        outcome
    }

    async fn serve_stdio(self, shutdown: Shutdown) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.sockets.is_empty(),
            "stdio cannot be served beside sockets of the service manager"
        );
        server::serve_stdio(&self.settings, self.resources, shutdown).await;
        Ok(())
    }

    async fn serve(
        self,
        manager: Option<Manager>,
        shutdown: Shutdown,
        reloads: Signal,
    ) -> anyhow::Result<()> {
        let server = Server::bind(&self.settings, self.resources, self.sockets).await?;
        announce(&server)?;
        if let Some(manager) = manager {
            manager.tell(State::Ready, status(&server)).await;
            let reload = Reload {
                args: self.args,
                started: self.settings.clone(),
                last: self.settings,
                log: self.log,
                reloader: Arc::new(server.reloader()),
                status: status(&server),
            };
            tokio::spawn(reload.run(manager, reloads));
            tokio::spawn(manager.keep_alive());
            tokio::spawn(say_goodbye(manager, shutdown.begin.clone()));
        }
        server.run(shutdown).await;
        Ok(())
    }
}

/// Takes care of whatever is below this process.
fn tend_processes() {
    if let Err(error) = reaper::become_subreaper() {
        tracing::warn!(%error, "orphans of processes cannot be adopted; some may escape their end");
    }
    tokio::spawn(async {
        if let Err(error) = reaper::reap_orphans().await {
            tracing::error!(%error, "orphans are not reaped");
        }
    });
}

/// What processes may inherit: not the line to the service manager.
fn environment() -> Vec<(OsString, OsString)> {
    let is_ours = |name: &OsString| service::VARIABLES.iter().any(|variable| name == variable);
    std::env::vars_os().filter(|(name, _)| !is_ours(name)).collect()
}

/// Says where it serves.
fn announce(server: &Server) -> anyhow::Result<()> {
    if let Some(notice) = server.notice() {
        eprintln!("{notice}");
    }
    for url in server.metrics_urls() {
        tracing::info!(%url, "serving metrics");
    }
    let mut lines = server.urls().join("\n");
    lines.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush()).context("cannot print the address")
}

fn status(server: &Server) -> String {
    format!("Serving {}", server.urls().join(", "))
}

async fn say_goodbye(manager: Manager, begin: CancellationToken) {
    begin.cancelled().await;
    manager.tell(State::Stopping, "Ending connections and processes").await;
}
