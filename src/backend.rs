//! What an environment can do, whoever does it: this process, or a server far away.
//!
//! The traits are implemented by [`crate::local`] and by [`crate::client`]; callers hold them behind an `Arc` and
//! cannot tell which. Every behaviour is the same on both sides.

mod error;
mod events;
mod files;
mod http;
mod within;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub use self::error::{ExecServerError, Result};
pub use self::events::{ExecProcessEvent, ExecProcessEventReceiver, ExecProcessEvents, RecvError};
pub use self::files::{
    BLOCK_BYTES, CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, FileCall, FileCalls,
    FileReadStream, FileWriteStream, GetMetadataOptions, OpenFile, ReadFileOptions, RemoveOptions,
    RenameOptions, WriteFileOptions,
};
pub use self::http::{
    HttpBody, HttpClient, HttpRequest, HttpResponse, RedirectPolicy, RequestHeader, ResponseHeader,
    StreamedHttpResponse,
};
pub use self::within::{DeadlineExceeded, Within};
use crate::protocol::process::{
    AccountedRead, ExecParams, ExitReason, ListResponse, LostOutput, OutputTotals, ProcessId, ProcessSignal,
    ReadResponse, SandboxType, SignalTarget, StartOptions, TerminalSize, WriteResponse,
};

/// A future that can be stored and sent.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A process that was just started.
#[derive(Clone)]
pub struct StartedExecProcess {
    /// Its handle.
    pub process: Arc<dyn ExecProcess>,
    /// What confines it, when the executor says so.
    pub sandbox_type: Option<SandboxType>,
}

/// Starts processes.
pub trait ExecBackend: Send + Sync {
    /// Starts a process; it has been executed when this returns.
    ///
    /// Dropping the future before it has returned ends the process if it did start.
    ///
    /// # Errors
    /// [`ExecServerError::Server`] with `data.kind` when it cannot be started; an id in use; no connection.
    fn start(&self, params: ExecParams) -> BoxFuture<'_, Result<StartedExecProcess>> {
        self.start_with(params, StartOptions::default())
    }

    /// Like [`Self::start`], with what this server adds.
    ///
    /// # Errors
    /// As [`Self::start`]; [`ExecServerError::Unsupported`] where the server lacks an option that is set.
    fn start_with(
        &self,
        params: ExecParams,
        options: StartOptions,
    ) -> BoxFuture<'_, Result<StartedExecProcess>>;

    /// The processes of the session, in order of start. Cancel-safe.
    ///
    /// # Errors
    /// [`ExecServerError::Unsupported`] where the server lacks it; no connection.
    fn list(&self) -> BoxFuture<'_, Result<ListResponse>>;
}

/// What a process has told, as [`ExecProcess::output_accounting`] sums it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputAccounting {
    /// Output that is gone for good, if any.
    pub lost: Option<LostOutput>,
    /// What the process wrote, once it is closed and the server counts.
    pub totals: Option<OutputTotals>,
    /// Why it ended, once it has and the server says so.
    pub reason: Option<ExitReason>,
}

/// A process in an environment. Dropping the handle does not end the process.
///
/// All calls are cancel-safe: one that is dropped before its answer may or may not take effect.
pub trait ExecProcess: Send + Sync {
    /// The id that it was started with.
    fn process_id(&self) -> &ProcessId;

    /// Changes when there is news: the highest number noticed. It says "read again", nothing more.
    fn subscribe_wake(&self) -> watch::Receiver<u64>;

    /// Its events from the first retained one on, then live; the same sequence however late.
    fn subscribe_events(&self) -> ExecProcessEventReceiver;

    /// Like [`Self::subscribe_events`], for a receiver that must miss nothing however slowly it reads: the process
    /// waits for it. Over a connection that means that the connection is read no further while this receiver is
    /// behind, so other calls on the same environment wait too; keep receiving, or drop it.
    fn subscribe_events_paced(&self) -> ExecProcessEventReceiver;

    /// Reads retained output; waits for news up to `wait_ms` milliseconds if there is none. While a lost connection
    /// is being recovered it waits; when that failed, `failure` says so.
    ///
    /// # Errors
    /// An unknown process.
    fn read(
        &self,
        after_seq: Option<u64>,
        max_bytes: Option<usize>,
        wait_ms: Option<u64>,
    ) -> BoxFuture<'_, Result<ReadResponse>> {
        Box::pin(async move { Ok(self.read_accounted(after_seq, max_bytes, wait_ms).await?.response) })
    }

    /// [`Self::read`] with what is lost.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_accounted(
        &self,
        after_seq: Option<u64>,
        max_bytes: Option<usize>,
        wait_ms: Option<u64>,
    ) -> BoxFuture<'_, Result<AccountedRead>>;

    /// Writes input, exactly once even if the connection is lost meanwhile.
    ///
    /// # Errors
    /// When the connection is lost for good; when the server refuses for lack of room.
    fn write(&self, chunk: Vec<u8>) -> BoxFuture<'_, Result<WriteResponse>>;

    /// Sends a signal to the default target.
    ///
    /// # Errors
    /// When the connection is lost before the answer.
    fn signal(&self, signal: ProcessSignal) -> BoxFuture<'_, Result<()>>;

    /// Sends a signal; true if somebody got it.
    ///
    /// # Errors
    /// As [`Self::signal`]; a target that the process does not have.
    fn signal_to(&self, signal: ProcessSignal, target: Option<SignalTarget>) -> BoxFuture<'_, Result<bool>>;

    /// Ends the whole tree, with the default grace. May be repeated.
    ///
    /// # Errors
    /// When the connection is lost for good.
    fn terminate(&self) -> BoxFuture<'_, Result<()>>;

    /// Ends the whole tree; true if something was left to end.
    ///
    /// # Errors
    /// As [`Self::terminate`].
    fn terminate_with(&self, grace: Option<Duration>) -> BoxFuture<'_, Result<bool>>;

    /// Sets the window size of its terminal.
    ///
    /// # Errors
    /// Without a terminal; [`ExecServerError::Unsupported`] where the server lacks it.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<()>>;

    /// Ends its input after everything written before.
    ///
    /// # Errors
    /// On a terminal; [`ExecServerError::Unsupported`] where the server lacks it.
    fn close_stdin(&self) -> BoxFuture<'_, Result<WriteResponse>>;

    /// What is lost, written and said about the end, as far as it is known.
    fn output_accounting(&self) -> OutputAccounting;
}
