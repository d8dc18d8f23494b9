//! One physical connection: calls out, answers and notifications in, driven by one task.
//!
//! Invariants: notifications are handed on in the order received and before any later answer; at most
//! [`QUEUE`] messages wait in either direction, then whoever adds to them waits; when the connection ends, every call
//! in flight ends with it. The connection ends when the last handle is dropped.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::ClientOptions;
use super::heartbeat::{Due, Heartbeat};
use super::pending::{PendingCalls, Priority, Refused};
use crate::backend::{ExecServerError, Result};
use crate::protocol::envelope::{
    Answer, ErrorObject, Message, OutgoingError, OutgoingNotification, OutgoingRequest, RequestId,
};
use crate::protocol::{MAX_MESSAGE_BYTES, Method, NotificationMethod, code};
use crate::rpc::transport::CloseCode;
use crate::rpc::{Received, Transport};

/// Messages that wait to be written.
const QUEUE: usize = 128;
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Takes what the server tells unasked. Called by the connection's task, so it must not block.
pub(super) trait Notified: Send + Sync + 'static {
    /// One notification. Unknown ones are ignored.
    ///
    /// # Errors
    /// Params that do not fit a known notification; the connection is dropped.
    fn notification(&self, method: &str, params: Value) -> Result<(), serde_json::Error>;

    /// Ready when more can be taken; until then the connection is read no further.
    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// A handle on a connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    calls: Arc<PendingCalls>,
    outgoing: mpsc::Sender<String>,
    ended: watch::Receiver<Option<Arc<str>>>,
    abort: CancellationToken,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The connection had ended before; the server has not seen the call.
    NotSent,
    /// The connection ended before the answer; whether the server did it is unknown.
    Unanswered,
    /// An answer of the server, or a refusal of this side.
    Failed(ExecServerError),
}

impl From<CallError> for ExecServerError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotSent | CallError::Unanswered => Self::TransportDisconnected,
            CallError::Failed(error) => error,
        }
    }
}

impl Connection {
    /// Starts the task that drives the transport. Needs a tokio runtime.
    pub(super) fn open(
        transport: Box<dyn Transport>,
        options: &ClientOptions,
        notified: Arc<dyn Notified>,
    ) -> Self {
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let (end, ended) = watch::channel(None);
        let calls = Arc::new(PendingCalls::default());
        let abort = CancellationToken::new();
        let heartbeat = options
            .ping_interval
            .filter(|_| transport.has_heartbeat())
            .map(|interval| Heartbeat::new(interval, options.ping_timeout, Instant::now()));
        let driver = Driver {
            transport,
            queue,
            replies: VecDeque::new(),
            calls: Arc::clone(&calls),
            notified,
            progress: None,
            held_up: false,
        };
        tokio::spawn(driver.run(heartbeat, abort.clone(), end));
        Self { calls, outgoing, ended, abort }
    }

    /// Sends a request and waits for its answer. Cancel-safe: a dropped call gives its place back.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn call<M: Method>(
        &self,
        params: &M::Params,
        priority: Priority,
    ) -> Result<M::Output, CallError> {
        self.call_with::<M>(params, priority).await
    }

    /// [`Self::call`] with `"params":null`.
    pub(super) async fn call_without_params<M: Method>(&self) -> Result<M::Output, CallError> {
        self.call_with::<M>(&(), Priority::Regular).await
    }

    async fn call_with<M: Method>(
        &self,
        params: &impl Serialize,
        priority: Priority,
    ) -> Result<M::Output, CallError> {
        let call = self.calls.register(priority).map_err(|refused| self.refuse(refused, priority))?;
        let text = encode(&OutgoingRequest { id: &call.id(), method: M::NAME, params })?;
        self.outgoing.send(text).await.map_err(|_| CallError::NotSent)?;
        match call.answer().await {
            None => Err(CallError::Unanswered),
            Some(Err(error)) => Err(CallError::Failed(error.into())),
            Some(Ok(result)) => serde_json::from_str(result.get()).map_err(|error| {
                let why = format!("the server's answer to `{}` cannot be read: {error}", M::NAME);
                CallError::Failed(ExecServerError::Protocol(why))
            }),
        }
    }

    fn refuse(&self, refused: Refused, priority: Priority) -> CallError {
        match refused {
            Refused::Ended => CallError::NotSent,
            Refused::Full => {
                if priority == Priority::CleanUp {
                    // What cannot be cleaned up by a call is cleaned up by the end of the connection.
                    self.abort();
                }
                let why = format!("limit of {} pending requests reached", super::pending::MAX_PENDING);
                CallError::Failed(ExecServerError::Protocol(why))
            }
        }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn notify<N: NotificationMethod>(&self, params: &N::Params) -> Result<(), CallError> {
        let text = encode(&OutgoingNotification { method: N::NAME, params })?;
        self.outgoing.send(text).await.map_err(|_| CallError::NotSent)
    }

    /// Breaks the connection off.
    pub(super) fn abort(&self) {
        self.abort.cancel();
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Resolves to the reason when the connection has ended. Does not keep it alive.
    pub(super) fn ended(&self) -> impl Future<Output = Arc<str>> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            reason.unwrap_or_else(|| "the connection was given up".into())
        }
    }
}

fn encode(message: &impl Serialize) -> Result<String, CallError> {
    let refuse = |why: String| CallError::Failed(ExecServerError::Protocol(why));
    let text = serde_json::to_string(message).map_err(|error| refuse(error.to_string()))?;
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(refuse(format!("the request has {} bytes; at most 64 MiB can be sent", text.len())));
    }
    Ok(text)
}

/// Owns the transport.
struct Driver {
    transport: Box<dyn Transport>,
    queue: mpsc::Receiver<String>,
    /// Answers to requests of the server; while they are many, nothing is read.
    replies: VecDeque<String>,
    calls: Arc<PendingCalls>,
    notified: Arc<dyn Notified>,
    /// How far reading had come when it was last looked at.
    progress: Option<u64>,
    /// Nothing is read at the moment, for reasons of this side.
    held_up: bool,
}

/// Why the driver stops.
enum Stop {
    /// Nobody holds the connection any more.
    Unused,
    /// It broke, or the server misbehaved.
    Broken(CloseCode, String),
}

impl Stop {
    fn broken(reason: impl ToString) -> Self {
        Self::Broken(CloseCode::Normal, reason.to_string())
    }
}

impl Driver {
    async fn run(
        mut self,
        mut heartbeat: Option<Heartbeat>,
        abort: CancellationToken,
        ended: watch::Sender<Option<Arc<str>>>,
    ) {
        let stop = loop {
            // The transport comes first: while it delivers, its peer is alive.
            let outcome = tokio::select! {
                biased;
                received = poll_fn(|cx| self.poll(cx)) => match received {
                    Ok(received) => {
                        heartbeat.iter_mut().for_each(Heartbeat::alive);
                        self.take(received)
                    }
                    Err(stop) => Err(stop),
                },
                () = abort.cancelled() => Err(Stop::broken("the connection was broken off")),
                () = next_beat(heartbeat.as_ref()) => self.beat(heartbeat.as_mut()),
            };
            if let Err(stop) = outcome {
                break stop;
            }
        };
        let (code, reason) = match stop {
            Stop::Unused => (CloseCode::Normal, "no longer used".to_owned()),
            Stop::Broken(code, reason) => (code, reason),
        };
        tracing::debug!(%reason, "a connection to a server has ended");
        // In this order, so that whoever sees a call fail also sees the end.
        let _ = ended.send(Some(reason.into()));
        self.queue.close();
        self.calls.end();
        self.say_goodbye(code).await;
    }

    /// Writes what waits and reads the next thing.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Stop>> {
        if let Some(stop) = self.poll_write(cx)? {
            return Poll::Ready(Err(stop));
        }
        self.held_up = self.replies.len() >= QUEUE || self.notified.poll_room(cx).is_pending();
        if self.held_up {
            return Poll::Pending;
        }
        self.transport.poll_receive(cx).map(Ok)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<Option<Stop>, Stop> {
        while let Poll::Ready(ready) = self.transport.poll_ready(cx) {
            ready.map_err(Stop::broken)?;
            let next = match self.replies.pop_front() {
                Some(reply) => Poll::Ready(Some(reply)),
                None => self.queue.poll_recv(cx),
            };
            match next {
                Poll::Ready(Some(text)) => self.transport.send(text).map_err(Stop::broken)?,
                Poll::Ready(None) => return Ok(Some(Stop::Unused)),
                Poll::Pending => break,
            }
        }
        match self.transport.poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(Stop::broken(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(None),
        }
    }

    fn take(&mut self, received: Received) -> Result<(), Stop> {
        match received {
            Received::Message(bytes) => self.take_message(&bytes),
            Received::Ping | Received::Pong => Ok(()),
            Received::Oversized { .. } => {
                Err(Stop::Broken(CloseCode::TooLarge, "the server sent a message above 64 MiB".into()))
            }
            Received::End(reason) => Err(Stop::broken(reason)),
        }
    }

    fn take_message(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let malformed = |what: String| Stop::Broken(CloseCode::Protocol, what);
        if let Some(Answer { id, outcome }) = Answer::parse(bytes) {
            if !self.calls.resolve(&id, outcome) {
                tracing::debug!(%id, "an answer that no call waits for");
            }
            return Ok(());
        }
        match Message::parse(bytes) {
            Ok(Message::Notification { method, params }) => {
                self.notified.notification(&method, params).map_err(|error| {
                    malformed(format!("the server sent a `{method}` that cannot be read: {error}"))
                })
            }
            Ok(Message::Request { id, method, .. }) => self.decline(&id, &method),
            Ok(Message::Response { id, .. }) => {
                Err(malformed(format!("the server's answer to {id} cannot be read")))
            }
            Err(error) => Err(malformed(format!("the server sent something that is no message: {error}"))),
        }
    }

    fn decline(&mut self, id: &RequestId, method: &str) -> Result<(), Stop> {
        let error = ErrorObject::new(code::METHOD_NOT_FOUND, format!("this client does not know `{method}`"));
        let reply = serde_json::to_string(&OutgoingError { id, error: &error }).map_err(Stop::broken)?;
        self.replies.push_back(reply);
        Ok(())
    }

    fn beat(&mut self, heartbeat: Option<&mut Heartbeat>) -> Result<(), Stop> {
        let Some(heartbeat) = heartbeat else { return Ok(()) };
        let progress = self.transport.incoming_progress();
        if progress != self.progress || self.held_up {
            // In the middle of a large frame on a slow line nothing else can come; nor while nothing is read.
            self.progress = progress;
            heartbeat.alive();
        }
        match heartbeat.due(Instant::now()) {
            Due::Nothing => Ok(()),
            Due::Ping => self.transport.ping().map_err(Stop::broken),
            Due::GiveUp => Err(Stop::broken("the server has fallen silent")),
        }
    }

    /// Writes what was taken, then closes.
    async fn say_goodbye(&mut self, code: CloseCode) {
        let flushed = timeout(GOODBYE, poll_fn(|cx| self.transport.poll_flush(cx))).await;
        if matches!(flushed, Ok(Ok(()))) && self.transport.close(code, "").is_ok() {
            let _ = timeout(GOODBYE, poll_fn(|cx| self.transport.poll_flush(cx))).await;
        }
    }
}

async fn next_beat(heartbeat: Option<&Heartbeat>) {
    match heartbeat {
        Some(heartbeat) => sleep_until(heartbeat.next()).await,
        None => pending().await,
    }
}
