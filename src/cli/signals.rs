//! Signals to the daemon, and what comes of them.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::ServeArgs;
use super::settings;
use crate::config::Settings;
use crate::server::{Reloader, Shutdown};
use crate::service::{Manager, State};
use crate::telemetry::LogControl;

/// The first signal drains, a second one ends at once. SIGHUP is one of them, unless a service manager is there to send
/// it for a reload.
pub(super) fn watch(is_managed: bool) -> anyhow::Result<(Shutdown, Signal)> {
    let shutdown = Shutdown::default();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let reloads = signal(SignalKind::hangup())?;
    let steps = shutdown.clone();
    tokio::spawn(async move {
        for step in [&steps.begin, &steps.at_once] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv(), if !is_managed => {}
            }
            step.cancel();
        }
    });
    Ok((shutdown, reloads))
}

/// Reads the settings again, and follows them as far as a running server can.
pub(super) struct Reload {
    pub(super) args: ServeArgs,
    /// Those that the server was started with.
    pub(super) started: Settings,
    /// Those that were read last.
    pub(super) last: Settings,
    pub(super) log: LogControl,
    pub(super) reloader: Arc<Reloader>,
    pub(super) status: String,
}

impl Reload {
    /// At every signal, until the process ends.
    pub(super) async fn run(mut self, manager: Manager, mut reloads: Signal) {
        while reloads.recv().await.is_some() {
            manager.tell(State::Reloading, "Reading the settings").await;
            let status = match self.again().await {
                Ok(()) => self.status.clone(),
                Err(error) => {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "kept the settings: the new ones cannot be used"
                    );
                    format!("{}; the settings could not be read again", self.status)
                }
            };
            manager.tell(State::Ready, status).await;
        }
    }

    async fn again(&mut self) -> anyhow::Result<()> {
        let (args, reloader) = (self.args.clone(), Arc::clone(&self.reloader));
        let next = tokio::task::spawn_blocking(move || {
            let next = settings::load(&args)?;
            reloader.follow(&next)?;
            anyhow::Ok(next)
        });
        let next = next.await??;
        self.log.set_filter(next.config.log.filter.to_filter());
        tracing::info!(changed = ?self.last.changes(&next).followed, "read the settings again");
        let ignored = self.started.changes(&next).ignored;
        if !ignored.is_empty() {
            tracing::warn!(keys = ?ignored, "these settings have changed and need a restart");
        }
        self.last = next;
        Ok(())
    }
}
