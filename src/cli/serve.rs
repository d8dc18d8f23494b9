//! `exec-server` itself: the daemon.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::args::ServeArgs;
use super::signals::{self, Reload};
use super::{sandboxes, settings};
use crate::config::{LogFormat, Settings};
use crate::server::{self, Server};
use crate::service::{self, Manager, Sockets, State};
use crate::spawn::mark::ServerMark;
use crate::spawn::{guard, reaper};
use crate::telemetry::{self, LogControl};

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
    let mark = ServerMark::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let served = runtime.block_on(run(args.clone(), settings, control, sockets, mark));
    // A thread that is stuck in the kernel must not hold up the end.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn run(
    args: ServeArgs,
    settings: Settings,
    log: LogControl,
    sockets: Sockets,
    mark: ServerMark,
) -> anyhow::Result<()> {
    let manager = Manager::from_environment();
    let (shutdown, reloads) = signals::watch(manager.is_some())?;
    tend_processes();
    let sandboxes = sandboxes::of(&settings.config);
    let shared = Arc::clone(&sandboxes);
    tokio::spawn(guard::keep(mark, move || shared.placeholders.journal()));
    if server::is_stdio(&settings.config) {
        anyhow::ensure!(sockets.is_empty(), "stdio cannot be served beside sockets of the service manager");
        server::serve_stdio(&settings, mark, environment(), sandboxes, shutdown).await;
        return Ok(());
    }
    let server = Server::bind(&settings, mark, environment(), sandboxes, sockets).await?;
    announce(&server)?;
    if let Some(manager) = manager {
        manager.tell(State::Ready, status(&server)).await;
        let reload = Reload {
            args,
            started: settings.clone(),
            last: settings,
            log,
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
