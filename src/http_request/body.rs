//! The body of a response, decoded, as it comes or as a whole.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::error::{HttpError, chain};
use crate::memory::{Held, MemoryBudget, with_base64};
use crate::outbound::Permit;
use crate::protocol::failure::HttpErrorKind;

/// A body that is taken whole and exceeds this needs room among the large ones.
const SMALL_BODY: usize = 1 << 20;

/// When a request is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(pub(super) Option<Instant>);

impl Deadline {
    /// The outcome, or `None` if the time is over before.
    pub(super) async fn limit<T>(self, work: impl Future<Output = T>) -> Option<T> {
        match self.0 {
            // Work that is over before it begins must not even begin.
            Some(deadline) if deadline <= Instant::now() => None,
            Some(deadline) => timeout_at(deadline, work).await.ok(),
            None => Some(work.await),
        }
    }
}

/// Room for large bodies that are taken whole, of one connection.
#[derive(Debug, Clone)]
pub struct Room {
    bodies: Arc<Semaphore>,
    memory: Arc<MemoryBudget>,
}

/// What a large body takes of it.
#[derive(Debug)]
pub struct Taken {
    _body: OwnedSemaphorePermit,
    /// The body, and the answer that is made of it.
    pub memory: Held,
}

impl Room {
    /// Room for this many large bodies in this memory.
    #[must_use]
    pub fn new(bodies: usize, memory: Arc<MemoryBudget>) -> Self {
        Self { bodies: Arc::new(Semaphore::new(bodies)), memory }
    }

    /// Waits for room for a body of at most so many bytes; none when the connection is over.
    async fn take(&self, bytes: u64) -> Option<Taken> {
        let body = Arc::clone(&self.bodies).acquire_owned().await.ok()?;
        let memory = self.memory.reserve(with_base64(bytes)).await;
        Some(Taken { _body: body, memory })
    }
}

/// The body of a response.
#[derive(Debug)]
pub struct StreamedBody {
    response: reqwest::Response,
    permit: Permit,
    deadline: Deadline,
}

impl StreamedBody {
    pub(super) fn new(response: reqwest::Response, permit: Permit, deadline: Deadline) -> Self {
        Self { response, permit, deadline }
    }

    /// The next decoded piece; `None` at the end.
    ///
    /// # Errors
    /// The body ended early, cannot be decoded, did not come in time, or is not permitted any more.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        match self.deadline.limit(self.permit.during(self.response.chunk())).await {
            Some(Some(Ok(piece))) => Ok(piece),
            Some(Some(Err(error))) => Err(HttpError::body(HttpErrorKind::Body, chain(&error.without_url()))),
            Some(None) => Err(HttpError::withdrawn()),
            None => Err(late()),
        }
    }

    /// All of it, with the room that it takes. Counted are decoded bytes, so that a small body cannot become a large
    /// one unnoticed.
    ///
    /// # Errors
    /// As [`Self::next`], or it has more than `limit` bytes.
    pub async fn whole(mut self, limit: u64, room: &Room) -> Result<(Vec<u8>, Option<Taken>), HttpError> {
        if self.response.content_length().is_some_and(|length| length > limit) {
            return Err(too_large(limit));
        }
        let (mut body, mut taken) = (Vec::new(), None);
        while let Some(piece) = self.next().await? {
            let length = body.len() + piece.len();
            if length as u64 > limit {
                return Err(too_large(limit));
            }
            if length > SMALL_BODY && taken.is_none() {
                taken = self.deadline.limit(room.take(limit)).await.ok_or_else(late)?;
            }
            body.extend_from_slice(&piece);
        }
        Ok((body, taken))
    }
}

fn late() -> HttpError {
    HttpError::body(HttpErrorKind::Timeout, "it did not end within the time limit of the request")
}

fn too_large(limit: u64) -> HttpError {
    let message = format!("it has more than {limit} bytes: ask for it with `streamResponse`");
    HttpError::body(HttpErrorKind::TooLarge, message)
}
