//! Bodies of streamed responses, as a server sends them piece by piece.
//!
//! Each body has a queue of its own, bounded in pieces and bytes. Whoever is too slow to empty it loses the body, not
//! the connection that others share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::backend::{ExecServerError, Result};
use crate::protocol::code;
use crate::protocol::http::{BodyDeltaParams, MAX_DELTA_BYTES};

/// Pieces of one body that may wait to be taken.
const MAX_PIECES: usize = 256;
/// Bytes of one body that may wait to be taken.
const MAX_BYTES: usize = 32 << 20;

/// How a body has ended.
type Verdict = Arc<OnceLock<Result<()>>>;

/// The bodies on their way, by request id.
#[derive(Debug, Default)]
pub(super) struct Bodies(Mutex<HashMap<String, Route>>);

#[derive(Debug)]
struct Route {
    next_seq: u64,
    pieces: mpsc::Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    verdict: Verdict,
}

/// One body. Dropping it ends its registration; pieces that come later go nowhere.
#[derive(Debug)]
pub(super) struct Body {
    id: String,
    bodies: Arc<Bodies>,
    pieces: mpsc::Receiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    verdict: Verdict,
}

impl Bodies {
    fn routes(&self) -> MutexGuard<'_, HashMap<String, Route>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects the body of a request that is about to be sent. Ids are not used twice.
    pub(super) fn expect(self: &Arc<Self>, id: String) -> Body {
        let (sender, pieces) = mpsc::channel(MAX_PIECES);
        let (waiting, verdict) = (Arc::<AtomicUsize>::default(), Verdict::default());
        let route = Route {
            next_seq: 1,
            pieces: sender,
            waiting: Arc::clone(&waiting),
            verdict: Arc::clone(&verdict),
        };
        self.routes().insert(id.clone(), route);
        Body { id, bodies: Arc::clone(self), pieces, waiting, verdict }
    }

    /// The server sent a piece.
    pub(super) fn delta(&self, delta: BodyDeltaParams) {
        let mut routes = self.routes();
        let Some(route) = routes.get_mut(&delta.request_id) else { return };
        let id = delta.request_id.clone();
        if let Some(verdict) = route.take(delta) {
            let _ = route.verdict.set(verdict);
            routes.remove(&id);
        }
    }

    /// The connection is gone, and every body on it.
    pub(super) fn fail(&self) {
        for (_, route) in self.routes().drain() {
            let _ = route.verdict.set(Err(ExecServerError::TransportDisconnected));
        }
    }
}

impl Route {
    /// Queues a piece; says how the body has ended, if it has.
    fn take(&mut self, delta: BodyDeltaParams) -> Option<Result<()>> {
        if delta.seq != self.next_seq {
            let why = format!("piece {} of the response body is missing", self.next_seq);
            return Some(Err(ExecServerError::Protocol(why)));
        }
        self.next_seq += 1;
        if let Some(message) = delta.error {
            return Some(Err(ExecServerError::Server { code: code::INTERNAL, message, data: None }));
        }
        let piece = delta.delta.into_inner();
        if piece.len() > MAX_DELTA_BYTES {
            let why = format!("a piece of the response body has {} bytes", piece.len());
            return Some(Err(ExecServerError::Protocol(why)));
        }
        let queued = if piece.is_empty() { Ok(()) } else { self.queue(piece) };
        match queued {
            Ok(()) => delta.done.then_some(Ok(())),
            Err(too_slow) => Some(Err(too_slow)),
        }
    }

    fn queue(&self, piece: Vec<u8>) -> Result<()> {
        let size = piece.len();
        if self.waiting.fetch_add(size, Ordering::Relaxed) + size > MAX_BYTES {
            return Err(too_slow());
        }
        match self.pieces.try_send(piece) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(too_slow()),
        }
    }
}

fn too_slow() -> ExecServerError {
    ExecServerError::Protocol(format!(
        "the response body was read too slowly: more than {MAX_PIECES} pieces or {} MiB wait",
        MAX_BYTES >> 20
    ))
}

impl Body {
    /// The next piece, `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// Why the body is not complete.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(piece) = self.pieces.recv().await {
            self.waiting.fetch_sub(piece.len(), Ordering::Relaxed);
            return Ok(Some(piece));
        }
        match self.verdict.get() {
            Some(Ok(())) => Ok(None),
            Some(Err(error)) => Err(error.clone()),
            None => Err(ExecServerError::TransportDisconnected),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.bodies.routes().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn delta(seq: u64, bytes: usize, done: bool, error: Option<&str>) -> BodyDeltaParams {
        BodyDeltaParams {
            request_id: "r".into(),
            seq,
            delta: vec![b'x'; bytes].into(),
            done,
            error: error.map(str::to_owned),
        }
    }

    async fn end(body: &mut Body) -> (usize, Result<()>) {
        let mut bytes = 0;
        loop {
            match body.next().await {
                Ok(Some(piece)) => bytes += piece.len(),
                Ok(None) => return (bytes, Ok(())),
                Err(error) => return (bytes, Err(error)),
            }
        }
    }

    #[tokio::test]
    async fn a_body_comes_whole_and_frees_its_id() {
        let bodies = Arc::<Bodies>::default();
        let mut body = bodies.expect("r".into());
        for piece in [delta(1, 3, false, None), delta(2, 4, false, None), delta(3, 0, true, None)] {
            bodies.delta(piece);
        }
        assert!(matches!(end(&mut body).await, (7, Ok(()))));
        assert!(bodies.routes().is_empty());
    }

    #[test_case(&[delta(1, 3, false, None), delta(3, 3, true, None)], 3, "piece 2"; "a gap")]
    #[test_case(&[delta(2, 3, true, None)], 0, "piece 1"; "no beginning")]
    #[test_case(&[delta(1, 3, false, None), delta(2, 0, true, Some("reset"))], 3, "reset"; "an error")]
    #[test_case(&[delta(1, (1 << 20) + 1, false, None)], 0, "1048577 bytes"; "a piece too large")]
    #[tokio::test]
    async fn what_is_not_complete_is_an_error(deltas: &[BodyDeltaParams], bytes: usize, part: &str) {
        let bodies = Arc::<Bodies>::default();
        let mut body = bodies.expect("r".into());
        for delta in deltas {
            bodies.delta(delta.clone());
        }
        let (got, outcome) = end(&mut body).await;
        let why = outcome.unwrap_err().to_string();
        assert!(got == bytes && why.contains(part), "{got} {why}");
        assert!(bodies.routes().is_empty());
    }

    #[test_case(1, 256; "pieces")]
    #[test_case(1 << 20, 32; "bytes")]
    #[tokio::test]
    async fn a_slow_reader_loses_the_body_behind_what_was_queued(size: usize, fit: u64) {
        let bodies = Arc::<Bodies>::default();
        let mut body = bodies.expect("r".into());
        for seq in 1..=fit + 1 {
            bodies.delta(delta(seq, size, false, None));
        }
        let (got, outcome) = end(&mut body).await;
        assert_eq!(got as u64, size as u64 * fit);
        assert!(outcome.unwrap_err().to_string().contains("too slowly"));
    }

    #[tokio::test]
    async fn bodies_end_with_their_connection_and_registrations_with_their_body() {
        let bodies = Arc::<Bodies>::default();
        let mut body = bodies.expect("r".into());
        bodies.fail();
        assert!(matches!(end(&mut body).await, (0, Err(ExecServerError::TransportDisconnected))));
        drop(body);
        drop(bodies.expect("s".into()));
        assert!(bodies.routes().is_empty());
        bodies.delta(delta(1, 1, false, None));
    }
}
