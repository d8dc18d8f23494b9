//! Pauses between attempts to reconnect.

use std::time::Duration;

use tokio::time::Instant;

/// The pause at first, so that a short outage is over soon.
const FIRST: Duration = Duration::from_millis(100);
/// How long the first pause is kept.
const EAGER: Duration = Duration::from_secs(1);
/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(2);

/// 100 ms for a second, then doubling to 2 s, each shortened by up to a quarter so that clients spread.
#[derive(Debug)]
pub(super) struct Backoff {
    started: Instant,
    pause: Duration,
}

impl Backoff {
    pub(super) fn new(now: Instant) -> Self {
        Self { started: now, pause: FIRST }
    }

    /// The next pause; `random` is any number.
    pub(super) fn next(&mut self, now: Instant, random: u32) -> Duration {
        if now.duration_since(self.started) < EAGER {
            return FIRST;
        }
        self.pause = (self.pause * 2).min(LONGEST);
        self.pause - self.pause.mul_f64(f64::from(random) / f64::from(u32::MAX) / 4.0)
    }
}

/// A number that differs from client to client and from call to call.
pub(super) fn random() -> u32 {
    uuid::Uuid::new_v4().as_fields().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn pauses_grow_after_the_first_second() {
        let start = Instant::now();
        let mut backoff = Backoff::new(start);
        let millis = |pause: Duration| pause.as_millis();
        assert_eq!(millis(backoff.next(start + Duration::from_millis(999), 7)), 100);
        let late = start + EAGER;
        let pauses: Vec<_> = (0..6).map(|_| millis(backoff.next(late, 0))).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(millis(backoff.next(late, u32::MAX)), 1500);
    }
}
