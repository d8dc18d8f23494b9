//! What the buffers of a server hold together.
//!
//! Small things are counted as they come, and those who make more of them look whether all is used up first. What can be
//! large is reserved before it is made. Reservations are served in order, and one is always granted if there is no other,
//! so that everything goes on, one at a time at worst: the limit can be exceeded by one reservation and by what is small.
//! One that turns out to be small takes no turn: somebody who does not read holds up large answers, and nothing else.
//! Without a limit nothing is counted.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify};

/// A reservation of at most so many bytes is counted at once.
const SMALL: usize = 256 << 10;

/// See the module's description.
#[derive(Debug, Default)]
pub struct MemoryBudget {
    limit: Option<usize>,
    /// What takes no turn.
    small: usize,
    used: AtomicUsize,
    reserved: AtomicUsize,
    /// Whose reservation is next.
    turn: Mutex<()>,
    released: Notify,
}

/// What so many bytes and the base64 of them take.
#[must_use]
pub fn with_base64(bytes: u64) -> usize {
    usize::try_from(bytes.saturating_mul(7) / 3).unwrap_or(usize::MAX)
}

/// Bytes that count until this is dropped.
#[derive(Debug, Default)]
pub struct Held {
    /// None where nothing is counted.
    budget: Option<Arc<MemoryBudget>>,
    bytes: usize,
    is_reservation: bool,
}

impl MemoryBudget {
    /// A budget of this many bytes, or of any number.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        let limit = limit.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Arc::new(Self { limit, small: SMALL, ..Self::default() })
    }

    /// The limit, if there is one.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Whether all is used up.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.used.load(Ordering::Relaxed) >= limit)
    }

    /// Counts what is there already.
    #[must_use]
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        self.add(bytes);
        self.held(bytes, false)
    }

    /// Counts without a value that gives it back.
    pub fn add(&self, bytes: usize) {
        if self.limit.is_some() {
            self.used.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Gives back what was counted so.
    pub fn release(&self, bytes: usize) {
        if self.limit.is_some() {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.released.notify_waiters();
        }
    }

    /// Waits until so much can be had, behind those who wait already; what is small is had at once. Cancel-safe: a dropped
    /// wait takes nothing.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Held {
        let Some(limit) = self.limit else { return Held::default() };
        if bytes <= self.small {
            return self.hold(bytes);
        }
        let _turn = self.turn.lock().await;
        loop {
            let mut released = pin!(self.released.notified());
            released.as_mut().enable();
            let fits = self.used.load(Ordering::Relaxed).saturating_add(bytes) <= limit;
            if fits || self.reserved.load(Ordering::Acquire) == 0 {
                self.reserved.fetch_add(1, Ordering::AcqRel);
                self.add(bytes);
                return self.held(bytes, true);
            }
            released.await;
        }
    }

    fn held(self: &Arc<Self>, bytes: usize, is_reservation: bool) -> Held {
        let budget = self.limit.is_some().then(|| Arc::clone(self));
        Held { budget, bytes, is_reservation }
    }
}

impl Held {
    /// Counts another number of bytes from now on.
    pub fn resize(&mut self, bytes: usize) {
        if let Some(budget) = &self.budget {
            match bytes.checked_sub(self.bytes) {
                Some(more) => budget.add(more),
                None => budget.release(self.bytes - bytes),
            }
            self.bytes = bytes;
        }
    }

    /// Whether all is used up where it counts.
    #[must_use]
    pub fn is_budget_full(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_full())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(budget) = &self.budget else { return };
        if self.is_reservation {
            budget.reserved.fetch_sub(1, Ordering::AcqRel);
        }
        budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// One in which every size takes its turn.
    fn budget(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { limit: Some(limit), ..MemoryBudget::default() })
    }

    #[tokio::test]
    async fn reservations_wait_for_room_in_order() {
        let budget = budget(100);
        let first = budget.reserve(60).await;
        let mut large = Box::pin(budget.reserve(60));
        let mut small = Box::pin(budget.reserve(1));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(small.as_mut().now_or_never().is_none(), "behind the large one");
        drop(first);
        let large = large.await;
        let small = small.await;
        assert_eq!(budget.used.load(Ordering::Relaxed), 61);
        drop((large, small));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn one_is_granted_whatever_the_limit() {
        let budget = budget(10);
        let held = budget.hold(50);
        assert!(budget.is_full());
        let only = budget.reserve(1000).now_or_never().unwrap();
        assert!(budget.reserve(1).now_or_never().is_none());
        drop(only);
        assert!(budget.reserve(1).now_or_never().is_some());
        drop(held);
        assert!(!budget.is_full());
    }

    #[tokio::test]
    async fn what_is_small_waits_for_nobody() {
        let budget = Arc::new(MemoryBudget { small: 5, limit: Some(10), ..MemoryBudget::default() });
        let _all = budget.reserve(100).await;
        let mut large = Box::pin(budget.reserve(6));
        assert!(large.as_mut().now_or_never().is_none());
        let small = budget.reserve(5).now_or_never().unwrap();
        assert_eq!(budget.used.load(Ordering::Relaxed), 105);
        drop(small);
        assert_eq!(budget.used.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_takes_nothing() {
        let budget = budget(10);
        let held = budget.reserve(10).await;
        assert!(budget.reserve(5).now_or_never().is_none());
        drop(held);
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.reserved.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_is_held_can_change_its_size() {
        let budget = budget(10);
        let mut held = budget.hold(4);
        held.resize(10);
        assert!(budget.is_full() && held.is_budget_full());
        held.resize(0);
        assert!(!budget.is_full());
    }

    #[tokio::test]
    async fn without_a_limit_nothing_waits_or_is_counted() {
        let budget = MemoryBudget::new(None);
        let mut all = budget.hold(usize::MAX);
        let one = budget.reserve(usize::MAX).now_or_never().unwrap();
        let turn = budget.turn.lock().await;
        assert!(budget.reserve(1).now_or_never().is_some() && !budget.is_full() && !all.is_budget_full());
        budget.add(7);
        all.resize(1);
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.reserved.load(Ordering::Relaxed)), (0, 0));
        budget.release(7);
        drop((all, one, turn));
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.reserved.load(Ordering::Relaxed)), (0, 0));
    }
}
