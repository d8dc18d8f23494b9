//! What the manager is told.

use std::fmt;
use std::time::Duration;

use sd_notify::NotifyState;

/// What this process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It serves.
    Ready,
    /// It reads its settings again.
    Reloading,
    /// It ends.
    Stopping,
}

/// The manager, as far as it wants to be told anything.
#[derive(Debug, Clone, Copy)]
pub struct Manager {
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that the environment names.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let named = std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty());
        named.then(|| Self { watchdog: sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) })
    }

    /// Tells it a state, with a line for people.
    pub async fn tell(self, state: State, status: impl fmt::Display) {
        let status = status.to_string();
        self.send(move || {
            let status = NotifyState::Status(&status);
            match state {
                State::Ready => sd_notify::notify(&[NotifyState::Ready, status]),
                State::Reloading => {
                    sd_notify::notify(&[NotifyState::Reloading, NotifyState::monotonic_usec_now()?, status])
                }
                State::Stopping => sd_notify::notify(&[NotifyState::Stopping, status]),
            }
        })
        .await;
    }

    /// Tells it, twice in the period that it has set, that this process is alive. What tells it passes through the
    /// runtime's threads, its timers and its blocking threads: without any of them the server serves nobody.
    pub async fn keep_alive(self) {
        let Some(period) = self.watchdog else { return };
        let mut ticks = tokio::time::interval(period / 2);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let passes_through = tokio::spawn(async move {
                self.send(|| sd_notify::notify(&[NotifyState::Watchdog])).await;
            });
            if passes_through.await.is_err() {
                return;
            }
        }
    }

    /// The socket may be slow, so it is written to where blocking is allowed.
    async fn send(self, notify: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
        match tokio::task::spawn_blocking(notify).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the service manager cannot be told"),
            Err(error) => tracing::warn!(%error, "the service manager was not told"),
        }
    }
}
