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
mod ending;
mod heartbeat;
mod order;
mod outgoing;
mod parts;
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

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub use self::audit::Who;
use self::calls::Call;
pub(super) use self::calls::MethodLabel;
use self::heartbeat::{Due, Heartbeat};
use self::order::Lanes;
use self::outgoing::{Loss, Outgoing, Output};
use self::parts::Part;
use self::ticket::Ticket;
use self::watching::Watching;
use self::work::{Done, Reply, Tools};
use crate::discovery::Discovery;
use crate::environment_config::EnvironmentConfig;
use crate::fs::FileSystem;
use crate::http_request::{HttpClient, Room};
use crate::memory::{Held, MemoryBudget};
use crate::process::WaitingBudget;
use crate::protocol::envelope::{ErrorObject, Malformed, Message};
use crate::protocol::environment::EnvironmentInfo;
use crate::protocol::process::ProcessId;
use crate::protocol::{code, salvage};
use crate::rpc::transport::CloseCode;
use crate::rpc::{EndReason, Received, Transport};
use crate::sandbox::Sandboxes;
use crate::server::metrics::{Bytes, Traffic};
use crate::session::{Attachment, ConnectionId, SessionRegistry};
use crate::telemetry::Entry;

/// Requests that may wait behind the running ones; then the connection is read no further.
const QUEUED_REQUESTS: usize = 1024;
/// Reads that may wait for news; then the connection is read no further.
const WAITING_READS: usize = 8192;
/// Bytes of requests that may be in the works; then the connection is read no further. One message can have 64 MiB.
const REQUEST_BYTES: usize = 128 << 20;
/// Bytes of requests that may be in the works when the memory of the server is used up.
const LITTLE: usize = 64 << 10;
/// Messages handled before what they caused is written.
const BURST: usize = 64;
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
    /// What is recorded of whoever asks.
    asker: Arc<Entry>,
    handshake: Handshake,
    tools: Arc<Tools>,
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
    outgoing: Outgoing,
    watching: Watching,
    /// What went over it and is not counted yet.
    bytes: Bytes,
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

/// Why the connection ends.
enum End {
    /// The transport ended.
    Transport(EndReason),
    /// It is ended from here.
    Close(CloseCode, &'static str),
}

impl From<Loss> for End {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Lagged => Self::Close(
                CloseCode::TryAgainLater,
                "too slow: the output has gone on without this observer",
            ),
            Loss::Cut => Self::Close(CloseCode::Failed, "an answer could not be finished"),
        }
    }
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
        let (now, id) = (Instant::now(), ConnectionId::next());
        let initialize_by = (kind == Kind::Socket).then(|| now + shared.initialize_timeout);
        let (announce, announced) = mpsc::unbounded_channel();
        let tools = Tools {
            announce,
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
            id,
            asker: who.asker(id, None),
            who,
            handshake: Handshake::New,
            tools: Arc::new(tools),
            waiting_writes: WaitingBudget::new(WAITING_WRITES),
            tasks: JoinSet::new(),
            lanes: Lanes::default(),
            running: 0,
            waits: 0,
            queue: VecDeque::new(),
            behind_start: HashMap::new(),
            deferred: 0,
            outgoing: Outgoing::new(announced, Arc::clone(&shared.memory)),
            watching: Watching::default(),
            bytes: Bytes::of(&shared.traffic),
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
            && self.outgoing.has_room()
            && (!self.shared.memory.is_full() || self.holds_little())
    }

    /// So that what frees memory, such as ending a process, gets through whatever holds it. The end of what is held is
    /// also what has the connection looked at again.
    fn holds_little(&self) -> bool {
        self.held.load(Ordering::Relaxed) < LITTLE && self.outgoing.has_begun_all()
    }

    // ---- writing ----

    /// Hands messages to the transport as it has room, and flushes. Pending when all is written that can be; every waker
    /// is registered then.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            let handed = self.poll_hand_over(cx)?;
            // Before the peer can have it all and look at the counts.
            self.bytes.count();
            ready!(handed);
            if !self.dirty {
                return Poll::Pending;
            }
            ready!(self.transport.poll_flush(cx))?;
            self.dirty = false;
            self.outgoing.written();
            self.heartbeat.written(Instant::now());
        }
    }

    /// Ready when the transport has everything that there is.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        while self.outgoing.has_output(self.handshake.attachment(), cx)? {
            ready!(self.transport.poll_ready(cx))?;
            match self.outgoing.next_output() {
                Some(Output::Message(text)) => {
                    self.bytes.sent(text.len());
                    self.transport.send(text)?;
                }
                Some(Output::Part(Part { text, last })) => {
                    self.bytes.sent(text.len());
                    self.transport.send_part(text, last)?;
                }
                None => continue,
            }
            self.dirty = true;
        }
        Poll::Ready(Ok(()))
    }

    fn reply(&mut self, reply: impl Into<Reply>) {
        self.outgoing.push(reply);
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
            self.bytes.received(bytes.len());
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
}
