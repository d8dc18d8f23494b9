//! Tells the client what a proxy decides. What a busy process repeats is told once a second, with a count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::network::desk::{Desk, is_alike};
use crate::protocol::network::{NetworkProxyLaunch, PolicyDecisionParams};

/// Reports in a second that stand for themselves.
const APART: u32 = 100;
/// Different reports that wait for the end of a second. More go to the desk at once, which has a limit of its own.
const KINDS: usize = 256;
const SECOND: Duration = Duration::from_secs(1);

/// The reports of one proxy.
#[derive(Debug)]
pub(super) struct Reporter {
    desk: Arc<Desk>,
    labels: Labels,
    second: Mutex<Second>,
}

/// For log events only.
#[derive(Debug)]
struct Labels {
    environment: Option<String>,
    execution: Option<String>,
    audit: Option<String>,
}

#[derive(Debug, Default)]
struct Second {
    ends: Option<Instant>,
    told: u32,
    joined: Vec<PolicyDecisionParams>,
}

impl Reporter {
    pub(super) fn new(desk: Arc<Desk>, launch: &NetworkProxyLaunch) -> Self {
        let audit = launch.audit_metadata.as_ref();
        let labels = Labels {
            environment: launch.environment_id.clone(),
            execution: launch.execution_id.clone(),
            audit: audit.and_then(|audit| serde_json::to_string(audit).ok()),
        };
        Self { desk, labels, second: Mutex::default() }
    }

    /// Tells the client, at once or at the end of the second. Never waits. The answer is when [`Self::flush`] has to be
    /// called because of it, if somebody does not already wait to do so.
    pub(super) fn tell(&self, report: PolicyDecisionParams) -> Option<Instant> {
        let now = Instant::now();
        let mut second = self.second();
        let ends = match second.ends {
            Some(ends) if now < ends => ends,
            _ => {
                self.begin(&mut second);
                *second.ends.insert(now + SECOND)
            }
        };
        if second.told < APART {
            second.told += 1;
        } else if let Some(alike) = second.joined.iter_mut().find(|joined| is_alike(joined, &report)) {
            alike.count = Some(alike.count.unwrap_or(1).saturating_add(1));
            return None;
        } else if second.joined.len() < KINDS {
            second.joined.push(report);
            return (second.joined.len() == 1).then_some(ends);
        }
        self.pass(report);
        None
    }

    /// Tells what waits.
    pub(super) fn flush(&self) {
        self.begin(&mut self.second());
    }

    fn begin(&self, second: &mut Second) {
        second.told = 0;
        for report in std::mem::take(&mut second.joined) {
            self.pass(report);
        }
    }

    fn pass(&self, report: PolicyDecisionParams) {
        let Labels { environment, execution, audit } = &self.labels;
        tracing::debug!(
            process = %report.process_id, decision = ?report.decision, reason = report.reason, host = report.host,
            port = report.port, protocol = ?report.protocol, method = report.method, count = report.count,
            environment, execution, audit, "a proxy has decided"
        );
        self.desk.report(report);
    }

    fn second(&self) -> MutexGuard<'_, Second> {
        self.second.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Now, as reports have it.
pub(super) fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::desk::Outgoing;
    use crate::protocol::network::{Decision, DecisionScope, DecisionSource, NetworkProtocol};
    use futures_util::FutureExt;
    use std::future::poll_fn;

    fn report(host: &str, client: &str) -> PolicyDecisionParams {
        PolicyDecisionParams {
            process_id: "p1".into(),
            timestamp: timestamp(),
            scope: DecisionScope::Domain,
            decision: Decision::Deny,
            source: DecisionSource::BaselinePolicy,
            reason: "not_allowed".to_owned(),
            protocol: NetworkProtocol::Http,
            host: host.to_owned(),
            port: 80,
            method: None,
            client: Some(client.to_owned()),
            policy_override: false,
            count: None,
        }
    }

    fn reporter() -> (Reporter, impl FnMut() -> Vec<(String, u64)>) {
        let desk = Arc::new(Desk::default());
        let seat = desk.attach();
        let labels = Labels { environment: None, execution: None, audit: None };
        let told = move || {
            let mut told = Vec::new();
            while let Some(Outgoing::Report(report)) = poll_fn(|cx| seat.poll_next(cx)).now_or_never() {
                told.push((report.host, report.count.unwrap_or(1)));
            }
            told
        };
        (Reporter { desk, labels, second: Mutex::default() }, told)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_repeated_within_a_second_is_told_at_its_end() {
        let (reporter, mut told) = reporter();
        for number in 0..APART {
            assert_eq!(reporter.tell(report(&number.to_string(), "a")), None);
        }
        assert_eq!(told().len(), APART as usize);
        let due = reporter.tell(report("x", "a")).expect("somebody has to flush");
        assert_eq!(due - Instant::now(), SECOND);
        for client in ["b", "c"] {
            assert_eq!(reporter.tell(report("x", client)), None);
            assert_eq!(reporter.tell(report("y", client)), None);
        }
        assert_eq!(told(), []);
        tokio::time::advance(SECOND).await;
        reporter.flush();
        assert_eq!(told(), [("x".to_owned(), 3), ("y".to_owned(), 2)]);
        reporter.tell(report("x", "a"));
        assert_eq!(told(), [("x".to_owned(), 1)], "a new second");
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_beyond_the_limit_are_told_at_once_and_the_rest_at_the_end() {
        let (reporter, mut told) = reporter();
        for _ in 0..APART {
            reporter.tell(report("x", "a"));
        }
        told();
        for number in 0..KINDS {
            reporter.tell(report(&number.to_string(), "a"));
        }
        assert_eq!(told(), []);
        reporter.tell(report("one more", "a"));
        assert_eq!(told(), [("one more".to_owned(), 1)]);
        drop(reporter);
        assert_eq!(told().len(), KINDS);
    }
}
