//! `process/start`: from what a client asks for to a running process.

use std::sync::Arc;

use super::executor::Live;
use super::table::Entry;
use super::{ConnectionId, Session, sandbox_type};
use crate::process::actor::Actor;
use crate::process::{Process, ProcessSpec, StartFailure, env};
use crate::protocol::process::{
    ExecParams, ProcessId, SandboxType, ShellSnapshotReport, ShellSnapshotState, StartParams, StartResult,
    TerminalSize,
};

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
    #[error("process {0:?} already exists")]
    Duplicate(ProcessId),
    /// The program could not be executed.
    #[error(transparent)]
    Failed(#[from] StartFailure),
    /// A protection was asked for that this executor cannot give.
    #[error("{0}")]
    SandboxUnavailable(String),
    /// A limit of the configuration is reached.
    #[error("the limit of {max} {what} is reached")]
    Limit {
        /// What there is too much of, with the key of the limit.
        what: &'static str,
        /// The limit.
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
    /// Starts a process. A start that has begun is completed whatever happens to the caller: cancel-safe in that the
    /// process is in the session's table or does not exist.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(
        self: &Arc<Self>,
        params: StartParams,
        origin: ConnectionId,
    ) -> Result<Started, StartError> {
        check(&params)?;
        let params = Arc::new(normal(params));
        loop {
            let mut settled = self.start_settled.subscribe();
            match self.reserve(&params, origin)? {
                Reserved::New(live) => {
                    let session = Arc::clone(self);
                    let launch = tokio::spawn(async move { session.launch(params, live).await });
                    return launch.await.unwrap_or(Err(StartError::SessionEnded));
                }
                Reserved::AlreadyStarted(process, sandbox) => {
                    let mut result = answer(&params.exec, sandbox);
                    result.already_started = true;
                    return Ok(Started { result, session: Arc::clone(self), process });
                }
                Reserved::InProgress => drop(settled.changed().await),
            }
        }
    }

    fn reserve(&self, params: &Arc<StartParams>, origin: ConnectionId) -> Result<Reserved, StartError> {
        let limit = self.executor.settings().max_processes_per_session.get();
        let id = &params.exec.process_id;
        let mut table = self.table();
        if table.is_ended() {
            return Err(StartError::SessionEnded);
        }
        if let Some(entry) = table.get(id) {
            let (first, first_origin) = entry.request();
            if first_origin == origin || *first != **params {
                return Err(StartError::Duplicate(id.clone()));
            }
            return Ok(match entry {
                Entry::Starting { .. } => Reserved::InProgress,
                Entry::Present { process, sandbox, .. } => {
                    Reserved::AlreadyStarted(Arc::clone(process), *sandbox)
                }
            });
        }
        if table.len() >= limit && table.live() >= limit {
            let what = "live processes of a session (limits.processes_per_session)";
            return Err(StartError::Limit { what, max: limit });
        }
        if table.len() >= limit + RECORDS {
            return Err(StartError::Limit { what: "records of ended processes", max: limit + RECORDS });
        }
        let Some(live) = self.executor.admit() else {
            let max = self.executor.settings().max_processes.get();
            return Err(StartError::Limit { what: "live processes (limits.processes)", max });
        };
        table.reserve(id.clone(), Arc::clone(params), origin);
        Ok(Reserved::New(live))
    }

    async fn launch(self: Arc<Self>, params: Arc<StartParams>, live: Live) -> Result<Started, StartError> {
        let reserved = Reservation { session: Arc::clone(&self), id: &params.exec.process_id };
        let sandbox = sandbox_type(params.exec.sandbox.is_some());
        let spec = spec(&params, &self.executor)?;
        let (process, actor) = Process::start(spec, self.mark.run(), self.executor.output()).await?;
        let end = self.table().fill(&process, sandbox);
        drop(reserved);
        tokio::spawn(own(Arc::downgrade(&self), Arc::clone(&process), actor, live));
        if let Some(grace) = end {
            process.terminate(grace);
        }
        Ok(Started { result: answer(&params.exec, sandbox), session: self, process })
    }
}

/// A name taken for a start in progress. Dropped, it is free again, unless a process has filled it.
struct Reservation<'a> {
    session: Arc<Session>,
    id: &'a ProcessId,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.session.table().release(self.id);
        self.session.start_settled.send_replace(());
    }
}

enum Reserved {
    New(Live),
    AlreadyStarted(Arc<Process>, SandboxType),
    InProgress,
}

/// Serves a process to its close, then keeps its record for a while.
async fn own(session: std::sync::Weak<Session>, process: Arc<Process>, actor: Actor, live: Live) {
    Box::pin(actor.run()).await;
    drop(live);
    let Some(lifetime) = session.upgrade().map(|session| session.executor.settings().record_lifetime) else {
        return;
    };
    tokio::time::sleep(lifetime).await;
    if let Some(session) = session.upgrade() {
        session.table().forget(&process);
    }
}

fn answer(exec: &ExecParams, sandbox: SandboxType) -> StartResult {
    StartResult {
        process_id: exec.process_id.clone(),
        sandbox_type: Some(sandbox),
        already_started: false,
        shell_snapshot: exec.shell_snapshot.as_ref().filter(|_| wants_snapshot(exec)).map(|_| {
            ShellSnapshotReport {
                state: ShellSnapshotState::Fallback,
                reason: Some("this server takes no shell snapshots".to_owned()),
            }
        }),
    }
}

/// Two starts are the same if only their metadata differs.
fn normal(mut params: StartParams) -> StartParams {
    params.exec.metadata = Default::default();
    params.options.limits = params.options.limits.filter(|limits| limits.first_named().is_some());
    params
}

fn check(params: &StartParams) -> Result<(), StartError> {
    let exec = &params.exec;
    let invalid = |message: String| Err(StartError::InvalidParams(message));
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
    if let Some(limit) = params.options.limits.and_then(|limits| limits.first_named()) {
        return invalid(format!("`limits.{limit}` cannot be enforced: this server has no process limits"));
    }
    if let Some(snapshot) = &exec.shell_snapshot {
        if !SCOPE_BYTES.contains(&snapshot.scope_id.len()) {
            return invalid("shell snapshot scope must be 1 to 256 bytes".to_owned());
        }
        if wants_snapshot(exec) && !["bash", "zsh", "sh"].contains(&snapshot.shell.name.as_str()) {
            return invalid(format!("shell snapshots are unsupported for shell `{}`", snapshot.shell.name));
        }
    }
    check_protection(exec)
}

/// Whether the command line is one that a snapshot can serve.
fn wants_snapshot(exec: &ExecParams) -> bool {
    let shell = exec.shell_snapshot.as_ref().map(|snapshot| &snapshot.shell.path);
    matches!(exec.argv.as_slice(), [program, flag, _, ..] if Some(program) == shell && flag == "-lc")
}

/// Refuses every protection that would not be enforced.
fn check_protection(exec: &ExecParams) -> Result<(), StartError> {
    let unavailable = |what: &str| {
        let message =
            format!("{what} is not available on this server, and the process was not started without it");
        Err(StartError::SandboxUnavailable(message))
    };
    if exec.sandbox.as_ref().is_some_and(|sandbox| !sandbox.is_unconfined()) {
        return unavailable("a sandbox that limits files or network (`sandbox`)");
    }
    if exec.enforce_managed_network || exec.network_proxy.is_some() || exec.managed_network.is_some() {
        return unavailable("managed networking (`enforceManagedNetwork`, `networkProxy`)");
    }
    Ok(())
}

fn spec(params: &StartParams, executor: &super::Executor) -> Result<ProcessSpec, StartError> {
    let exec = &params.exec;
    let cwd =
        exec.cwd.to_native_path().map_err(|error| StartError::InvalidParams(format!("`cwd`: {error}")))?;
    Ok(ProcessSpec {
        id: exec.process_id.clone(),
        argv: exec.argv.clone(),
        arg0: exec.arg0.clone(),
        cwd,
        env: env::child_environment(exec.env_policy.as_ref(), executor.environment(), &exec.env),
        terminal: exec.tty.then(|| params.options.size.unwrap_or_default()),
        pipe_stdin: exec.pipe_stdin,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::process::log::Exit;
    use crate::protocol::process::ExitReason;
    use crate::session::{Executor, ExecutorSettings, Lookup};
    use crate::spawn::mark::ServerMark;

    /// The connection that asked for the start is gone, the next one asks for the end before the program runs.
    #[tokio::test]
    async fn a_start_in_progress_can_be_ended() {
        let executor = Executor::new(ExecutorSettings::default(), ServerMark::new(), Vec::new());
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
