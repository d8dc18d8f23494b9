//! `process/start`: from what a client asks for to a running process.

use std::sync::Arc;
use std::time::Instant;

use super::compose::{Composed, Form, compose};
use super::egress::{Doors, Egress};
use super::executor::Live;
use super::table::{Enforced, Entry, Given, Request, Table};
use super::{ConnectionId, Session, record};
use crate::process::actor::Actor;
use crate::process::{Process, StartFailure, env};
use crate::protocol::limits::ProcessLimits;
use crate::protocol::process::{ExecParams, ProcessId, StartParams, StartResult, TerminalSize};
use crate::sandbox::SandboxError;
use crate::snapshot::{Answer, Shell};
use crate::telemetry::Limit;

/// Bytes that a process id may have: it comes back with every chunk of output.
const ID_BYTES: usize = 64 << 10;
/// Bytes that a snapshot scope may have.
const SCOPE_BYTES: std::ops::RangeInclusive<usize> = 1..=256;
/// Names (live processes and records) that a session may hold beyond its live processes.
const RECORDS: usize = 65_536;

/// Why a process was not started. Nothing runs, and its id is free unless it was taken before.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The request can never be right.
    #[error("{0}")]
    InvalidParams(String),
    /// The id is in use.
    #[error("process {} already exists", .0.shown())]
    Duplicate(ProcessId),
    /// The program could not be executed.
    #[error(transparent)]
    Failed(#[from] StartFailure),
    /// A sandbox policy cannot be enforced.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A limit of the configuration is reached.
    #[error("the limit of {max} {what} is reached")]
    Limit {
        /// What there is too much of, with the key of the limit.
        what: &'static str,
        /// Which limit.
        limit: Limit,
        /// What it is.
        max: usize,
    },
    /// The session has ended.
    #[error("the session has ended")]
    SessionEnded,
}

/// A process that has been started. Its events are published when this is dropped: answer the request first.
#[derive(Debug)]
pub struct Started {
    /// The answer.
    pub result: StartResult,
    session: Arc<Session>,
    process: Arc<Process>,
}

impl Started {
    /// The process.
    #[must_use]
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.session.publish(&self.process);
    }
}

impl Session {
    /// Starts a process. Until its shell's state is there, a start goes with its caller; from then on it is completed
    /// whatever happens to the caller. Cancel-safe in that the process is in the session's table or does not exist.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(
        self: &Arc<Self>,
        params: StartParams,
        origin: ConnectionId,
    ) -> Result<Started, StartError> {
        let outcome = self.begin(params, origin).await;
        outcome.inspect_err(|error| record::not_started(&self.executor, error))
    }

    async fn begin(
        self: &Arc<Self>,
        params: StartParams,
        origin: ConnectionId,
    ) -> Result<Started, StartError> {
        let limits = self.check(&params)?;
        let request = Arc::new(Request::of(&params, origin));
        self.executor.relieve().await;
        loop {
            let mut settled = self.start_settled.subscribe();
            match self.reserve(&params.exec.process_id, &request)? {
                Reserved::New(live) => {
                    let reservation = Reservation::of(self, &params);
                    let egress = Egress::of(&params.exec, self).await?;
                    let state = self.shell_state(&params, egress.as_ref()).await?;
                    let conditions = Conditions { live, reservation, state, egress, limits };
                    let launch = tokio::spawn(Arc::clone(self).launch(params, conditions));
                    return launch.await.unwrap_or(Err(StartError::SessionEnded));
                }
                Reserved::Existing(Existing::Present(process, given)) => {
                    return Ok(self.already_started(&params, given, process));
                }
                Reserved::Existing(Existing::Starting) => drop(settled.changed().await),
            }
        }
    }

    /// The answer to a start whose id means a process already, which needs no work. Cheap where it does not.
    ///
    /// # Errors
    /// [`StartError::Duplicate`], unless it repeats the first start on a later connection.
    pub fn repeated_start(
        self: &Arc<Self>,
        params: &StartParams,
        origin: ConnectionId,
    ) -> Option<Result<Started, StartError>> {
        if !matches!(self.table().get(&params.exec.process_id), Some(Entry::Present { .. })) {
            return None;
        }
        let outcome = self.repeat(params, origin).transpose()?;
        Some(outcome.inspect_err(|error| record::not_started(&self.executor, error)))
    }

    fn repeat(
        self: &Arc<Self>,
        params: &StartParams,
        origin: ConnectionId,
    ) -> Result<Option<Started>, StartError> {
        self.check(params)?;
        let request = Request::of(params, origin);
        let existing = existing(&self.table(), &params.exec.process_id, &request)?;
        Ok(match existing {
            Some(Existing::Present(process, given)) => Some(self.already_started(params, given, process)),
            Some(Existing::Starting) | None => None,
        })
    }

    /// The limits of a start that can be right.
    fn check(&self, params: &StartParams) -> Result<ProcessLimits, StartError> {
        check(params)?;
        self.executor.settings().limits.resolve(params.options.limits.as_ref())
    }

    fn already_started(
        self: &Arc<Self>,
        params: &StartParams,
        given: Given,
        process: Arc<Process>,
    ) -> Started {
        let result = StartResult { already_started: true, ..answer(&params.exec, given) };
        Started { result, session: Arc::clone(self), process }
    }

    fn reserve(&self, id: &ProcessId, request: &Arc<Request>) -> Result<Reserved, StartError> {
        let limit = self.executor.settings().max_processes_per_session.get();
        let mut table = self.table();
        if table.is_ended() {
            return Err(StartError::SessionEnded);
        }
        if let Some(existing) = existing(&table, id, request)? {
            return Ok(Reserved::Existing(existing));
        }
        if table.len() >= limit && table.live() >= limit {
            let what = "live processes of a session (limits.processes_per_session)";
            return Err(StartError::Limit { what, limit: Limit::ProcessesPerSession, max: limit });
        }
        if table.len() >= limit + RECORDS {
            let what = "records of ended processes";
            return Err(StartError::Limit { what, limit: Limit::Records, max: limit + RECORDS });
        }
        let memory = &self.executor.settings().memory;
        if let Some(max) = memory.limit().filter(|_| memory.is_full()) {
            let what = "bytes in the server's buffers (limits.memory_bytes)";
            return Err(StartError::Limit { what, limit: Limit::Memory, max });
        }
        let Some(live) = self.executor.admit() else {
            let max = self.executor.settings().max_processes.get();
            let what = "live processes (limits.processes)";
            return Err(StartError::Limit { what, limit: Limit::Processes, max });
        };
        table.reserve(id.clone(), Arc::clone(request));
        Ok(Reserved::New(live))
    }

    async fn launch(
        self: Arc<Self>,
        params: StartParams,
        conditions: Conditions,
    ) -> Result<Started, StartError> {
        let Conditions { live, reservation, state, egress, limits } = conditions;
        let began = Instant::now();
        let form = state.as_ref().and_then(Answer::snapshot).map_or(Form::AsGiven, Form::Restored);
        let Composed { spec, sandbox, doors } =
            compose(&params, &self.executor, form, egress.as_ref()).await?;
        let given = Given {
            sandbox: Enforced::by(sandbox.as_ref()),
            shell_snapshot: state.as_ref().map(Answer::report),
        };
        let started = Process::start(spec, self.terms(limits), self.executor.output(), sandbox).await;
        let (process, actor) = started.inspect_err(|failure| self.executor.hear_of(failure))?;
        let end = self.table().fill(&process, given.clone());
        drop(reservation);
        tokio::spawn(own(Arc::downgrade(&self), Arc::clone(&process), actor, (live, doors)));
        if let Some(grace) = end {
            process.terminate(grace);
        }
        let result = answer(&params.exec, given);
        record::started(&self.executor, &result, began.elapsed());
        Ok(Started { result, session: self, process })
    }
}

/// A name taken for a start in progress. Dropped, it is free again, unless a process has filled it.
struct Reservation {
    session: Arc<Session>,
    id: ProcessId,
}

impl Reservation {
    fn of(session: &Arc<Session>, params: &StartParams) -> Self {
        Self { session: Arc::clone(session), id: params.exec.process_id.clone() }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.session.table().release(&self.id);
        self.session.start_settled.send_replace(());
    }
}

/// What a start goes on with.
struct Conditions {
    live: Live,
    reservation: Reservation,
    state: Option<Answer>,
    egress: Option<Arc<Egress>>,
    limits: ProcessLimits,
}

enum Reserved {
    New(Live),
    Existing(Existing),
}

/// What has the id of a start that repeats the first one.
enum Existing {
    Starting,
    Present(Arc<Process>, Given),
}

/// What has the id of a start, if anything.
///
/// # Errors
/// When it is not the same start on a later connection.
fn existing(table: &Table, id: &ProcessId, request: &Request) -> Result<Option<Existing>, StartError> {
    let Some(entry) = table.get(id) else { return Ok(None) };
    if !entry.request().is_repeated_by(request) {
        return Err(StartError::Duplicate(id.clone()));
    }
    Ok(Some(match entry {
        Entry::Starting { .. } => Existing::Starting,
        Entry::Present { process, given, .. } => Existing::Present(Arc::clone(process), given.clone()),
    }))
}

/// Serves a process to its close, then keeps its record for a while.
async fn own(
    session: std::sync::Weak<Session>,
    process: Arc<Process>,
    actor: Actor,
    (live, doors): (Live, Option<Doors>),
) {
    let id = session.upgrade().map(|session| session.id.clone()).unwrap_or_default();
    Box::pin(actor.run()).await;
    record::ended(live.executor(), &id, &process);
    let lifetime = live.executor().settings().record_lifetime;
    drop(live);
    if let Some(doors) = doors {
        doors.close();
    }
    tokio::time::sleep(lifetime).await;
    if let Some(session) = session.upgrade() {
        session.table().forget(&process);
    }
}

fn answer(exec: &ExecParams, given: Given) -> StartResult {
    StartResult {
        process_id: exec.process_id.clone(),
        sandbox_type: Some(given.sandbox.kind),
        sandbox_backend: given.sandbox.backend,
        sandbox_gaps: given.sandbox.gaps,
        already_started: false,
        shell_snapshot: given.shell_snapshot,
    }
}

fn check(params: &StartParams) -> Result<(), StartError> {
    let exec = &params.exec;
    let invalid = |message: String| Err(StartError::InvalidParams(message));
    if exec.process_id.as_str().len() > ID_BYTES {
        return invalid(format!("`processId` has more than {ID_BYTES} bytes"));
    }
    if exec.argv.is_empty() {
        return invalid("`argv` must name a program".to_owned());
    }
    if let Some(name) = env::invalid_name(exec.env_policy.as_ref(), &exec.env) {
        return invalid(format!("`{name}` cannot be a variable's name: it is empty or holds `=`"));
    }
    match params.options.size {
        Some(_) if !exec.tty => {
            return invalid("`size` needs `tty`: a process on pipes has no window".to_owned());
        }
        Some(TerminalSize { rows: 0, .. } | TerminalSize { cols: 0, .. }) => {
            return invalid("`size`: rows and cols must be 1 to 65535".to_owned());
        }
        _ => {}
    }
    if let Some(snapshot) = &exec.shell_snapshot {
        if !SCOPE_BYTES.contains(&snapshot.scope_id.len()) {
            return invalid("shell snapshot scope must be 1 to 256 bytes".to_owned());
        }
        if wants_snapshot(exec) && Shell::named(&snapshot.shell.name).is_none() {
            return invalid(format!("shell snapshots are unsupported for shell `{}`", snapshot.shell.name));
        }
    }
    Ok(())
}

/// Whether the command line is one that a snapshot can serve.
pub(super) fn wants_snapshot(exec: &ExecParams) -> bool {
    let shell = exec.shell_snapshot.as_ref().map(|snapshot| &snapshot.shell.path);
    matches!(exec.argv.as_slice(), [program, flag, _, ..] if Some(program) == shell && flag == "-lc")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::network::proxy::site::Site;
    use crate::network::proxy::upstream::UpstreamSettings;
    use crate::process::log::Exit;
    use crate::protocol::process::ExitReason;
    use crate::sandbox::{SandboxSettings, Sandboxes};
    use crate::session::{Executor, ExecutorSettings, Lookup};
    use crate::spawn::mark::ServerMark;

    /// The connection that asked for the start is gone, the next one asks for the end before the program runs.
    #[tokio::test]
    async fn a_start_in_progress_can_be_ended() {
        let executor = Executor::new(
            ExecutorSettings::default(),
            ServerMark::new(),
            Vec::new(),
            Sandboxes::new(SandboxSettings::default()),
            Arc::new(Site::new(1, UpstreamSettings::default(), Arc::default())),
        );
        let session = Session::new("test", executor);
        let params = json!({"processId": "p", "argv": ["/bin/sleep", "60"], "cwd": "file:///", "env": {}, "tty": false});
        let params = serde_json::from_value(params).unwrap();
        // Polled once: the name is reserved, and the rest goes on without the caller.
        assert!(session.start(params, ConnectionId::next()).now_or_never().is_none());
        let id = ProcessId::from("p");
        assert!(matches!(session.process(&id), Lookup::Starting));
        assert!(session.terminate(&id, Some(Duration::from_secs(60))));
        assert!(session.terminate(&id, Some(Duration::ZERO)));
        let mut settled = session.start_settled.subscribe();
        let process = loop {
            match session.process(&id) {
                Lookup::Found(process) => break process,
                _ => settled.changed().await.unwrap(),
            }
        };
        let mut news = process.log().subscribe();
        while !process.log().status().closed {
            news.changed().await.unwrap();
        }
        let exit = process.log().status().exit;
        assert!(matches!(exit, Some(Exit { code: 137, reason: ExitReason::Terminated, .. })), "{exit:?}");
    }
}
