//! Sessions: the processes of one client identity, whatever becomes of its connections.
//!
//! A session knows no transport and no JSON-RPC. Connections attach to it, as its holder or as observers; while
//! nobody holds it, it lives for a limited time. The library's local backend is a session in the caller's process.

mod attachment;
mod compose;
mod egress;
mod executor;
mod read;
mod record;
mod registry;
mod shell_state;
mod start;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use attachment::{Attachment, Role};
pub use executor::{Executor, ExecutorSettings};
pub use read::{MAX_ANSWER_OUTPUT, ReadOutcome, ReadRequest, read_now, wait_for_news};
pub use registry::{Census, SessionError, SessionRegistry};
pub use start::{StartError, Started};

use crate::network::desk::Desk;
use crate::process::log::Status;
use crate::process::{Process, end_scope};
use crate::protocol::process::{
    ListResponse, ProcessId, ProcessState, ProcessSummary, SandboxType, StdinState,
};
use crate::sandbox::Sandboxes;
use crate::snapshot::SessionSnapshots;
use crate::spawn::mark::SessionMark;
use crate::spawn::tree::Scope;
use attachment::Attached;
use table::{Entry, Table};

/// What is kept of a client's name.
const NAME_CHARS: usize = 256;

/// Which connection asks: a start may be repeated on a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// An id that no connection had before.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    /// As a number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A process of a session, or why there is none to be had.
#[derive(Debug)]
pub enum Lookup {
    /// Here it is.
    Found(Arc<Process>),
    /// Its start is not finished.
    Starting,
    /// No such process.
    Unknown,
}

/// See the module's description.
#[derive(Debug)]
pub struct Session {
    id: String,
    client_name: String,
    created_at_ms: u64,
    mark: SessionMark,
    executor: Arc<Executor>,
    table: Mutex<Table>,
    attached: Mutex<Attached>,
    /// Changes when a start has been finished, one way or the other.
    start_settled: watch::Sender<()>,
    snapshots: SessionSnapshots,
    /// Where the proxies of its processes ask its client.
    desk: Arc<Desk>,
    /// Cancelled when the end begins, for starts that wait for a snapshot.
    ending: CancellationToken,
}

impl Session {
    /// What the sandboxes of its executor share.
    #[must_use]
    pub fn sandboxes(&self) -> &Arc<Sandboxes> {
        self.executor.sandboxes()
    }

    /// A new session, attached to nobody.
    #[must_use]
    pub fn new(client_name: &str, executor: Arc<Executor>) -> Arc<Self> {
        Arc::new(Self {
            id: uuid::Uuid::new_v4().to_string(),
            client_name: client_name.chars().take(NAME_CHARS).collect(),
            created_at_ms: executor::now_ms(),
            mark: executor.mark().session(),
            snapshots: executor.snapshots().session(),
            executor,
            table: Mutex::default(),
            attached: Mutex::default(),
            start_settled: watch::Sender::new(()),
            desk: Arc::default(),
            ending: CancellationToken::new(),
        })
    }

    /// The id by which it is resumed.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What its client calls itself, cut where it is too long.
    #[must_use]
    pub fn client_name(&self) -> &str {
        &self.client_name
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self) -> MutexGuard<'_, Attached> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a process.
    #[must_use]
    pub fn process(&self, id: &ProcessId) -> Lookup {
        match self.table().get(id) {
            None => Lookup::Unknown,
            Some(Entry::Starting { .. }) => Lookup::Starting,
            Some(Entry::Present { process, .. }) => Lookup::Found(Arc::clone(process)),
        }
    }

    /// Ends a process's tree; true if something was left to end. Without a grace the configured one counts. A start
    /// that is in progress, for a connection that has gone, is ended as soon as it has started.
    pub fn terminate(&self, id: &ProcessId, grace: Option<Duration>) -> bool {
        let grace = grace.unwrap_or(self.executor.settings().grace);
        let process = match self.table().get_mut(id) {
            None => return false,
            Some(Entry::Starting { end, .. }) => {
                *end = Some(end.map_or(grace, |sooner| sooner.min(grace)));
                return true;
            }
            Some(Entry::Present { process, .. }) => Arc::clone(process),
        };
        process.terminate(grace)
    }

    /// All processes and records, in order of start.
    #[must_use]
    pub fn list(&self) -> ListResponse {
        let mut rows: Vec<(u64, ProcessSummary)> = self.table().present().map(summary).collect();
        rows.sort_by_key(|(order, _)| *order);
        ListResponse { processes: rows.into_iter().map(|(_, row)| row).collect() }
    }

    /// How many processes and records there are.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.table().present().count()
    }

    /// Ends every process, and whatever they left running in the background. Nothing can be started any more.
    pub async fn end(&self, grace: Duration) {
        let processes = self.table().end();
        self.ending.cancel();
        for process in &processes {
            process.terminate(grace);
        }
        // A start that was in progress settles within moments; its process has to go as well.
        let mut settled = self.start_settled.subscribe();
        while self.table().starting() > 0 && settled.changed().await.is_ok() {}
        let late = self.table().end();
        for process in &late {
            process.terminate(grace);
        }
        let leaders = processes.iter().chain(&late).map(|process| process.pid()).collect();
        if self.table().ever_started() || self.snapshots.ever_captured() {
            end_scope(Scope { marks: self.mark.range(), leaders, ..Scope::default() }, grace).await;
        }
    }
}

fn summary(row: table::Row<'_>) -> (u64, ProcessSummary) {
    let process = row.process;
    let status = process.log().status();
    let exit = status.exit.as_ref();
    let totals = status.totals;
    let summary = ProcessSummary {
        process_id: process.id().clone(),
        argv: row.argv.to_vec(),
        cwd: row.cwd.clone(),
        tty: process.tty(),
        sandbox_type: row.sandbox_type,
        pid: process.pid(),
        state: state_of(&status),
        started_at_ms: process.started_at_ms(),
        exited_at_ms: exit.map(|exit| exit.at_ms),
        exit_code: exit.map(|exit| exit.code),
        signal: exit.and_then(|exit| exit.signal).map(str::to_owned),
        next_seq: status.next_seq,
        output_bytes: totals.stdout + totals.stderr + totals.pty,
        retained_from_seq: status.retained_from,
        stdin: if process.stdin_open() { StdinState::Open } else { StdinState::Closed },
    };
    (row.order, summary)
}

fn state_of(status: &Status) -> ProcessState {
    match (status.closed, &status.exit) {
        (true, _) => ProcessState::Closed,
        (false, Some(_)) => ProcessState::Exited,
        (false, None) => ProcessState::Running,
    }
}

/// What a start says confines its process.
fn sandbox_type(confined: bool) -> SandboxType {
    if confined { SandboxType::LinuxSeccomp } else { SandboxType::None }
}
