//! A request from its arrival to its answer, for what is counted and accounted for.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::audit::Subject;
use super::calls::{Call, MethodLabel};
use crate::protocol::envelope::{ErrorObject, RequestId};
use crate::protocol::process::StartResult;
use crate::server::metrics::Traffic;
use crate::telemetry::{AuditLog, Entry};

/// Belongs to a request until it is answered. One that is dropped before, with its connection, is accounted for too.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    id: RequestId,
    method: MethodLabel,
    arrived: Instant,
    traffic: Arc<Traffic>,
    account: Option<Arc<Account>>,
}

/// What is to be recorded of it.
struct Account {
    log: AuditLog,
    /// Who asks.
    asker: Arc<Entry>,
    /// Until it has been recorded.
    subject: Mutex<Option<Subject>>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").finish_non_exhaustive()
    }
}

impl Ticket {
    /// The ticket of a request that has just arrived.
    pub(super) fn new(id: RequestId, method: MethodLabel, traffic: &Arc<Traffic>) -> Self {
        Self { id, method, arrived: Instant::now(), traffic: Arc::clone(traffic), account: None }
    }

    /// Records what becomes of it, where its call is one that is recorded.
    pub(super) fn accounted(self, log: &AuditLog, call: &Call, asker: &Arc<Entry>) -> Self {
        let subject = if log.is_on() { Subject::of(call) } else { None };
        let account = subject.map(|subject| {
            let (log, asker) = (log.clone(), Arc::clone(asker));
            Arc::new(Account { log, asker, subject: Mutex::new(Some(subject)) })
        });
        Self { account, ..self }
    }

    /// What the answer has to carry.
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    /// It starts a process, with this result.
    pub(super) fn started(&self, result: &StartResult) {
        if let Some(account) = &self.account {
            let mut subject = account.subject.lock().unwrap_or_else(PoisonError::into_inner);
            *subject = subject.take().map(|subject| subject.started(result));
        }
    }

    /// It is answered, with a result or with an error.
    pub(super) fn answered(&self, error: Option<&ErrorObject>) {
        self.traffic.requests.of(self.method, error.is_none()).observe(self.arrived.elapsed());
        if let Some(account) = &self.account {
            account.record(error.is_some(), |entry| match error {
                None => entry.text("outcome", "done"),
                Some(error) => {
                    entry.text("outcome", "refused").plain("code", error.code).text("reason", &error.message)
                }
            });
        }
    }
}

impl Account {
    fn record(&self, failed: bool, outcome: impl FnOnce(Entry) -> Entry) {
        let subject = self.subject.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(entry) = subject.and_then(|subject| subject.into_entry(failed)) {
            self.log.record(|| outcome(entry).by(Arc::clone(&self.asker)));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.record(false, |entry| entry.text("outcome", "unanswered: the connection has ended"));
    }
}
