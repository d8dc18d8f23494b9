//! The local backend: a session in this process, its files and its network, behind the traits of [`crate::backend`].
//!
//! It is the server's own code without a connection: same numbers, same retention, same ends. Processes belong to
//! the backend and end when it and all handles of its processes are gone.

mod config;
mod discovery;
mod files;
mod http;

use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

pub use self::config::read_config;
pub use self::discovery::{discover_capabilities, discover_capability_roots};
pub use self::files::LocalFileSystem;
pub use self::http::LocalHttpClient;
use crate::backend::{
    BoxFuture, ExecBackend, ExecProcess, ExecProcessEvent, ExecProcessEventReceiver, ExecProcessEvents,
    ExecServerError, OutputAccounting, Result, StartedExecProcess,
};
use crate::error_map::{IntoErrorObject, ProcessCallError};
use crate::network::proxy::site::Site;
use crate::network::proxy::upstream::UpstreamSettings;
use crate::process::feed::Feed;
use crate::process::log::{Event, Exit, Taken};
use crate::process::{Process, ProcessError, WaitingBudget, WriteOutcome};
use crate::protocol::process::{
    AccountedRead, ExecParams, ListResponse, ProcessId, ProcessOutputChunk, ProcessSignal, SignalTarget,
    StartOptions, StartParams, TerminalSize, WriteResponse, WriteStatus,
};
use crate::sandbox::{SandboxSettings, Sandboxes};
use crate::session::{
    ConnectionId, Executor, ExecutorSettings, ReadRequest, Session, read_now, wait_for_news,
};
use crate::spawn::mark::ServerMark;

/// Bytes of writes that may wait for processes that do not read.
const WAITING_BYTES: usize = 16 << 20;
/// Connections that a proxy of a process holds at a time.
const PROXY_CONNECTIONS: usize = 512;
/// Events are handed on in portions of this much output.
const PORTION_BYTES: usize = 128 << 10;

/// See the module's description.
#[derive(Clone)]
pub struct LocalBackend {
    owner: Arc<Owner>,
}

/// Ends the session when the backend and the last process handle are gone.
struct Owner {
    session: Arc<Session>,
    connection: ConnectionId,
    waiting: Arc<WaitingBudget>,
    grace: Duration,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (session, grace) = (Arc::clone(&self.session), self.grace);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { session.end(grace).await });
        }
    }
}

impl LocalBackend {
    /// A backend with its own session.
    #[must_use]
    pub fn new(settings: ExecutorSettings) -> Self {
        Self::guarded(settings, ServerMark::new(), Sandboxes::new(SandboxSettings::default()))
    }

    /// A backend whose processes carry a mark and whose sandboxes leave a journal that others, such as a guard, know.
    #[must_use]
    pub fn guarded(settings: ExecutorSettings, mark: ServerMark, sandboxes: Arc<Sandboxes>) -> Self {
        let grace = settings.grace;
        let variable = |name: &str| std::env::var_os(name);
        let upstream = UpstreamSettings { variable: Some(&variable), ..UpstreamSettings::default() };
        let network = Arc::new(Site::new(PROXY_CONNECTIONS, upstream, Arc::default()));
        let executor = Executor::new(settings, mark, std::env::vars_os().collect(), sandboxes, network);
        let session = Session::new("local", executor);
        let waiting = WaitingBudget::new(WAITING_BYTES);
        Self { owner: Arc::new(Owner { session, connection: ConnectionId::next(), waiting, grace }) }
    }

    /// A backend whose sandboxes are built by this program, or without one by this very program.
    #[must_use]
    pub fn with_sandbox_helper(helper: Option<PathBuf>) -> Self {
        let sandboxes = Sandboxes::new(SandboxSettings { helper, ..SandboxSettings::default() });
        Self::guarded(ExecutorSettings::default(), ServerMark::new(), sandboxes)
    }

    /// What its sandboxes share.
    #[must_use]
    pub fn sandboxes(&self) -> Arc<Sandboxes> {
        Arc::clone(self.owner.session.sandboxes())
    }

    /// Ends all processes and waits until they have ended.
    pub async fn shutdown(&self) {
        self.owner.session.end(self.owner.grace).await;
    }
}

impl Default for LocalBackend {
    fn default() -> Self {
        Self::new(ExecutorSettings::default())
    }
}

impl ExecBackend for LocalBackend {
    fn start_with(
        &self,
        params: ExecParams,
        options: StartOptions,
    ) -> BoxFuture<'_, Result<StartedExecProcess>> {
        Box::pin(async move {
            let session = &self.owner.session;
            let params = StartParams { exec: params, options };
            let started = session.start(params, self.owner.connection).await;
            let started = started.map_err(|error| ExecServerError::from(error.into_error_object()))?;
            let sandbox_type = started.result.sandbox_type;
            let process = LocalProcess::follow(Arc::clone(started.process()), Arc::clone(&self.owner));
            Ok(StartedExecProcess { process: Arc::new(process), sandbox_type })
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<ListResponse>> {
        Box::pin(async move { Ok(self.owner.session.list()) })
    }
}

struct LocalProcess {
    process: Arc<Process>,
    owner: Arc<Owner>,
    events: Arc<ExecProcessEvents>,
    wake: watch::Receiver<u64>,
    accounting: Arc<Mutex<OutputAccounting>>,
    /// Number of the next write. Locked for the time of a write, so that they keep their order.
    next_write: tokio::sync::Mutex<u64>,
}

impl LocalProcess {
    fn follow(process: Arc<Process>, owner: Arc<Owner>) -> Self {
        let events = ExecProcessEvents::new();
        let (wake, wakes) = watch::channel(0);
        let accounting = Arc::default();
        let feed = Feed::new(true);
        process.log().watch(&feed, true);
        tokio::spawn(hand_on(feed, Arc::clone(&events), wake, Arc::clone(&accounting)));
        Self { process, owner, events, wake: wakes, accounting, next_write: tokio::sync::Mutex::new(1) }
    }

    fn refused(&self, error: ProcessError) -> ExecServerError {
        ProcessCallError::Refused(self.process.id().clone(), error).into_error_object().into()
    }
}

/// Turns what the log tells into events, until the close.
async fn hand_on(
    feed: Arc<Feed>,
    events: Arc<ExecProcessEvents>,
    wake: watch::Sender<u64>,
    accounting: Arc<Mutex<OutputAccounting>>,
) {
    loop {
        poll_fn(|cx| events.poll_room(cx)).await;
        let log = feed.next().await;
        let told = match log.take(&feed, PORTION_BYTES) {
            Taken::Events { events, more } => {
                if more {
                    feed.push(log);
                }
                events
            }
            Taken::Spooled { after } => {
                let reader = Arc::clone(&log);
                let read =
                    tokio::task::spawn_blocking(move || reader.read_spool(after, PORTION_BYTES as u64)).await;
                let chunks = read.unwrap_or_default();
                let bytes = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
                log.skip_to(&feed, chunks.last().map_or(after, |chunk| chunk.seq), bytes);
                feed.push(log);
                chunks.into_iter().map(Event::Output).collect()
            }
            Taken::Lagged => {
                return events.publish(ExecProcessEvent::Failed("output is no longer retained".into()));
            }
        };
        for event in told {
            let (event, seq) = translate(event, &accounting);
            let closed = matches!(event, ExecProcessEvent::Closed { .. });
            events.publish(event);
            let _ = wake.send(seq);
            if closed {
                return;
            }
        }
    }
}

fn translate(event: Event, accounting: &Mutex<OutputAccounting>) -> (ExecProcessEvent, u64) {
    let mut accounting = accounting.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        Event::Output(chunk) => {
            let (seq, stream) = (chunk.seq, chunk.stream);
            let chunk = ProcessOutputChunk { seq, stream, chunk: chunk.bytes.to_vec().into() };
            (ExecProcessEvent::Output(chunk), seq)
        }
        Event::Exited(exit) => {
            accounting.reason = Some(exit.reason);
            let Exit { seq, code: exit_code, sandbox_denied, .. } = exit;
            let sandbox_denied = Some(sandbox_denied);
            (ExecProcessEvent::Exited { seq, exit_code, sandbox_denied }, seq)
        }
        Event::Closed { seq, totals } => {
            accounting.totals = Some(totals);
            (ExecProcessEvent::Closed { seq }, seq)
        }
    }
}

impl ExecProcess for LocalProcess {
    fn process_id(&self) -> &ProcessId {
        self.process.id()
    }

    fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.wake.clone()
    }

    fn subscribe_events(&self) -> ExecProcessEventReceiver {
        self.events.subscribe()
    }

    fn subscribe_events_paced(&self) -> ExecProcessEventReceiver {
        self.events.subscribe_paced()
    }

    fn read_accounted(
        &self,
        after_seq: Option<u64>,
        max_bytes: Option<usize>,
        wait_ms: Option<u64>,
    ) -> BoxFuture<'_, Result<AccountedRead>> {
        Box::pin(async move {
            let request = ReadRequest {
                after: after_seq.unwrap_or(0),
                max_bytes: max_bytes.map(|max_bytes| max_bytes as u64),
            };
            if let Some(wait) = wait_ms.filter(|wait| *wait > 0) {
                wait_for_news(&self.process, request.after, Duration::from_millis(wait)).await;
            }
            let outcome = read_now(&self.process, request).await;
            if let Some(lost) = outcome.lost {
                self.accounting.lock().unwrap_or_else(PoisonError::into_inner).lost = Some(lost);
            }
            Ok(outcome.into())
        })
    }

    fn write(&self, chunk: Vec<u8>) -> BoxFuture<'_, Result<WriteResponse>> {
        Box::pin(async move {
            let mut next = self.next_write.lock().await;
            let id = next.to_string();
            // Spent before the wait: a write that is dropped in it may have been accepted.
            *next += 1;
            let status = match self.process.write(&id, chunk, &self.owner.waiting) {
                WriteOutcome::Done(status) => status,
                WriteOutcome::Waiting(answer) => answer.await.unwrap_or(WriteStatus::StdinClosed),
                WriteOutcome::Full => {
                    // What was refused has to come again before anything else is written.
                    *next -= 1;
                    return Err(ProcessCallError::StdinFull(self.process.id().clone())
                        .into_error_object()
                        .into());
                }
            };
            Ok(WriteResponse { status })
        })
    }

    fn signal(&self, signal: ProcessSignal) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.signal_to(signal, None).await.map(drop) })
    }

    fn signal_to(&self, signal: ProcessSignal, target: Option<SignalTarget>) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.process.signal(signal, target).map_err(|error| self.refused(error)) })
    }

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.terminate_with(None).await.map(drop) })
    }

    fn terminate_with(&self, grace: Option<Duration>) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { Ok(self.process.terminate(grace.unwrap_or(self.owner.grace))) })
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.process.resize(size).map_err(|error| self.refused(error)) })
    }

    fn close_stdin(&self) -> BoxFuture<'_, Result<WriteResponse>> {
        Box::pin(async move {
            let status = self.process.close_stdin().map_err(|error| self.refused(error))?;
            Ok(WriteResponse { status })
        })
    }

    fn output_accounting(&self) -> OutputAccounting {
        *self.accounting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
