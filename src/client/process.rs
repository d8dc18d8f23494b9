//! The handle of a remote process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::events::OrderedEvents;
use super::gate::require;
use super::pending::Priority;
use super::session::Session;
use crate::backend::{
    BoxFuture, ExecProcess, ExecProcessEventReceiver, ExecServerError, OutputAccounting, Result,
};
use crate::protocol::code;
use crate::protocol::environment::Capabilities;
use crate::protocol::process::{
    AccountedRead, CloseStdin, ProcessId, ProcessParams, ProcessSignal, Read, ReadParams, ReadResponse,
    Resize, ResizeParams, Signal, SignalParams, SignalTarget, TerminalSize, Terminate, TerminateParams,
    Write, WriteParams, WriteResponse,
};

/// A process of a session on a server.
pub(super) struct RemoteProcess {
    id: ProcessId,
    session: Arc<Session>,
    events: Arc<OrderedEvents>,
    /// The last write id used. Held while a write is unanswered: one that is repeated after an outage must not be
    /// overtaken by the next.
    writes: Mutex<u64>,
}

impl RemoteProcess {
    pub(super) fn new(id: ProcessId, session: Arc<Session>, events: Arc<OrderedEvents>) -> Self {
        Self { id, session, events, writes: Mutex::new(0) }
    }

    /// Ends the process without anybody waiting for it.
    pub(super) fn terminate_in_background(&self) {
        let session = Arc::clone(&self.session);
        let params = TerminateParams { process_id: self.id.clone(), grace_ms: None };
        self.session.runtime.spawn(async move {
            if let Err(error) = session.repeat::<Terminate>(&params, Priority::CleanUp).await {
                tracing::debug!(process = %params.process_id, %error, "an unwanted process could not be ended");
            }
        });
    }

    fn params(&self) -> ProcessParams {
        ProcessParams { process_id: self.id.clone() }
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        Ok(self.session.info().await?.capabilities)
    }

    async fn require_control(&self, wanted: &str) -> Result<()> {
        require(self.capabilities().await?.process_control, wanted, "processControl")
    }

    async fn read_or_fail(&self, params: ReadParams) -> Result<AccountedRead> {
        if let Some(why) = self.events.failure() {
            return Ok(failed_read(&params, why.to_string()));
        }
        match self.session.repeat::<Read>(&params, Priority::Regular).await {
            Ok(read) => {
                if let Some(lost) = read.lost {
                    self.events.note_lost(lost);
                }
                Ok(read)
            }
            Err(ExecServerError::Disconnected(why)) => Ok(failed_read(&params, why)),
            Err(error) => Err(error),
        }
    }

    async fn write_once(&self, chunk: Vec<u8>) -> Result<WriteResponse> {
        let mut last_id = self.writes.lock().await;
        *last_id += 1;
        let write_id = last_id.to_string();
        let params = WriteParams { process_id: self.id.clone(), chunk: chunk.into(), write_id };
        let outcome = self.session.repeat::<Write>(&params, Priority::Regular).await;
        if outcome.as_ref().is_err_and(was_not_taken) {
            // The server waits for this id again, so that later writes cannot overtake the refused one.
            *last_id -= 1;
        }
        outcome
    }

    async fn send_signal(&self, signal: ProcessSignal, target: Option<SignalTarget>) -> Result<bool> {
        if signal != ProcessSignal::Interrupt {
            self.require_control("signals other than interrupt").await?;
        }
        if target.is_some() {
            self.require_control("a target of signals").await?;
        }
        let params = SignalParams { process_id: self.id.clone(), signal, target };
        Ok(self.session.once::<Signal>(&params).await?.delivered)
    }
}

/// Whether nothing of a write was taken, for lack of room.
fn was_not_taken(error: &ExecServerError) -> bool {
    matches!(error, ExecServerError::Server { code: code::INTERNAL, data: Some(data), .. } if data["kind"] == "stdinFull")
}

/// What a read finds when the connection is lost for good.
fn failed_read(params: &ReadParams, why: String) -> AccountedRead {
    let response = ReadResponse {
        chunks: Vec::new(),
        next_seq: params.after_seq.unwrap_or(0).saturating_add(1),
        exited: true,
        exit_code: None,
        closed: true,
        failure: Some(why),
        sandbox_denied: false,
    };
    AccountedRead { response, lost: None }
}

impl ExecProcess for RemoteProcess {
    fn process_id(&self) -> &ProcessId {
        &self.id
    }

    fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.events.subscribe_wake()
    }

    fn subscribe_events(&self) -> ExecProcessEventReceiver {
        self.events.published().subscribe()
    }

    fn subscribe_events_paced(&self) -> ExecProcessEventReceiver {
        self.events.published().subscribe_paced()
    }

    fn read_accounted(
        &self,
        after_seq: Option<u64>,
        max_bytes: Option<usize>,
        wait_ms: Option<u64>,
    ) -> BoxFuture<'_, Result<AccountedRead>> {
        let max_bytes = max_bytes.map(|max| max as u64);
        let params = ReadParams { process_id: self.id.clone(), after_seq, max_bytes, wait_ms };
        Box::pin(self.read_or_fail(params))
    }

    fn write(&self, chunk: Vec<u8>) -> BoxFuture<'_, Result<WriteResponse>> {
        Box::pin(self.write_once(chunk))
    }

    fn signal(&self, signal: ProcessSignal) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.send_signal(signal, None).await.map(drop) })
    }

    fn signal_to(&self, signal: ProcessSignal, target: Option<SignalTarget>) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.require_control("telling whether a signal was delivered").await?;
            self.send_signal(signal, target).await
        })
    }

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.terminate_with(None).await.map(drop) })
    }

    fn terminate_with(&self, grace: Option<Duration>) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            if grace.is_some() {
                self.require_control("a grace of its own").await?;
            }
            let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
            let params = TerminateParams { process_id: self.id.clone(), grace_ms };
            Ok(self.session.repeat::<Terminate>(&params, Priority::CleanUp).await?.running)
        })
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.require_control("changing the window size").await?;
            let params = ResizeParams { process_id: self.id.clone(), rows: size.rows, cols: size.cols };
            self.session.repeat::<Resize>(&params, Priority::Regular).await.map(drop)
        })
    }

    fn close_stdin(&self) -> BoxFuture<'_, Result<WriteResponse>> {
        Box::pin(async move {
            self.require_control("closing the input").await?;
            let _after_every_write = self.writes.lock().await;
            let answer = self.session.repeat::<CloseStdin>(&self.params(), Priority::Regular).await?;
            Ok(WriteResponse { status: answer.status })
        })
    }

    fn output_accounting(&self) -> OutputAccounting {
        self.events.accounting()
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        // Receivers that are left go on until the close, as those of a local process do.
        if !self.events.has_subscribers() {
            self.session.processes.remove(&self.id, &self.events);
        }
    }
}
