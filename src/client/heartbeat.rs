//! Notices a peer that has fallen silent.

use std::time::Duration;

use tokio::time::Instant;

/// When to ask the peer for a sign of life, and when to stop waiting for one.
#[derive(Debug)]
pub(super) struct Heartbeat {
    interval: Duration,
    patience: Duration,
    next_ping: Instant,
    unanswered_since: Option<Instant>,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet.
    Nothing,
    /// A ping.
    Ping,
    /// The peer has been silent for too long after a ping.
    GiveUp,
}

impl Heartbeat {
    /// Pings at every `interval`; gives up when nothing at all came for `patience` after a ping.
    pub(super) fn new(interval: Duration, patience: Duration, now: Instant) -> Self {
        Self { interval, patience, next_ping: now + interval, unanswered_since: None }
    }

    /// Anything came from the peer.
    pub(super) fn alive(&mut self) {
        self.unanswered_since = None;
    }

    /// When to call [`Self::due`] next.
    pub(super) fn next(&self) -> Instant {
        let patience_ends = self.unanswered_since.map(|since| since + self.patience);
        patience_ends.map_or(self.next_ping, |end| end.min(self.next_ping))
    }

    /// What is due; a ping that is due counts as sent.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if self.unanswered_since.is_some_and(|since| now >= since + self.patience) {
            return Due::GiveUp;
        }
        if now < self.next_ping {
            return Due::Nothing;
        }
        self.next_ping = now + self.interval;
        self.unanswered_since.get_or_insert(now);
        Due::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_from_the_first_unanswered_ping() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = Heartbeat::new(Duration::from_secs(30), Duration::from_secs(60), start);
        assert_eq!(heartbeat.due(at(29)), Due::Nothing);
        assert_eq!(heartbeat.due(at(30)), Due::Ping);
        heartbeat.alive();
        assert_eq!(heartbeat.due(at(60)), Due::Ping);
        assert_eq!(heartbeat.due(at(90)), Due::Ping);
        assert_eq!(heartbeat.next(), at(120));
        assert_eq!(heartbeat.due(at(119)), Due::Nothing);
        assert_eq!(heartbeat.due(at(120)), Due::GiveUp);
    }
}
