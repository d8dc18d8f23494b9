//! What a connection pulls events from: the logs that have something for it, in turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::log::OutputLog;

/// The queue of one attachment. It holds logs, not events, so its size is bounded by the number of processes.
#[derive(Debug)]
pub struct Feed {
    ready: Mutex<VecDeque<Arc<OutputLog>>>,
    reader: AtomicWaker,
    paces: bool,
}

impl Feed {
    /// A feed. If it `paces`, processes wait for it; else it is told when it has fallen behind.
    #[must_use]
    pub fn new(paces: bool) -> Arc<Self> {
        Arc::new(Self { ready: Mutex::default(), reader: AtomicWaker::new(), paces })
    }

    /// Whether processes wait for this feed.
    #[must_use]
    pub fn paces(&self) -> bool {
        self.paces
    }

    /// Queues a log that has events.
    pub fn push(&self, log: Arc<OutputLog>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(log);
        self.reader.wake();
    }

    /// The next log that has events.
    pub fn pop(&self) -> Option<Arc<OutputLog>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Like [`Self::pop`], waiting for one. For the one task that reads this feed.
    pub fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Arc<OutputLog>> {
        if let Some(log) = self.pop() {
            return Poll::Ready(log);
        }
        self.reader.register(cx.waker());
        self.pop().map_or(Poll::Pending, Poll::Ready)
    }

    /// The next log that has events, as soon as there is one. Cancel-safe; one waiter.
    pub async fn next(&self) -> Arc<OutputLog> {
        poll_fn(|cx| self.poll_pop(cx)).await
    }
}
