//! What a connection pulls events from: the logs that have something for it, in turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::log::OutputLog;

/// The queue of one attachment. It holds logs, not events, so its size is bounded by the number of processes.
#[derive(Debug)]
pub struct Feed {
    ready: Mutex<VecDeque<Arc<OutputLog>>>,
    news: Notify,
    paces: bool,
}

impl Feed {
    /// A feed. If it `paces`, processes wait for it; else it is told when it has fallen behind.
    #[must_use]
    pub fn new(paces: bool) -> Arc<Self> {
        Arc::new(Self { ready: Mutex::default(), news: Notify::new(), paces })
    }

    /// Whether processes wait for this feed.
    #[must_use]
    pub fn paces(&self) -> bool {
        self.paces
    }

    /// Queues a log that has events.
    pub fn push(&self, log: Arc<OutputLog>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(log);
        self.news.notify_one();
    }

    /// The next log that has events.
    pub fn pop(&self) -> Option<Arc<OutputLog>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Waits until [`Self::pop`] may give something. Cancel-safe; one waiter.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}
