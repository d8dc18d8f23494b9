//! What is counted of connections, and `/metrics`, which tells it with everything else.

mod exposition;

use std::sync::Arc;

use crate::telemetry::{Counter, Counters, Outcomes, labels};

use super::connection::MethodLabel;
pub(super) use exposition::{CONTENT_TYPE, Exposition};

labels! {
    /// Why a connection was turned away.
    pub(super) enum Refusal {
        /// It comes from inside a sandbox.
        Sandbox = "sandbox",
        /// A page in a browser made it.
        Origin = "origin",
        /// Its `Host` is not this machine.
        Host = "host",
        /// Another user made it, at a unix socket.
        User = "user",
        /// It has not proved who it is.
        Authentication = "authentication",
        /// No TLS came about.
        Tls = "tls",
        /// There are too many.
        Limit = "limit",
        /// The server is ending.
        Draining = "draining",
    }

    /// How a session was taken.
    pub(super) enum Taken {
        /// It is new.
        Created = "created",
        /// Its client came back.
        Resumed = "resumed",
        /// By somebody who looks on.
        Observed = "observed",
    }
}

/// Counts of what goes over the connections of a server.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Connections that were upgraded, and those of them that have ended.
    pub(super) opened: Counter,
    pub(super) closed: Counter,
    pub(super) refusals: Counters<Refusal>,
    pub(super) sessions: Counters<Taken>,
    /// From the arrival of a request to its answer.
    pub(super) requests: Outcomes<MethodLabel>,
    /// Bytes of messages.
    pub(super) received_bytes: Counter,
    pub(super) sent_bytes: Counter,
}

/// A connection, as long as it is held.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<Traffic>);

impl OpenConnection {
    pub(super) fn new(traffic: &Arc<Traffic>) -> Self {
        traffic.opened.increment();
        Self(Arc::clone(traffic))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.closed.increment();
    }
}

/// Bytes of the messages of one connection that are not in the counts of the server yet. Its end counts them.
#[derive(Debug)]
pub(super) struct Bytes {
    traffic: Arc<Traffic>,
    received: u64,
    sent: u64,
}

impl Bytes {
    pub(super) fn of(traffic: &Arc<Traffic>) -> Self {
        Self { traffic: Arc::clone(traffic), received: 0, sent: 0 }
    }

    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Counts them.
    pub(super) fn count(&mut self) {
        for (bytes, counter) in
            [(&mut self.received, &self.traffic.received_bytes), (&mut self.sent, &self.traffic.sent_bytes)]
        {
            if *bytes > 0 {
                counter.add(std::mem::take(bytes));
            }
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.count();
    }
}
