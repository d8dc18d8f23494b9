//! The events of a process, as subscribers receive them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use crate::protocol::process::ProcessOutputChunk;

/// One event of a process. After `Closed` or `Failed` nothing follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecProcessEvent {
    /// Output.
    Output(ProcessOutputChunk),
    /// The process has ended; output may still follow.
    Exited {
        /// Its number.
        seq: u64,
        /// 0 to 255, or 128 + N for signal N.
        exit_code: i32,
        /// The exit looks like a denial of the sandbox.
        sandbox_denied: Option<bool>,
    },
    /// Nothing more will come.
    Closed {
        /// Its number.
        seq: u64,
    },
    /// The connection was lost for good, or the server sent nonsense.
    Failed(String),
}

impl ExecProcessEvent {
    /// Its number; failures have none.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Output(chunk) => Some(chunk.seq),
            Self::Exited { seq, .. } | Self::Closed { seq } => Some(*seq),
            Self::Failed(_) => None,
        }
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Closed { .. } | Self::Failed(_))
    }

    fn output_bytes(&self) -> usize {
        match self {
            Self::Output(chunk) => chunk.chunk.as_slice().len(),
            _ => 0,
        }
    }
}

/// Events retained for subscribers that come late or read slowly.
const RETAINED_EVENTS: usize = 256;
/// Output bytes retained likewise.
const RETAINED_BYTES: usize = 1 << 20;
/// A pacing receiver that is this far behind is waited for. What comes in the same turn still fits what is retained.
const PACED_EVENTS: u64 = 64;
const PACED_BYTES: usize = RETAINED_BYTES / 4;

/// The events of one process, published once, received by any number of subscribers.
///
/// One shared history instead of a queue a subscriber: memory is bounded however many there are and however slow.
#[derive(Debug, Default)]
pub struct ExecProcessEvents {
    history: Mutex<History>,
    news: Notify,
    /// Where the pacing receivers stand.
    pacers: Mutex<Vec<Weak<AtomicU64>>>,
    pacing: AtomicUsize,
    publisher: AtomicWaker,
}

#[derive(Debug, Default)]
struct History {
    events: VecDeque<ExecProcessEvent>,
    bytes: usize,
    /// How many events have fallen out of `events`.
    dropped: u64,
}

impl ExecProcessEvents {
    /// An empty history.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the next event. The publisher keeps the order; after the last one nothing is published.
    pub fn publish(&self, event: ExecProcessEvent) {
        let mut history = self.history();
        if history.events.back().is_some_and(ExecProcessEvent::is_last) {
            return;
        }
        history.bytes += event.output_bytes();
        history.events.push_back(event);
        while history.events.len() > RETAINED_EVENTS
            || (history.bytes > RETAINED_BYTES && history.events.len() > 1)
        {
            if let Some(oldest) = history.events.pop_front() {
                history.bytes -= oldest.output_bytes();
                history.dropped += 1;
            }
        }
        drop(history);
        self.news.notify_waiters();
    }

    /// A receiver that begins with the oldest retained event.
    pub fn subscribe(self: &Arc<Self>) -> ExecProcessEventReceiver {
        let next = self.history().dropped;
        ExecProcessEventReceiver { events: Arc::clone(self), next, ended: false, pace: None }
    }

    /// A receiver that the publisher waits for, if it asks [`Self::poll_room`].
    pub fn subscribe_paced(self: &Arc<Self>) -> ExecProcessEventReceiver {
        let mut receiver = self.subscribe();
        let pace = Arc::new(AtomicU64::new(receiver.next));
        self.pacers().push(Arc::downgrade(&pace));
        self.pacing.fetch_add(1, Ordering::Release);
        receiver.pace = Some(pace);
        receiver
    }

    fn pacers(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.pacers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when no pacing receiver is far behind. For the one task that publishes.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pacing.load(Ordering::Acquire) == 0 || self.has_room() {
            return Poll::Ready(());
        }
        self.publisher.register(cx.waker());
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_room(&self) -> bool {
        let slowest = {
            let mut pacers = self.pacers();
            pacers.retain(|pace| pace.strong_count() > 0);
            pacers.iter().filter_map(Weak::upgrade).map(|pace| pace.load(Ordering::Acquire)).min()
        };
        let Some(slowest) = slowest else { return true };
        let history = self.history();
        let behind = (history.dropped + history.events.len() as u64).saturating_sub(slowest);
        let newest = usize::try_from(behind).unwrap_or(usize::MAX);
        let bytes: usize = history.events.iter().rev().take(newest).map(ExecProcessEvent::output_bytes).sum();
        behind < PACED_EVENTS && bytes < PACED_BYTES
    }
}

/// Receives the events of a process.
#[derive(Debug)]
pub struct ExecProcessEventReceiver {
    events: Arc<ExecProcessEvents>,
    /// Position in the whole sequence.
    next: u64,
    ended: bool,
    /// The position, where the publisher sees it.
    pace: Option<Arc<AtomicU64>>,
}

impl Drop for ExecProcessEventReceiver {
    fn drop(&mut self) {
        if self.pace.take().is_some() {
            self.events.pacing.fetch_sub(1, Ordering::Release);
            self.events.publisher.wake();
        }
    }
}

/// Why [`ExecProcessEventReceiver::recv`] gave no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// This many events fell out before they were received. Read from the last number seen, then go on receiving.
    #[error("{0} events were missed")]
    Lagged(u64),
    /// The last event has been received.
    #[error("no more events")]
    Closed,
}

impl ExecProcessEventReceiver {
    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// [`RecvError::Lagged`] after falling behind by more than 256 events or 1 MiB; [`RecvError::Closed`] after the
    /// last event.
    pub async fn recv(&mut self) -> Result<ExecProcessEvent, RecvError> {
        loop {
            let events = Arc::clone(&self.events);
            let news = events.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(outcome) = self.next() {
                if let Some(pace) = &self.pace {
                    pace.store(self.next, Ordering::Release);
                    events.publisher.wake();
                }
                return outcome;
            }
            news.await;
        }
    }

    fn next(&mut self) -> Option<Result<ExecProcessEvent, RecvError>> {
        if self.ended {
            return Some(Err(RecvError::Closed));
        }
        let history = self.events.history();
        if self.next < history.dropped {
            let missed = history.dropped - self.next;
            self.next = history.dropped;
            return Some(Err(RecvError::Lagged(missed)));
        }
        let index = usize::try_from(self.next - history.dropped).ok()?;
        let event = history.events.get(index)?.clone();
        self.next += 1;
        self.ended = event.is_last();
        Some(Ok(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::process::ExecOutputStream;
    use std::future::poll_fn;

    fn output(seq: u64, size: usize) -> ExecProcessEvent {
        let chunk = vec![0; size].into();
        ExecProcessEvent::Output(ProcessOutputChunk { seq, stream: ExecOutputStream::Stdout, chunk })
    }

    #[tokio::test]
    async fn a_late_subscriber_sees_the_same_sequence() {
        let events = ExecProcessEvents::new();
        let mut early = events.subscribe();
        for event in [output(1, 3), ExecProcessEvent::Closed { seq: 2 }, output(3, 1)] {
            events.publish(event);
        }
        for mut receiver in [events.subscribe(), events.subscribe()] {
            assert_eq!(receiver.recv().await, Ok(output(1, 3)));
            assert_eq!(receiver.recv().await, Ok(ExecProcessEvent::Closed { seq: 2 }));
            assert_eq!(receiver.recv().await, Err(RecvError::Closed));
        }
        assert_eq!(early.recv().await, Ok(output(1, 3)));
    }

    #[tokio::test]
    async fn a_slow_subscriber_is_told_what_it_missed() {
        let events = ExecProcessEvents::new();
        let mut slow = events.subscribe();
        for seq in 1..=300 {
            events.publish(output(seq, 1));
        }
        assert_eq!(slow.recv().await, Err(RecvError::Lagged(44)));
        assert_eq!(slow.recv().await, Ok(output(45, 1)));
        events.publish(output(301, RETAINED_BYTES));
        assert_eq!(slow.recv().await, Err(RecvError::Lagged(255)));
        assert_eq!(slow.recv().await, Ok(output(301, RETAINED_BYTES)));
    }

    #[tokio::test]
    async fn the_publisher_waits_for_a_pacing_receiver() {
        let events = ExecProcessEvents::new();
        let mut paced = events.subscribe_paced();
        let writer = tokio::spawn({
            let events = Arc::clone(&events);
            async move {
                for seq in 1..=2000 {
                    poll_fn(|cx| events.poll_room(cx)).await;
                    events.publish(output(seq, 10_000));
                }
                events.publish(ExecProcessEvent::Closed { seq: 2001 });
            }
        });
        for seq in 1..=2000 {
            assert_eq!(paced.recv().await.map(|event| event.seq()), Ok(Some(seq)));
        }
        assert_eq!(paced.recv().await, Ok(ExecProcessEvent::Closed { seq: 2001 }));
        assert!(writer.await.is_ok());
        drop(paced);
        assert_eq!(events.pacing.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn waiting_ends_with_news() {
        let events = ExecProcessEvents::new();
        let mut receiver = events.subscribe();
        let waiting = tokio::spawn(async move { receiver.recv().await });
        events.publish(output(1, 1));
        assert_eq!(waiting.await.ok(), Some(Ok(output(1, 1))));
    }
}
