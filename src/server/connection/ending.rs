//! The end of a connection: a goodbye, or the answers to everything that has arrived.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::watching::Watching;
use super::{Connection, End, Handshake, Kind, Turn};
use crate::rpc::transport::CloseCode;
use crate::rpc::{EndReason, Received, Transport};
use crate::session::Session;

/// How long requests may go on that arrived before the end of the input.
const WORK_AT_END: Duration = Duration::from_secs(10);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

impl<T: Transport> Connection<T> {
    pub(super) async fn finish(mut self, end: End) {
        match (&end, self.kind) {
            (End::Transport(reason), _) => tracing::debug!(%reason, "a connection has ended"),
            (End::Close(code, reason), _) => tracing::debug!(?code, reason, "a connection is closed"),
        }
        self.record_end();
        if self.kind == Kind::Stdio {
            self.drain().await;
            return;
        }
        // Detached before the goodbye, which a peer may draw out.
        self.tasks.abort_all();
        self.watching = Watching::default();
        self.outgoing.bodies.abort();
        self.handshake = Handshake::New;
        let (code, reason) = match end {
            End::Close(code, reason) => (code, reason),
            End::Transport(EndReason::Framing(_)) => (CloseCode::Protocol, "the framing is broken"),
            End::Transport(EndReason::NotUtf8) => (CloseCode::NotUtf8, "a text message is not UTF-8"),
            End::Transport(EndReason::TooLarge) => (CloseCode::TooLarge, "a message is larger than 64 MiB"),
            End::Transport(EndReason::Closed) => (CloseCode::Normal, ""),
            End::Transport(EndReason::Io(_)) => return,
        };
        let _ = tokio::time::timeout(GOODBYE, self.goodbye(code, reason)).await;
    }

    /// Sends a close frame and waits for the peer's, so that nothing unread makes the system drop ours.
    async fn goodbye(&mut self, code: CloseCode, reason: &str) {
        // Answers that are ready go first; it fails where the peer has closed, and then the flush is what is left.
        while let Some(reply) = self.outgoing.pop_reply() {
            if poll_fn(|cx| self.transport.poll_ready(cx)).await.is_err()
                || self.transport.send(reply.text).is_err()
            {
                return;
            }
        }
        let _ = self.transport.close(code, reason);
        if poll_fn(|cx| self.transport.poll_flush(cx)).await.is_ok() {
            while !matches!(poll_fn(|cx| self.transport.poll_receive(cx)).await, Received::End(_)) {}
        }
    }

    /// Goes on without input until something holds, or the time is over.
    async fn answer_until(&mut self, limit: Duration, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) && begun.elapsed() < limit {
            let turn = poll_fn(|cx| self.poll_turn(cx));
            match tokio::time::timeout(Duration::from_millis(20), turn).await {
                Ok(Turn::Done(done)) => self.done(done),
                Ok(Turn::MissingChanged(watch_id)) => self.missing_changed(watch_id),
                Ok(Turn::End(_)) => return,
                _ => {}
            }
        }
    }

    /// Answers everything that has arrived, then ends the session.
    async fn drain(&mut self) {
        self.input_ended = true;
        self.initialize_by = None;
        self.shutdown = Box::pin(CancellationToken::new().cancelled_owned());
        self.answer_until(WORK_AT_END, |connection| {
            connection.running == 0 && connection.queue.is_empty() && connection.outgoing.bodies.is_answered()
        })
        .await;
        // What is left waits for processes, and so for their end.
        let session: Option<Arc<Session>> =
            self.handshake.attachment().map(|seat| Arc::clone(seat.session()));
        if let Some(session) = session {
            let registry = Arc::clone(&self.shared.registry);
            let ending = tokio::spawn(async move { registry.end(&session).await });
            self.answer_until(Duration::MAX, |_| ending.is_finished()).await;
        }
        // Streams may be without end: they have no more time than this.
        self.answer_until(GOODBYE, |connection| {
            connection.tasks.is_empty()
                && connection.outgoing.is_answered()
                && connection.outgoing.bodies.is_idle()
        })
        .await;
        // The last events, such as the ends of the processes just ended.
        let _ = tokio::time::timeout(
            GOODBYE,
            poll_fn(|cx| match self.poll_write(cx) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending if self.dirty || !self.outgoing.is_empty() => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(())),
            }),
        )
        .await;
    }
}
