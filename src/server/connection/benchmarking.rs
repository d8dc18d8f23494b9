//! The encoding of what goes out, for the benchmarks.

use std::sync::Arc;

use serde::Serialize;

use super::answers;
use super::calls::MethodLabel;
use super::ticket::Ticket;
use crate::process::log::Event;
use crate::protocol::envelope::RequestId;
use crate::protocol::fs::ReadFileResponse;
use crate::protocol::process::ProcessId;
use crate::session::ReadOutcome;

/// Encodes answers to one request.
#[derive(Debug)]
pub struct AnswerEncoder {
    ticket: Ticket,
}

impl AnswerEncoder {
    /// For the request with this id.
    #[must_use]
    pub fn new(id: i64) -> Self {
        Self { ticket: Ticket::new(RequestId::Integer(id), MethodLabel::Unknown, &Arc::default()) }
    }

    /// Any result, by its type.
    #[must_use]
    pub fn result<R: Serialize>(&self, result: &R) -> String {
        answers::success(&self.ticket, result)
    }

    /// The answer to `fs/readFile`.
    #[must_use]
    pub fn file(&self, result: &ReadFileResponse) -> String {
        answers::file(&self.ticket, result)
    }

    /// The answer to `process/read`.
    #[must_use]
    pub fn read(&self, outcome: &ReadOutcome) -> String {
        answers::read(&self.ticket, outcome)
    }
}

/// Encodes an event as its notification.
#[must_use]
pub fn notification(process: &ProcessId, event: &Event) -> String {
    answers::notification(process, event)
}
