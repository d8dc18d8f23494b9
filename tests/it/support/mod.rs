//! What the tests share.

pub(crate) mod events;
pub(crate) mod gateway;
pub(crate) mod messages;
pub(crate) mod params;
pub(crate) mod place;
pub(crate) mod proxy;
pub(crate) mod raw;
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

/// Waits until a condition of the outside world holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
