//! What the proxies of the session ask this connection's client, and tell it.
//!
//! The requests of this direction have ids of their own, counted from 1 on each connection.

use std::collections::HashMap;
use std::task::{Context, Poll};

use serde_json::Value;

use super::answers;
use crate::network::desk::{Outgoing, Question, Seat};
use crate::protocol::envelope::{ErrorObject, RequestId};
use crate::protocol::network::PolicyRequestResult;

/// Questions without an answer so far.
#[derive(Debug, Default)]
pub(super) struct Questions {
    asked: i64,
    open: HashMap<i64, Question>,
}

impl Questions {
    /// The next message to the client. Registers the waker where there is none.
    pub(super) fn poll_message(&mut self, seat: &Seat, cx: &mut Context<'_>) -> Poll<String> {
        seat.poll_next(cx).map(|outgoing| match outgoing {
            Outgoing::Question(question) => self.ask(question),
            Outgoing::Report(report) => answers::policy_decision(&report),
        })
    }

    fn ask(&mut self, question: Question) -> String {
        self.open.retain(|_, question| !question.is_moot());
        self.asked += 1;
        let text = answers::policy_request(self.asked, &question.params);
        self.open.insert(self.asked, question);
        text
    }

    /// The client has answered. Whether it was asked.
    pub(super) fn answer(&mut self, id: &RequestId, outcome: Result<Value, ErrorObject>) -> bool {
        let RequestId::Integer(number) = id else { return false };
        let Some(question) = self.open.remove(number) else { return false };
        let decision = outcome.ok().and_then(|result| serde_json::from_value(result).ok());
        question.answer(decision.map(|PolicyRequestResult { decision }| decision));
        true
    }
}
