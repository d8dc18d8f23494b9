//! Routes what the server tells to the processes of a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connection::Notified;
use super::events::{OrderedEvents, Progress};
use crate::protocol::NotificationMethod;
use crate::protocol::process::{Closed, ClosedParams, Exited, ExitedParams, Output, OutputParams, ProcessId};

/// The processes that may still tell something.
#[derive(Debug, Default)]
pub(super) struct Processes(Mutex<HashMap<ProcessId, Arc<OrderedEvents>>>);

impl Processes {
    fn lock(&self) -> MutexGuard<'_, HashMap<ProcessId, Arc<OrderedEvents>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Routes to a new process; `None` if the id is taken.
    pub(super) fn add(&self, id: &ProcessId) -> Option<Arc<OrderedEvents>> {
        let mut routes = self.lock();
        if routes.contains_key(id) {
            return None;
        }
        let events = OrderedEvents::new();
        routes.insert(id.clone(), Arc::clone(&events));
        Some(events)
    }

    /// Stops routing to exactly this process, not to a later one of its id.
    pub(super) fn remove(&self, id: &ProcessId, events: &Arc<OrderedEvents>) {
        let mut routes = self.lock();
        if routes.get(id).is_some_and(|routed| Arc::ptr_eq(routed, events)) {
            routes.remove(id);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(ProcessId, Arc<OrderedEvents>)> {
        self.lock().iter().map(|(id, events)| (id.clone(), Arc::clone(events))).collect()
    }

    /// Fails all of them.
    pub(super) fn fail(&self, why: &Arc<str>) {
        let routes = std::mem::take(&mut *self.lock());
        for events in routes.values() {
            events.fail(why);
        }
    }

    fn route(&self, id: &ProcessId, tell: impl FnOnce(&OrderedEvents) -> Progress) {
        let Some(events) = self.lock().get(id).map(Arc::clone) else { return };
        if tell(&events) == Progress::Ended {
            self.remove(id, &events);
        }
    }
}

impl Notified for Processes {
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        for events in self.lock().values().map(|events| events.published()) {
            if events.poll_room(cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn notification(&self, method: &str, params: Value) -> Result<(), serde_json::Error> {
        match method {
            Output::NAME => {
                let OutputParams { process_id, chunk } = decode(params)?;
                self.route(&process_id, |events| events.output(chunk));
            }
            Exited::NAME => {
                let exit: ExitedParams = decode(params)?;
                self.route(&exit.process_id.clone(), |events| events.exited(exit));
            }
            Closed::NAME => {
                let close: ClosedParams = decode(params)?;
                self.route(&close.process_id, |events| events.closed(&close));
            }
            unknown => tracing::trace!(method = unknown, "a notification that is of no interest"),
        }
        Ok(())
    }
}

fn decode<T: DeserializeOwned>(params: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(params)
}
