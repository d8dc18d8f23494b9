//! A request from its arrival to its answer, for what is counted.

use std::sync::Arc;
use std::time::Instant;

use super::calls::MethodLabel;
use crate::protocol::envelope::{ErrorObject, RequestId};
use crate::server::metrics::Traffic;

/// Belongs to a request until it is answered.
#[derive(Debug, Clone)]
pub(super) struct Ticket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: RequestId,
    method: MethodLabel,
    arrived: Instant,
    traffic: Arc<Traffic>,
}

impl Ticket {
    /// The ticket of a request that has just arrived.
    pub(super) fn new(id: RequestId, method: MethodLabel, traffic: &Arc<Traffic>) -> Self {
        Self(Arc::new(Inner { id, method, arrived: Instant::now(), traffic: Arc::clone(traffic) }))
    }

    /// What the answer has to carry.
    pub(super) fn id(&self) -> &RequestId {
        &self.0.id
    }

    /// It is answered, with a result or with an error.
    pub(super) fn answered(&self, error: Option<&ErrorObject>) {
        let Inner { method, arrived, traffic, .. } = &*self.0;
        traffic.requests.of(*method, error.is_none()).observe(arrived.elapsed());
    }
}
