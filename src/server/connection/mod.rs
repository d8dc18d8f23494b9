//! One connection: the handshake, requests in, answers and events out.
//!
//! One task drives everything. It handles what cannot block at once and in order, gives the rest to tasks whose
//! results come back to it, and is the only one that writes, so an answer to a start always precedes the events of
//! the process. It reads no further while too much waits to be answered or to be written.

mod answers;
mod audit;
pub(crate) mod benchmarking;
mod bodies;
mod calls;
mod heartbeat;
mod order;
mod questions;
mod requests;
mod ticket;
mod watching;
mod work;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub use self::audit::Who;
use self::bodies::Bodies;
use self::calls::Call;
pub(super) use self::calls::MethodLabel;
use self::heartbeat::{Due, Heartbeat};
use self::order::Lanes;
use self::questions::Questions;
use self::ticket::Ticket;
use self::watching::Watching;
use self::work::{Done, Reply, Tools};
use crate::discovery::Discovery;
use crate::environment_config::EnvironmentConfig;
use crate::fs::FileSystem;
use crate::http_request::{HttpClient, Room};
use crate::memory::{Held, MemoryBudget};
use crate::process::WaitingBudget;
use crate::process::log::{Chunk, Event, OutputLog, Taken};
use crate::protocol::envelope::{ErrorObject, Malformed, Message};
use crate::protocol::environment::EnvironmentInfo;
use crate::protocol::process::ProcessId;
use crate::protocol::{code, salvage};
use crate::rpc::transport::CloseCode;
use crate::rpc::{EndReason, Received, Transport};
use crate::sandbox::Sandboxes;
use crate::server::metrics::Traffic;
use crate::session::{Attachment, ConnectionId, Session, SessionRegistry};

/// Requests that may wait behind the running ones; then the connection is read no further.
const QUEUED_REQUESTS: usize = 1024;
/// Reads that may wait for news; then the connection is read no further.
const WAITING_READS: usize = 8192;
/// Answers that may wait to be written; then the connection is read no further.
const QUEUED_REPLIES: usize = 128;
const QUEUED_REPLY_BYTES: usize = 4 << 20;
/// Bytes of requests that may be in the works; then the connection is read no further. One message can have 64 MiB.
const REQUEST_BYTES: usize = 128 << 20;
/// Bytes of requests that may be in the works when the memory of the server is used up.
const LITTLE: usize = 64 << 10;
/// Messages handled before what they caused is written.
const BURST: usize = 64;
/// Output taken from a process before the others have their turn.
const TURN_BYTES: usize = 256 << 10;
/// Larger messages are parsed where blocking is allowed.
const LARGE_MESSAGE: usize = 256 << 10;
/// Bytes of writes that may wait for processes that do not read.
const WAITING_WRITES: usize = 16 << 20;
/// Large answers in the making at a time.
const LARGE_ANSWERS: usize = 2;
/// Discoveries of capabilities at a time.
const DISCOVERIES: usize = 2;
/// Large HTTP bodies taken whole at a time.
const LARGE_BODIES: usize = 2;
/// What `fs/readFile` can put into one answer.
const READ_FILE_LIMIT: u64 = 48 << 20;
/// How long requests may go on that arrived before the end of the input.
const WORK_AT_END: Duration = Duration::from_secs(10);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// What all connections of a server share.
#[derive(Debug)]
pub struct Shared {
    /// The sessions.
    pub registry: Arc<SessionRegistry>,
    /// What the executor says of itself, but for its sandboxes.
    pub info: EnvironmentInfo,
    /// What its sandboxes share.
    pub sandboxes: Arc<Sandboxes>,
    /// The settings layers of the machine.
    pub config: Arc<EnvironmentConfig>,
    /// What all buffers may hold together.
    pub memory: Arc<MemoryBudget>,
    /// Looks for capabilities.
    pub discovery: Arc<Discovery>,
    /// Makes HTTP requests.
    pub http: Arc<HttpClient>,
    /// Requests of one connection that may run at a time.
    pub concurrent_requests: NonZeroUsize,
    /// Counts what goes over connections.
    pub(super) traffic: Arc<Traffic>,
    /// How long a stranger may stay silent.
    pub initialize_timeout: Duration,
    /// Time between pings.
    pub ping_interval: Duration,
    /// How long a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// The server is ending.
    pub shutdown: CancellationToken,
}

impl Shared {
    /// What the executor says of itself. The first call finds out what can confine a process, which takes some
    /// milliseconds.
    pub async fn info(&self) -> EnvironmentInfo {
        let (sandboxes, info) = (Arc::clone(&self.sandboxes), self.info.clone());
        let described = tokio::task::spawn_blocking(move || sandboxes.described(info)).await;
        described.unwrap_or_else(|_| self.info.clone())
    }
}

/// What becomes of the session when the input ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is detached and can be resumed.
    Socket,
    /// What has arrived is answered, then the session ends: nobody can come back.
    Stdio,
}

/// Chunks read back from the spool, after which number of which log.
type ReadBack = (Arc<OutputLog>, u64, Vec<Chunk>);

/// How far the handshake has come.
enum Handshake {
    New,
    /// `initialize` has been answered.
    Initialized(Attachment),
    /// `initialized` has come.
    Ready(Attachment),
}

impl Handshake {
    fn attachment(&self) -> Option<&Attachment> {
        match self {
            Self::New => None,
            Self::Initialized(attachment) | Self::Ready(attachment) => Some(attachment),
        }
    }
}

/// The wire names of all requests that are understood.
pub(crate) const METHODS: &[&str] = Call::METHODS;

/// Decodes the params of a request and encodes them again: for the fuzz targets.
pub(crate) fn recode(method: &str, params: serde_json::Value) -> Result<serde_json::Value, ErrorObject> {
    let call = Call::decode(method, params)?;
    call.params().map_err(|error| ErrorObject::new(code::INTERNAL, error.to_string()))
}

/// Serves a connection to its end.
pub async fn serve<T: Transport>(transport: T, shared: Arc<Shared>, kind: Kind, who: Who) {
    let info = shared.info().await;
    let mut connection = Connection::new(transport, shared, info, kind, who);
    let end = connection.run().await;
    connection.finish(end).await;
}

struct Connection<T> {
    transport: T,
    shared: Arc<Shared>,
    info: EnvironmentInfo,
    kind: Kind,
    id: ConnectionId,
    who: Who,
    handshake: Handshake,
    tools: Tools,
    waiting_writes: Arc<WaitingBudget>,
    tasks: JoinSet<Done>,
    lanes: Lanes,
    /// Running requests that take a place.
    running: usize,
    /// Reads that wait for news.
    waits: usize,
    queue: VecDeque<requests::Queued>,
    /// Requests for processes whose start is not answered.
    behind_start: HashMap<ProcessId, VecDeque<(Ticket, Call, Option<Hold>)>>,
    deferred: usize,
    replies: VecDeque<Reply>,
    reply_bytes: usize,
    /// What the answer counts for that the transport is writing.
    sending: Option<Held>,
    events: VecDeque<(Arc<OutputLog>, Event)>,
    watching: Watching,
    bodies: Bodies,
    questions: Questions,
    /// Which source of messages has the next turn.
    turn: Source,
    /// Reading events back that have left memory.
    spooled: Option<JoinHandle<ReadBack>>,
    parsing: Option<JoinHandle<Result<Message, Malformed>>>,
    /// Bytes of requests in the works.
    held: Arc<AtomicUsize>,
    /// The message that is being handled, until its work takes it along.
    hold: Option<Hold>,
    dirty: bool,
    burst: usize,
    heartbeat: Heartbeat,
    timer: Pin<Box<Sleep>>,
    initialize_by: Option<Instant>,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    input_ended: bool,
}

/// Bytes of a request, for as long as it is in the works.
#[derive(Debug)]
struct Hold {
    held: Arc<AtomicUsize>,
    bytes: usize,
    _memory: Held,
}

impl Hold {
    fn new(held: &Arc<AtomicUsize>, bytes: usize, memory: &Arc<MemoryBudget>) -> Self {
        held.fetch_add(bytes, Ordering::Relaxed);
        Self { held: Arc::clone(held), bytes, _memory: memory.hold(bytes) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where messages come from that answer nothing.
#[derive(Debug, Clone, Copy)]
enum Source {
    Events,
    Frames,
    Desk,
}

impl Source {
    const COUNT: usize = 3;

    fn next(self) -> Self {
        match self {
            Self::Events => Self::Frames,
            Self::Frames => Self::Desk,
            Self::Desk => Self::Events,
        }
    }
}

/// Why the connection ends.
enum End {
    /// The transport ended.
    Transport(EndReason),
    /// It is ended from here.
    Close(CloseCode, &'static str),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Transport(error.into())
    }
}

/// What happened next.
enum Turn {
    Received(Received),
    Parsed(Result<Message, Malformed>),
    Done(Done),
    /// The watch with this id has seen a change.
    MissingChanged(u64),
    Probed,
    Timer,
    End(End),
}

impl<T: Transport> Connection<T> {
    fn new(transport: T, shared: Arc<Shared>, info: EnvironmentInfo, kind: Kind, who: Who) -> Self {
        let now = Instant::now();
        let initialize_by = (kind == Kind::Socket).then(|| now + shared.initialize_timeout);
        let tools = Tools {
            files: Arc::new(
                FileSystem::with_read_limit(READ_FILE_LIMIT).beside(Arc::clone(&shared.sandboxes)),
            ),
            config: Arc::clone(&shared.config),
            discovery: Arc::clone(&shared.discovery),
            discoveries: Arc::new(Semaphore::new(DISCOVERIES)),
            large: Arc::new(Semaphore::new(LARGE_ANSWERS)),
            http: Arc::clone(&shared.http),
            memory: Arc::clone(&shared.memory),
            large_bodies: Room::new(LARGE_BODIES, Arc::clone(&shared.memory)),
        };
        Self {
            transport,
            info,
            kind,
            id: ConnectionId::next(),
            who,
            handshake: Handshake::New,
            tools,
            waiting_writes: WaitingBudget::new(WAITING_WRITES),
            tasks: JoinSet::new(),
            lanes: Lanes::default(),
            running: 0,
            waits: 0,
            queue: VecDeque::new(),
            behind_start: HashMap::new(),
            deferred: 0,
            replies: VecDeque::new(),
            reply_bytes: 0,
            sending: None,
            events: VecDeque::new(),
            watching: Watching::default(),
            bodies: Bodies::new(Arc::clone(&shared.memory)),
            questions: Questions::default(),
            turn: Source::Events,
            spooled: None,
            parsing: None,
            held: Arc::default(),
            hold: None,
            dirty: false,
            burst: 0,
            heartbeat: Heartbeat::new(shared.ping_interval, shared.ping_timeout, now),
            timer: Box::pin(tokio::time::sleep_until(now)),
            initialize_by,
            shutdown: Box::pin(shared.shutdown.clone().cancelled_owned()),
            input_ended: false,
            shared,
        }
    }

    async fn run(&mut self) -> End {
        loop {
            let turn = poll_fn(|cx| self.poll_turn(cx)).await;
            let handled = match turn {
                Turn::Received(received) => self.received(received),
                Turn::Parsed(message) => self.message(message),
                Turn::Done(done) => {
                    self.done(done);
                    Ok(())
                }
                Turn::MissingChanged(watch_id) => {
                    self.missing_changed(watch_id);
                    Ok(())
                }
                Turn::Probed => {
                    self.heartbeat.probe(Instant::now());
                    self.ping()
                }
                Turn::Timer => self.timer(),
                Turn::End(end) => Err(end),
            };
            if let Err(end) = handled {
                return end;
            }
        }
    }

    /// Reads as long as something is there, up to a burst, then writes what came of it.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        if self.shutdown.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Turn::End(End::Close(CloseCode::GoingAway, "the server is shutting down")));
        }
        if let Some(parsing) = &mut self.parsing
            && let Poll::Ready(parsed) = Pin::new(parsing).poll(cx)
        {
            self.parsing = None;
            return Poll::Ready(match parsed {
                Ok(message) => Turn::Parsed(message),
                Err(_) => Turn::End(End::Close(CloseCode::Protocol, "a message could not be parsed")),
            });
        }
        while let Poll::Ready(Some(done)) = self.tasks.poll_join_next(cx) {
            match done {
                Ok(done) => return Poll::Ready(Turn::Done(done)),
                Err(error) => tracing::error!(%error, "a request was lost"),
            }
        }
        if let Poll::Ready(watch_id) = self.watching.poll_changed(cx) {
            return Poll::Ready(Turn::MissingChanged(watch_id));
        }
        if self.burst < BURST
            && self.accepts_input()
            && let Poll::Ready(received) = self.transport.poll_receive(cx)
        {
            self.burst += 1;
            return Poll::Ready(Turn::Received(received));
        }
        self.burst = 0;
        if let Poll::Ready(Err(end)) = self.poll_write(cx) {
            return Poll::Ready(Turn::End(end));
        }
        // A full burst ended reading without having asked to be woken for more.
        if self.accepts_input()
            && let Poll::Ready(received) = self.transport.poll_receive(cx)
        {
            return Poll::Ready(Turn::Received(received));
        }
        if let Some(attachment) = self.handshake.attachment()
            && attachment.poll_probed(cx).is_ready()
        {
            return Poll::Ready(Turn::Probed);
        }
        self.poll_timer(cx).map(|()| Turn::Timer)
    }

    fn accepts_input(&self) -> bool {
        !self.input_ended
            && self.parsing.is_none()
            && self.queue.len() + self.deferred < QUEUED_REQUESTS
            && self.tasks.len() - self.waits < QUEUED_REQUESTS + self.shared.concurrent_requests.get()
            && self.waits < WAITING_READS
            && self.held.load(Ordering::Relaxed) < REQUEST_BYTES
            && self.replies.len() < QUEUED_REPLIES
            && self.reply_bytes < QUEUED_REPLY_BYTES
            && (!self.shared.memory.is_full() || self.holds_little())
    }

    /// So that what frees memory, such as ending a process, gets through whatever holds it. The end of what is held is
    /// also what has the connection looked at again.
    fn holds_little(&self) -> bool {
        self.held.load(Ordering::Relaxed) < LITTLE && self.replies.is_empty()
    }

    // ---- writing ----

    /// Hands replies and events to the transport as it has room, and flushes. Pending when all is written that can
    /// be; every waker is registered then.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            while self.has_output(cx)? {
                if self.transport.poll_ready(cx)?.is_pending() {
                    return Poll::Pending;
                }
                self.sending = None;
                if let Some(text) = self.next_output() {
                    self.shared.traffic.sent_bytes.add(text.len() as u64);
                    self.transport.send(text)?;
                    self.dirty = true;
                }
            }
            if self.dirty {
                ready!(self.transport.poll_flush(cx))?;
                self.dirty = false;
                self.sending = None;
                self.heartbeat.written(Instant::now());
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Makes sure that there is something to send, if there is anything.
    fn has_output(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if !self.replies.is_empty() || !self.events.is_empty() {
            return Ok(true);
        }
        // No source can keep another from the wire.
        let mut source = self.turn;
        for _ in 0..Source::COUNT {
            let next = source.next();
            if self.has(source, cx)? {
                self.turn = next;
                return Ok(true);
            }
            source = next;
        }
        Ok(false)
    }

    /// Makes sure that there is something of this source to send, if there is anything.
    fn has(&mut self, source: Source, cx: &mut Context<'_>) -> Result<bool, End> {
        match source {
            Source::Events => self.has_events(cx),
            Source::Frames => Ok(self.bodies.poll_frame(cx)),
            Source::Desk => Ok(self.has_question(cx)),
        }
    }

    fn has_question(&mut self, cx: &mut Context<'_>) -> bool {
        let seat = self.handshake.attachment().and_then(Attachment::desk);
        let Some(Poll::Ready(text)) = seat.map(|seat| self.questions.poll_message(seat, cx)) else {
            return false;
        };
        self.reply(text);
        true
    }

    /// Makes sure that there is an event to send, if there is any.
    fn has_events(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.poll_spooled(cx) {
            return Ok(true);
        }
        let Some(attachment) = self.handshake.attachment() else { return Ok(false) };
        let feed = Arc::clone(attachment.feed());
        while self.spooled.is_none() {
            let Poll::Ready(log) = feed.poll_pop(cx) else { return Ok(false) };
            match log.take(&feed, TURN_BYTES) {
                Taken::Events { events, more } => {
                    if more {
                        feed.push(Arc::clone(&log));
                    }
                    self.events.extend(events.into_iter().map(|event| (Arc::clone(&log), event)));
                    if !self.events.is_empty() {
                        return Ok(true);
                    }
                }
                Taken::Spooled { after } => {
                    self.spooled = Some(tokio::task::spawn_blocking(move || {
                        let chunks = log.read_spool(after, TURN_BYTES as u64);
                        (log, after, chunks)
                    }));
                    return Ok(self.poll_spooled(cx));
                }
                Taken::Lagged => return Err(End::Close(CloseCode::TryAgainLater, SLOW_OBSERVER)),
            }
        }
        Ok(false)
    }

    fn poll_spooled(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(reading) = &mut self.spooled else { return false };
        let Poll::Ready(read) = Pin::new(reading).poll(cx) else { return false };
        self.spooled = None;
        let (Ok((log, after, chunks)), Some(attachment)) = (read, self.handshake.attachment()) else {
            return false;
        };
        let bytes = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
        log.skip_to(attachment.feed(), chunks.last().map_or(after, |chunk| chunk.seq), bytes);
        attachment.feed().push(Arc::clone(&log));
        self.events.extend(chunks.into_iter().map(|chunk| (Arc::clone(&log), Event::Output(chunk))));
        !self.events.is_empty()
    }

    fn next_output(&mut self) -> Option<String> {
        if let Some(reply) = self.replies.pop_front() {
            self.reply_bytes -= reply.text.len();
            self.sending = reply.memory;
            return Some(reply.text);
        }
        if let Some((log, event)) = self.events.pop_front() {
            return Some(answers::notification(log.id(), &event));
        }
        self.bodies.next_frame()
    }

    fn reply(&mut self, reply: impl Into<Reply>) {
        let mut reply = reply.into();
        reply.count(&self.shared.memory);
        self.reply_bytes += reply.text.len();
        self.replies.push_back(reply);
    }

    // ---- time ----

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let heartbeat = self.transport.has_heartbeat().then(|| self.heartbeat.deadline());
        let Some(deadline) = heartbeat.into_iter().chain(self.initialize_by).min() else {
            return Poll::Pending;
        };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(cx)
    }

    fn timer(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if self.initialize_by.is_some_and(|by| by <= now) {
            return Err(End::Close(CloseCode::Policy, "`initialize` did not come in time"));
        }
        if !self.accepts_input() {
            self.heartbeat.excuse(now);
        }
        match self.heartbeat.due(now, self.transport.incoming_progress()) {
            Due::Ping => self.ping(),
            Due::Dead => Err(End::Close(CloseCode::Policy, "no answer to a ping")),
            Due::Nothing => Ok(()),
        }
    }

    fn ping(&mut self) -> Result<(), End> {
        self.dirty = true;
        self.transport.ping().map_err(|error| End::Transport(error.into()))
    }

    // ---- reading ----

    fn received(&mut self, received: Received) -> Result<(), End> {
        self.heartbeat.alive();
        self.hold = None;
        if let Received::Message(bytes) = &received {
            self.hold = Some(Hold::new(&self.held, bytes.len(), &self.shared.memory));
            self.shared.traffic.received_bytes.add(bytes.len() as u64);
        }
        match received {
            Received::Message(bytes) if bytes.len() > LARGE_MESSAGE => {
                self.parsing = Some(tokio::task::spawn_blocking(move || Message::parse(&bytes)));
                Ok(())
            }
            Received::Message(bytes) => self.message(Message::parse(&bytes)),
            Received::Oversized { head, tail } => {
                let Some(id) = salvage::request_id(&head, &tail) else {
                    return Err(End::Close(CloseCode::TooLarge, "a message is larger than 64 MiB"));
                };
                let error = ErrorObject::new(
                    code::INVALID_REQUEST,
                    "the message is larger than 64 MiB and was dropped: send it in parts",
                );
                let id = self.ticket(id, MethodLabel::Unreadable);
                self.reply(answers::failure(&id, &error));
                Ok(())
            }
            Received::Pong => {
                self.heartbeat.answered();
                Ok(())
            }
            Received::Ping => {
                // The transport has queued its answer.
                self.dirty = true;
                Ok(())
            }
            Received::End(reason) => Err(End::Transport(reason)),
        }
    }

    // ---- the end ----

    async fn finish(mut self, end: End) {
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
        self.bodies.abort();
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
        while let Some(reply) = self.replies.pop_front() {
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
            connection.running == 0 && connection.queue.is_empty() && connection.bodies.is_answered()
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
            connection.tasks.is_empty() && connection.replies.is_empty() && connection.bodies.is_idle()
        })
        .await;
        // The last events, such as the ends of the processes just ended.
        let _ = tokio::time::timeout(
            GOODBYE,
            poll_fn(|cx| match self.poll_write(cx) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending if self.dirty || !self.events.is_empty() => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(())),
            }),
        )
        .await;
    }
}

/// Why an observer loses its connection.
const SLOW_OBSERVER: &str = "too slow: the output has gone on without this observer";
