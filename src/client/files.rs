//! Files on a server.
//!
//! Calls that only read are sent again, a few times, when a connection was lost before the answer; others are not, since
//! the server may have done them. An open file lives as long as its connection, so it never outlives one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::CallError;
use super::gate::{admit_sandbox, require};
use super::pending::Priority;
use super::remote::RemoteBackend;
use super::session::{Live, Session};
use crate::backend::{BoxFuture, ExecServerError, FileCall, FileCalls, OpenFile, Result};
use crate::path_uri::PathUri;
use crate::protocol::Method;
use crate::protocol::fs::{
    Canonicalize, Close, CloseParams, Copy, CreateDirectory, CreateSymlink, GetMetadata, Open, OpenMode,
    OpenParams, ReadBlock, ReadBlockParams, ReadBlockResponse, ReadDirectory, ReadFile, Remove, Rename,
    SetPermissions, Walk, WriteBlock, WriteBlockParams, WriteFile,
};
use crate::protocol::sandbox::SandboxContext;

/// The files of a server.
#[derive(Clone)]
pub struct RemoteFileSystem {
    backend: RemoteBackend,
    reach: Reach,
}

/// What a call does where there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It connects, or waits for the recovery.
    Reconnect,
    /// It fails.
    Passive,
}

/// Whether the server may get a call twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It changes nothing, so it may.
    Reads,
    /// It may not.
    Changes,
}

/// A call that only reads is sent so often at most: an answer that breaks its connection would do so for ever.
const ATTEMPTS: u32 = 5;

/// A capability that a call needs, and what for.
type Need = Option<&'static str>;

impl RemoteFileSystem {
    /// Files whose calls connect and wait while a connection is being recovered.
    #[must_use]
    pub fn new(backend: RemoteBackend) -> Self {
        Self { backend, reach: Reach::Reconnect }
    }

    /// Files whose calls fail at once without a connection: for code that only looks.
    #[must_use]
    pub fn without_reconnect(backend: RemoteBackend) -> Self {
        Self { backend, reach: Reach::Passive }
    }

    async fn live(&self) -> Result<(Arc<Session>, Arc<Live>)> {
        if self.reach == Reach::Passive {
            return self.backend.connected();
        }
        let session = self.backend.session().await?;
        let live = session.live().await?;
        Ok((session, live))
    }

    /// Whether a call without an answer is sent again, after so many attempts that were.
    fn again(&self, error: &CallError, effect: Effect, sent: &mut u32) -> bool {
        match error {
            CallError::NotSent => true,
            CallError::Unanswered => {
                *sent += 1;
                effect == Effect::Reads && self.reach == Reach::Reconnect && *sent < ATTEMPTS
            }
            CallError::Failed(_) => false,
        }
    }

    async fn call<M: Method>(
        &self,
        params: M::Params,
        effect: Effect,
        sandbox: Option<SandboxContext>,
        file_operations: Need,
    ) -> Result<M::Output> {
        let mut sent = 0;
        loop {
            let (_session, live) = self.live().await?;
            let outcome = match admit(&live, sandbox.as_ref(), file_operations).await {
                Ok(()) => live.connection.call::<M>(&params, Priority::Regular).await,
                Err(refused) => Err(refused),
            };
            match outcome {
                Ok(output) => return Ok(output),
                Err(error) if self.again(&error, effect, &mut sent) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn open(
        &self,
        path: PathUri,
        mode: OpenMode,
        sandbox: Option<SandboxContext>,
    ) -> Result<Arc<dyn OpenFile>> {
        let effect = if mode == OpenMode::Read { Effect::Reads } else { Effect::Changes };
        let mut sent = 0;
        loop {
            let (session, live) = self.live().await?;
            let params = OpenParams {
                handle_id: session.next_number().to_string(),
                path: path.clone(),
                mode,
                sandbox: sandbox.clone(),
            };
            match RemoteFile::open(session, live, &params).await {
                Ok(file) => return Ok(Arc::new(file)),
                Err(error) if self.again(&error, effect, &mut sent) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Refuses what the server does not announce.
async fn admit(
    live: &Live,
    sandbox: Option<&SandboxContext>,
    file_operations: Need,
) -> Result<(), CallError> {
    if sandbox.is_none() && file_operations.is_none() {
        return Ok(());
    }
    let capabilities = live.info().await?.capabilities;
    admit_sandbox(sandbox, &capabilities)
        .and_then(|()| match file_operations {
            Some(wanted) => require(capabilities.file_operations, wanted, "fileOperations"),
            None => Ok(()),
        })
        .map_err(CallError::Failed)
}

async fn admit_stream(live: &Live, params: &OpenParams) -> Result<(), CallError> {
    let confined = params.sandbox.as_ref().is_some_and(|sandbox| !sandbox.is_unconfined());
    admit(live, params.sandbox.as_ref(), None).await?;
    if !confined && params.mode == OpenMode::Read {
        return Ok(());
    }
    let capabilities = live.info().await?.capabilities;
    let refuse = |wanted: &str| {
        Err(CallError::Failed(ExecServerError::Unsupported(format!("exec-server does not support {wanted}"))))
    };
    if confined && !capabilities.sandboxed_file_streaming {
        return refuse("sandboxed file streaming");
    }
    if params.mode == OpenMode::Replace && !capabilities.file_write_streaming {
        return refuse("writable file streams");
    }
    Ok(())
}

macro_rules! calls {
    ($($call:ident: $method:ty, $effect:expr, $need:expr;)*) => {
        $(
            fn $call(&self, params: <$method as Method>::Params) -> FileCall<'_, $method> {
                Box::pin(async move {
                    let need: fn(&<$method as Method>::Params) -> Need = $need;
                    let (sandbox, need) = (params.sandbox.clone(), need(&params));
                    Ok(self.call::<$method>(params, $effect, sandbox, need).await?)
                })
            }
        )*
    };
}

impl FileCalls for RemoteFileSystem {
    calls! {
        call_read_file: ReadFile, Effect::Reads, |_| None;
        call_get_metadata: GetMetadata, Effect::Reads, |_| None;
        call_canonicalize: Canonicalize, Effect::Reads, |_| None;
        call_read_directory: ReadDirectory, Effect::Reads, |params| params.links.then_some("listing links");
        call_walk: Walk, Effect::Reads, |_| None;
        call_write_file: WriteFile, Effect::Changes, |params| params.atomic.map(|_| "a choice of atomic writes");
        call_create_directory: CreateDirectory, Effect::Changes, |_| None;
        call_remove: Remove, Effect::Changes, |_| None;
        call_copy: Copy, Effect::Changes, |_| None;
        call_rename: Rename, Effect::Changes, |_| Some("renaming files");
        call_set_permissions: SetPermissions, Effect::Changes, |_| Some("setting permissions");
        call_create_symlink: CreateSymlink, Effect::Changes, |_| Some("creating links");
    }

    fn call_open(
        &self,
        path: PathUri,
        mode: OpenMode,
        sandbox: Option<SandboxContext>,
    ) -> BoxFuture<'_, io::Result<Arc<dyn OpenFile>>> {
        Box::pin(async move { Ok(self.open(path, mode, sandbox).await?) })
    }
}

/// A file that is open on a server. It keeps the session, and is bound to one of its connections.
struct RemoteFile {
    session: Arc<Session>,
    live: Arc<Live>,
    handle_id: String,
    closed: AtomicBool,
}

impl RemoteFile {
    /// Opens it. If the future is dropped on the way, what was opened is closed.
    async fn open(session: Arc<Session>, live: Arc<Live>, params: &OpenParams) -> Result<Self, CallError> {
        admit_stream(&live, params).await?;
        let handle_id = params.handle_id.clone();
        let file = Self { session, live, handle_id, closed: AtomicBool::new(false) };
        match file.call::<Open>(params, Priority::Regular).await {
            Ok(_) => Ok(file),
            Err(error) => {
                // An answer that cannot be read may have been that it is open.
                let may_be_open = matches!(error, CallError::Failed(ExecServerError::Protocol(_)));
                file.closed.store(!may_be_open, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    async fn call<M: Method>(&self, params: &M::Params, priority: Priority) -> Result<M::Output, CallError> {
        self.live.connection.call::<M>(params, priority).await
    }
}

impl OpenFile for RemoteFile {
    fn read_block(&self, offset: u64, len: u64) -> BoxFuture<'_, io::Result<ReadBlockResponse>> {
        let params = ReadBlockParams { handle_id: self.handle_id.clone(), offset, len };
        Box::pin(async move { self.call::<ReadBlock>(&params, Priority::Regular).await.map_err(io_error) })
    }

    fn write_block(&self, offset: u64, chunk: Vec<u8>) -> BoxFuture<'_, io::Result<()>> {
        let params = WriteBlockParams { handle_id: self.handle_id.clone(), offset, chunk: chunk.into() };
        Box::pin(async move {
            let written = self.call::<WriteBlock>(&params, Priority::Regular).await;
            written.map(drop).map_err(io_error)
        })
    }

    fn close(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let params = CloseParams { handle_id: self.handle_id.clone() };
            self.call::<Close>(&params, Priority::CleanUp).await.map_err(io_error)?;
            self.closed.store(true, Ordering::Relaxed);
            Ok(())
        })
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Relaxed) || self.live.connection.has_ended() {
            return;
        }
        let (live, handle_id) = (Arc::clone(&self.live), self.handle_id.clone());
        self.session.runtime.spawn(async move {
            let params = CloseParams { handle_id };
            if let Err(error) = live.connection.call::<Close>(&params, Priority::CleanUp).await {
                tracing::debug!(?error, "a file handle could not be closed; it ends with its connection");
            }
        });
    }
}

fn io_error(error: CallError) -> io::Error {
    ExecServerError::from(error).into()
}
