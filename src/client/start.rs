//! Starts remote processes.
//!
//! A start is never repeated: the server may have done it. It runs in a task of its own, so that its outcome is known
//! whatever the caller does, and a process that nobody takes is ended.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::connection::CallError;
use super::pending::Priority;
use super::process::RemoteProcess;
use super::session::Session;
use crate::backend::{ExecServerError, Result, StartedExecProcess};
use crate::protocol::process::{SandboxType, Start, StartParams};

/// Starts a process. When the future is dropped, the process is ended if it did start.
///
/// # Errors
/// The server's; [`ExecServerError::TransportDisconnected`] when the answer was lost; an id in use.
pub(super) async fn start(session: Arc<Session>, params: Box<StartParams>) -> Result<StartedExecProcess> {
    let (mut taker, outcome) = oneshot::channel();
    tokio::spawn(async move {
        let outcome = tokio::select! {
            biased;
            outcome = start_once(&session, params) => outcome,
            () = not_wanted(&session, &mut taker) => return,
        };
        // If nobody takes it, it is dropped here or with the channel, and ends the process.
        let _ = taker.send(outcome);
    });
    let unclaimed = outcome.await.unwrap_or(Err(ExecServerError::TransportDisconnected))?;
    Ok(unclaimed.claim())
}

/// Resolves when the caller has gone before anything was sent.
async fn not_wanted(session: &Session, taker: &mut oneshot::Sender<Result<Unclaimed>>) {
    taker.closed().await;
    // What has been sent is waited for.
    session.starts_settled().await;
}

async fn start_once(session: &Arc<Session>, params: Box<StartParams>) -> Result<Unclaimed> {
    let id = &params.exec.process_id;
    loop {
        let live = session.live().await?;
        let _in_flight = session.start_in_flight();
        let Some(events) = session.processes.add(id) else {
            return Err(ExecServerError::Protocol(format!("process id `{id}` is already in use")));
        };
        let error = match live.connection.call::<Start>(&params, Priority::Regular).await {
            Ok(result) => {
                let process = RemoteProcess::new(id.clone(), Arc::clone(session), events);
                return Ok(Unclaimed::new(process, result.sandbox_type));
            }
            Err(error) => error,
        };
        session.processes.remove(id, &events);
        match error {
            CallError::NotSent => {}
            CallError::Unanswered => {
                session.abandon(id);
                return Err(ExecServerError::TransportDisconnected);
            }
            CallError::Failed(error) => return Err(error),
        }
    }
}

/// A started process on its way to the caller. Dropped on the way, it ends.
struct Unclaimed {
    process: Arc<RemoteProcess>,
    sandbox_type: Option<SandboxType>,
    claimed: bool,
}

impl Unclaimed {
    fn new(process: RemoteProcess, sandbox_type: Option<SandboxType>) -> Self {
        Self { process: Arc::new(process), sandbox_type, claimed: false }
    }

    fn claim(mut self) -> StartedExecProcess {
        self.claimed = true;
        StartedExecProcess { process: Arc::clone(&self.process) as _, sandbox_type: self.sandbox_type }
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if !self.claimed {
            self.process.terminate_in_background();
        }
    }
}
