//! Calls that wait for their answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::protocol::envelope::{ErrorObject, RequestId};

/// Calls in flight per connection; clean-up calls may take one place more.
pub(super) const MAX_PENDING: usize = 1024;

/// What the server answered.
pub(super) type Outcome = Result<Box<RawValue>, ErrorObject>;

/// Why a call cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many calls are in flight.
    Full,
    /// The connection has ended.
    Ended,
}

/// Whether a call may take the reserved place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    /// It may not.
    Regular,
    /// It frees something on the server, so it may.
    CleanUp,
}

/// The calls of one connection. After [`Self::end`] none waits and none can be added.
#[derive(Debug, Default)]
pub(super) struct PendingCalls(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    last_id: i64,
    waiting: HashMap<i64, oneshot::Sender<Outcome>>,
    ended: bool,
}

/// A registered call; dropping it gives its place back, and a late answer is ignored.
#[derive(Debug)]
pub(super) struct PendingCall {
    calls: Arc<PendingCalls>,
    id: i64,
    answer: oneshot::Receiver<Outcome>,
}

impl PendingCalls {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the next id, counted from 1, to a call.
    pub(super) fn register(self: &Arc<Self>, priority: Priority) -> Result<PendingCall, Refused> {
        let limit = if priority == Priority::CleanUp { MAX_PENDING + 1 } else { MAX_PENDING };
        let mut calls = self.lock();
        if calls.ended {
            return Err(Refused::Ended);
        }
        if calls.waiting.len() >= limit {
            return Err(Refused::Full);
        }
        calls.last_id += 1;
        let id = calls.last_id;
        let (sender, answer) = oneshot::channel();
        calls.waiting.insert(id, sender);
        Ok(PendingCall { calls: Arc::clone(self), id, answer })
    }

    /// Hands an answer to its call; false if no call waits for it.
    pub(super) fn resolve(&self, id: &RequestId, outcome: Outcome) -> bool {
        let RequestId::Integer(id) = id else { return false };
        let Some(waiting) = self.lock().waiting.remove(id) else { return false };
        waiting.send(outcome).is_ok()
    }

    /// Ends every call without an answer.
    pub(super) fn end(&self) {
        let mut calls = self.lock();
        calls.ended = true;
        calls.waiting.clear();
    }
}

impl PendingCall {
    /// The id to send.
    pub(super) fn id(&self) -> RequestId {
        RequestId::Integer(self.id)
    }

    /// The answer; none when the connection ended first.
    pub(super) async fn answer(mut self) -> Option<Outcome> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.calls.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Outcome {
        Ok(RawValue::from_string(text.to_owned()).unwrap())
    }

    /// The text of a result.
    async fn text(call: PendingCall) -> Option<String> {
        Some(call.answer().await?.unwrap().get().to_owned())
    }

    #[tokio::test]
    async fn answers_find_their_call_whatever_their_order() {
        let calls = Arc::new(PendingCalls::default());
        let first = calls.register(Priority::Regular).unwrap();
        let second = calls.register(Priority::Regular).unwrap();
        assert_eq!((first.id(), second.id()), (RequestId::Integer(1), RequestId::Integer(2)));
        assert!(calls.resolve(&RequestId::Integer(2), raw("2")));
        assert!(calls.resolve(&RequestId::Integer(1), raw("1")));
        assert_eq!(text(second).await.as_deref(), Some("2"));
        assert_eq!(text(first).await.as_deref(), Some("1"));
    }

    #[test]
    fn answers_to_nobody_are_told_apart() {
        let calls = Arc::new(PendingCalls::default());
        drop(calls.register(Priority::Regular).unwrap());
        for id in [RequestId::Integer(1), RequestId::Integer(7), RequestId::Text("1".into())] {
            assert!(!calls.resolve(&id, raw("null")));
        }
    }

    #[test]
    fn one_place_is_kept_for_cleaning_up() {
        let calls = Arc::new(PendingCalls::default());
        let mut held: Vec<_> = (0..MAX_PENDING).map(|_| calls.register(Priority::Regular).unwrap()).collect();
        assert_eq!(calls.register(Priority::Regular).unwrap_err(), Refused::Full);
        let clean_up = calls.register(Priority::CleanUp).unwrap();
        assert_eq!(calls.register(Priority::CleanUp).unwrap_err(), Refused::Full);
        drop(clean_up);
        held.pop();
        assert!(calls.register(Priority::Regular).is_ok());
    }

    #[tokio::test]
    async fn the_end_reaches_every_call() {
        let calls = Arc::new(PendingCalls::default());
        let call = calls.register(Priority::Regular).unwrap();
        calls.end();
        assert!(call.answer().await.is_none());
        assert_eq!(calls.register(Priority::CleanUp).unwrap_err(), Refused::Ended);
    }
}
