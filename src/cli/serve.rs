//! `exec-server` itself: the daemon.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use super::{limits, sandboxes};
use crate::config::Settings;
use crate::server::{self, Server, Shutdown};
use crate::spawn::mark::ServerMark;
use crate::spawn::{guard, reaper};

/// Serves until the process is told to end.
pub(super) fn serve(settings: Settings) -> anyhow::Result<ExitCode> {
    let mark = ServerMark::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let served = runtime.block_on(run(settings, mark));
    // A thread that is stuck in the kernel must not hold up the end.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn run(settings: Settings, mark: ServerMark) -> anyhow::Result<()> {
    let shutdown = Shutdown::default();
    watch_signals(shutdown.clone())?;
    if let Err(error) = reaper::become_subreaper() {
        tracing::warn!(%error, "orphans of processes cannot be adopted; some may escape their end");
    }
    tokio::spawn(async {
        if let Err(error) = reaper::reap_orphans().await {
            tracing::error!(%error, "orphans are not reaped");
        }
    });
    let limits = limits::policy(&settings.config)?;
    let runs = limits.groups().map(|groups| groups.runs().clone());
    let sandboxes = sandboxes::of(&settings.config);
    let shared = Arc::clone(&sandboxes);
    tokio::spawn(guard::keep(mark, runs, move || shared.placeholders.journal()));
    let environment = std::env::vars_os().collect();
    if server::is_stdio(&settings.config) {
        server::serve_stdio(&settings, mark, environment, (sandboxes, limits), shutdown).await;
        return Ok(());
    }
    let server = Server::bind(&settings, mark, environment, (sandboxes, limits)).await?;
    if let Some(notice) = server.notice() {
        eprintln!("{notice}");
    }
    let mut lines = server.urls().join("\n");
    lines.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush()).context("cannot print the address")?;
    drop(stdout);
    server.run(shutdown).await;
    Ok(())
}

/// The first signal drains, a second one ends at once.
fn watch_signals(shutdown: Shutdown) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        for step in [&shutdown.begin, &shutdown.at_once] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
            step.cancel();
        }
    });
    Ok(())
}
