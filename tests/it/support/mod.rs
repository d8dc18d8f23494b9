//! What the tests share.

pub(crate) mod events;
pub(crate) mod gateway;
pub(crate) mod messages;
pub(crate) mod params;
pub(crate) mod place;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod sandbox;
pub(crate) mod scripted;
pub(crate) mod server;
pub(crate) mod tree;
pub(crate) mod web;

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for a future that must complete.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it takes too long")
}

/// Whether a process of this machine runs.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

/// Waits until a condition of the outside world holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
