//! Whether the peer is still there.

use std::time::Duration;

use tokio::time::Instant;

/// How long a holder that somebody else asks about has to show that it is alive.
const PROBE: Duration = Duration::from_secs(10);

/// Pings, and what came of them.
#[derive(Debug)]
pub(super) struct Heartbeat {
    interval: Duration,
    timeout: Duration,
    next_ping: Instant,
    /// A ping has been made, but not yet written: a peer that reads slowly has not had a chance to answer it.
    unwritten: bool,
    /// Since when a ping that was written is unanswered.
    unanswered: Option<Instant>,
    /// Progress of an incoming message when it was last looked at.
    progress: Option<u64>,
    probe: Option<Instant>,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a ping.
    Ping,
    /// Give the peer up.
    Dead,
    Nothing,
}

impl Heartbeat {
    pub(super) fn new(interval: Duration, timeout: Duration, now: Instant) -> Self {
        Self {
            interval,
            timeout,
            next_ping: now + interval,
            unwritten: false,
            unanswered: None,
            progress: None,
            probe: None,
        }
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Instant {
        let give_up = self.unanswered.map(|since| since + self.timeout);
        [Some(self.next_ping), give_up, self.probe].into_iter().flatten().min().unwrap_or(self.next_ping)
    }

    /// What is due now. `progress` is the amount of a message that is coming in, if one is.
    pub(super) fn due(&mut self, now: Instant, progress: Option<u64>) -> Due {
        if self.probe.is_some_and(|probe| probe <= now) {
            return Due::Dead;
        }
        if let Some(since) = self.unanswered.filter(|since| *since + self.timeout <= now) {
            // In the middle of a message a peer cannot answer; it lives as long as more of it comes.
            if progress.is_none() || progress == self.progress {
                return Due::Dead;
            }
            self.progress = progress;
            self.unanswered = Some(since + self.interval.min(self.timeout));
        }
        if self.next_ping <= now {
            self.next_ping = now + self.interval;
            self.unwritten = true;
            self.progress = self.progress.or(progress);
            return Due::Ping;
        }
        Due::Nothing
    }

    /// Everything has been written.
    pub(super) fn written(&mut self, now: Instant) {
        if std::mem::take(&mut self.unwritten) {
            self.unanswered.get_or_insert(now);
        }
    }

    /// Nothing is read at the moment, for reasons of this side: the peer may have answered.
    pub(super) fn excuse(&mut self, now: Instant) {
        self.unanswered = self.unanswered.map(|_| now);
        self.probe = self.probe.map(|_| now + PROBE);
    }

    /// A pong came.
    pub(super) fn answered(&mut self) {
        self.unanswered = None;
        // It can come before all of a long message behind the ping has been written.
        self.unwritten = false;
        self.progress = None;
    }

    /// Any frame came.
    pub(super) fn alive(&mut self) {
        self.probe = None;
    }

    /// Somebody asks whether the peer is alive: send a ping, and expect a frame.
    pub(super) fn probe(&mut self, now: Instant) {
        self.probe.get_or_insert(now + PROBE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn an_unanswered_ping_ends_the_connection_after_the_timeout() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = Heartbeat::new(INTERVAL, TIMEOUT, start);
        assert_eq!(heartbeat.due(at(29), None), Due::Nothing);
        assert_eq!(heartbeat.due(at(30), None), Due::Ping);
        heartbeat.written(at(30));
        heartbeat.answered();
        assert_eq!(heartbeat.due(at(60), None), Due::Ping);
        heartbeat.written(at(60));
        heartbeat.alive();
        assert_eq!(heartbeat.due(at(90), None), Due::Ping);
        heartbeat.written(at(90));
        assert_eq!(heartbeat.due(at(119), None), Due::Nothing);
        assert_eq!(heartbeat.due(at(120), None), Due::Dead);
    }

    #[test]
    fn a_pong_that_comes_before_the_end_of_a_flush_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = Heartbeat::new(INTERVAL, Duration::from_secs(5), start);
        assert_eq!(heartbeat.due(at(30), None), Due::Ping);
        heartbeat.answered();
        heartbeat.written(at(40));
        assert_eq!(heartbeat.due(at(50), None), Due::Nothing);
    }

    #[test]
    fn a_ping_that_cannot_be_written_is_not_held_against_the_peer() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(INTERVAL, TIMEOUT, start);
        for round in 1..20 {
            assert_eq!(heartbeat.due(start + INTERVAL * round, None), Due::Ping);
        }
        heartbeat.written(start + INTERVAL * 20);
        assert_eq!(heartbeat.due(start + INTERVAL * 20, None), Due::Ping);
        heartbeat.written(start + INTERVAL * 20);
        assert_eq!(heartbeat.due(start + INTERVAL * 22, None), Due::Dead);
    }

    #[test]
    fn a_peer_in_the_middle_of_a_message_is_alive_while_it_goes_on() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = Heartbeat::new(INTERVAL, TIMEOUT, start);
        assert_eq!(heartbeat.due(at(30), Some(10)), Due::Ping);
        heartbeat.written(at(30));
        assert_ne!(heartbeat.due(at(90), Some(20)), Due::Dead);
        assert_ne!(heartbeat.due(at(120), Some(30)), Due::Dead);
        assert_eq!(heartbeat.due(at(150), Some(30)), Due::Dead);
    }

    #[test]
    fn a_probed_peer_has_ten_seconds() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(INTERVAL, TIMEOUT, start);
        heartbeat.probe(start);
        heartbeat.probe(start + Duration::from_secs(9));
        assert_eq!(heartbeat.deadline(), start + PROBE);
        assert_eq!(heartbeat.due(start + Duration::from_secs(9), None), Due::Nothing);
        assert_eq!(heartbeat.due(start + PROBE, None), Due::Dead);
        heartbeat.alive();
        assert_eq!(heartbeat.due(start + PROBE, None), Due::Nothing);
    }
}
