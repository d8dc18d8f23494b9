//! Where the proxies of one session ask its client, and report what was decided.
//!
//! Questions and reports wait here for the connection that holds the session. Nobody asks a client that is away: with
//! nobody attached every question is denied at once, as are those that wait when the connection goes. Reports of the same
//! content are joined where they come faster than they leave, so that their number is bounded and they delay nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::oneshot;

use crate::protocol::network::{
    ClientDecision, MAX_REASON_BYTES, NetworkRequest, PolicyDecisionParams, PolicyRequestParams,
};
use crate::protocol::process::ProcessId;

/// The reason of a client that gives none.
const NO_REASON: &str = "policy_denied";
/// Questions that may be open at a time.
const QUESTIONS: usize = 256;
/// Reports that may wait.
const REPORTS: usize = 1024;
/// As long as so few wait, each stands for itself.
const UNJOINED: usize = 64;
/// What a client has beyond the time that it asked for.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// See the module's description.
#[derive(Debug, Default)]
pub struct Desk {
    state: Mutex<State>,
    reader: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    /// Which connection holds the session; counts up.
    seat: Option<u64>,
    seats: u64,
    /// Asked and neither answered nor given up.
    open: usize,
    questions: VecDeque<Question>,
    reports: VecDeque<PolicyDecisionParams>,
    /// Reports that found no room.
    lost: u64,
}

/// Asks the client. Dropping it is the answer of a client that says nothing.
#[derive(Debug)]
pub struct Question {
    /// What to ask.
    pub params: PolicyRequestParams,
    answer: oneshot::Sender<ClientDecision>,
}

impl Question {
    /// Gives the answer; `None` for one that cannot be understood.
    pub fn answer(self, decision: Option<ClientDecision>) {
        if let Some(decision) = decision.and_then(accepted) {
            // Whoever asked may have gone.
            let _ = self.answer.send(decision);
        }
    }

    /// Whether nobody waits for an answer any more.
    #[must_use]
    pub fn is_moot(&self) -> bool {
        self.answer.is_closed()
    }
}

/// A decision with a reason that can be passed on: none that is too long or that a terminal would obey.
fn accepted(decision: ClientDecision) -> Option<ClientDecision> {
    let fits = |reason: &String| reason.len() <= MAX_REASON_BYTES && !reason.chars().any(char::is_control);
    let named = |reason: String| if reason.is_empty() { NO_REASON.to_owned() } else { reason };
    match decision {
        ClientDecision::Allow => Some(ClientDecision::Allow),
        ClientDecision::Deny { reason } => {
            fits(&reason).then(|| ClientDecision::Deny { reason: named(reason) })
        }
        ClientDecision::Ask { reason } => {
            fits(&reason).then(|| ClientDecision::Ask { reason: named(reason) })
        }
    }
}

/// What goes to the client.
#[derive(Debug)]
pub enum Outgoing {
    /// Wants an answer.
    Question(Question),
    /// Does not.
    Report(Box<PolicyDecisionParams>),
}

/// The client's place at the desk, held by its connection. Dropped, everything asked and not answered is denied.
#[derive(Debug)]
pub struct Seat {
    desk: Arc<Desk>,
    number: u64,
}

impl Desk {
    /// Asks the client; `None` if there is no answer in its time and 5 s more, or nobody to ask. Cancel-safe.
    pub async fn ask(
        &self,
        process_id: &ProcessId,
        request: NetworkRequest,
        time: Duration,
    ) -> Option<ClientDecision> {
        let (answer, answered) = oneshot::channel();
        let params = PolicyRequestParams { process_id: process_id.clone(), request };
        let _open = self.queue(Question { params, answer })?;
        tokio::time::timeout(time.saturating_add(ALLOWANCE), answered).await.ok()?.ok()
    }

    /// Tells the client, if one is there. Never waits.
    pub fn report(&self, report: PolicyDecisionParams) {
        let mut state = self.state();
        if state.seat.is_none() {
            return;
        }
        let waiting = state.reports.len();
        let apart = if waiting < UNJOINED { waiting } else { 0 };
        let alike = state.reports.range_mut(apart..).rev().find(|waiting| is_alike(waiting, &report));
        if let Some(alike) = alike {
            alike.count = Some(alike.count.unwrap_or(1).saturating_add(report.count.unwrap_or(1)));
        } else if waiting < REPORTS {
            state.reports.push_back(report);
        } else {
            state.lost += 1;
            return;
        }
        drop(state);
        self.reader.wake();
    }

    /// Takes the client's place. There is one; who had it before has lost it.
    #[must_use]
    pub fn attach(self: &Arc<Self>) -> Seat {
        let mut state = self.state();
        state.seats += 1;
        let number = state.seats;
        state.seat = Some(number);
        state.clear();
        Seat { desk: Arc::clone(self), number }
    }

    fn queue(&self, question: Question) -> Option<Open<'_>> {
        let mut state = self.state();
        if state.seat.is_none() || state.open >= QUESTIONS {
            return None;
        }
        state.open += 1;
        state.questions.push_back(question);
        drop(state);
        self.reader.wake();
        Some(Open(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two reports say the same, but for time and peer.
pub(super) fn is_alike(one: &PolicyDecisionParams, other: &PolicyDecisionParams) -> bool {
    let key = |report: &PolicyDecisionParams| {
        (report.scope, report.decision, report.source, report.protocol, report.port, report.policy_override)
    };
    key(one) == key(other)
        && one.host == other.host
        && one.process_id == other.process_id
        && one.reason == other.reason
        && one.method == other.method
}

/// One open question.
struct Open<'a>(&'a Desk);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
    }
}

impl State {
    fn clear(&mut self) {
        self.questions.clear();
        self.reports.clear();
    }
}

impl Seat {
    /// The next that goes to the client. For the one task that has the seat.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Outgoing> {
        self.desk.reader.register(cx.waker());
        self.next().map_or(Poll::Pending, Poll::Ready)
    }

    fn next(&self) -> Option<Outgoing> {
        let mut state = self.desk.state();
        if state.seat != Some(self.number) {
            return None;
        }
        while let Some(question) = state.questions.pop_front() {
            if !question.is_moot() {
                return Some(Outgoing::Question(question));
            }
        }
        if let Some(report) = state.reports.pop_front() {
            return Some(Outgoing::Report(Box::new(report)));
        }
        let lost = std::mem::take(&mut state.lost);
        if lost > 0 {
            tracing::warn!(
                lost,
                "decisions of proxies came faster than the client reads, and were not reported"
            );
        }
        None
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        if state.seat == Some(self.number) {
            state.seat = None;
            state.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;
    use crate::protocol::network::{Decision, DecisionScope, DecisionSource, NetworkProtocol};

    fn request() -> NetworkRequest {
        NetworkRequest { protocol: NetworkProtocol::Http, host: "a.test".to_owned(), port: 80 }
    }

    fn report(reason: &str) -> PolicyDecisionParams {
        PolicyDecisionParams {
            process_id: ProcessId::from("p"),
            timestamp: String::new(),
            scope: DecisionScope::Domain,
            decision: Decision::Deny,
            source: DecisionSource::BaselinePolicy,
            reason: reason.to_owned(),
            protocol: NetworkProtocol::Http,
            host: "a.test".to_owned(),
            port: 80,
            method: None,
            client: None,
            policy_override: false,
            count: None,
        }
    }

    async fn question(seat: &Seat) -> Question {
        match poll_fn(|cx| seat.poll_next(cx)).await {
            Outgoing::Question(question) => question,
            Outgoing::Report(report) => panic!("{report:?}"),
        }
    }

    async fn asked(desk: &Desk) -> Option<ClientDecision> {
        desk.ask(&ProcessId::from("p"), request(), Duration::from_millis(1)).await
    }

    #[tokio::test]
    async fn whoever_asks_nobody_has_no_answer() {
        let desk = Arc::new(Desk::default());
        assert_eq!(asked(&desk).now_or_never(), Some(None));
        let seat = desk.attach();
        let (answer, ()) = tokio::join!(asked(&desk), async { drop(seat) });
        assert_eq!(answer, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_five_seconds_more_than_it_says() {
        let desk = Arc::new(Desk::default());
        let seat = desk.attach();
        let begun = tokio::time::Instant::now();
        let (answer, question) = tokio::join!(asked(&desk), question(&seat));
        assert_eq!(answer, None);
        assert!(begun.elapsed() >= ALLOWANCE && begun.elapsed() < ALLOWANCE + Duration::from_secs(1));
        assert!(question.is_moot());
        assert_eq!(desk.state().open, 0);
    }

    #[tokio::test]
    async fn reasons_that_cannot_be_passed_on_are_no_answer() {
        let desk = Arc::new(Desk::default());
        let seat = desk.attach();
        let long = "x".repeat(MAX_REASON_BYTES + 1);
        for (reason, expected) in [("no", Some("no")), ("", Some(NO_REASON)), ("a\nb", None), (&long, None)] {
            let given = ClientDecision::Ask { reason: reason.to_owned() };
            let (answer, ()) = tokio::join!(asked(&desk), async {
                question(&seat).await.answer(Some(given));
            });
            assert_eq!(answer, expected.map(|reason| ClientDecision::Ask { reason: reason.to_owned() }));
        }
    }

    #[tokio::test]
    async fn the_next_seat_gets_nothing_of_the_one_before() {
        let desk = Arc::new(Desk::default());
        let first = desk.attach();
        desk.report(report("old"));
        let second = desk.attach();
        assert!(first.next().is_none() && second.next().is_none());
        desk.report(report("new"));
        drop(first);
        assert!(matches!(second.next(), Some(Outgoing::Report(new)) if new.reason == "new"));
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_costs_a_bounded_number_of_reports() {
        let desk = Arc::new(Desk::default());
        let seat = desk.attach();
        for _ in 0..10 * REPORTS {
            desk.report(report("same"));
        }
        let mut counts = Vec::new();
        while let Some(Outgoing::Report(report)) = seat.next() {
            counts.push(report.count.unwrap_or(1));
        }
        assert_eq!(counts.len(), UNJOINED);
        assert_eq!(counts.iter().sum::<u64>(), 10 * REPORTS as u64);
        for number in 0..2 * REPORTS {
            desk.report(report(&number.to_string()));
        }
        assert_eq!(std::iter::from_fn(|| seat.next()).count(), REPORTS);
    }
}
