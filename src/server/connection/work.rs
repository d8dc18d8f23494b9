//! Requests that take a while: what they name, and how they are done, in tasks of their own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::answers;
use super::calls::Call;
use super::order::{Before, Key, Place};
use crate::environment_config::EnvironmentConfig;
use crate::error_map::{IntoErrorObject, ProcessCallError};
use crate::fs::FileSystem;
use crate::path_uri::PathUri;
use crate::process::Process;
use crate::protocol::envelope::{ErrorObject, RequestId};
use crate::protocol::process::{ProcessId, StartParams, WriteResponse, WriteStatus};
use crate::session::{ConnectionId, ReadRequest, Session, Started, read_now, wait_for_news};

/// How long a start waits for the file changes sent before it.
const FILES_BEFORE_START: Duration = Duration::from_secs(1);
/// An answer above this size is encoded where blocking is allowed.
const LARGE_ANSWER: u64 = 256 << 10;

/// An answer that is ready to go out.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) text: String,
    /// Held until the text has been handed to the transport, where answers can be large.
    _room: Option<OwnedSemaphorePermit>,
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self { text, _room: None }
    }
}

/// A finished request.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) reply: Reply,
    pub(super) kind: DoneKind,
}

/// What the connection has to see to when a request is finished.
#[derive(Debug)]
pub(super) enum DoneKind {
    /// It took a place among the running ones.
    Work(Place),
    /// It took a place in its lanes, but none among the running ones.
    Control(Place),
    /// It waited, without a place.
    Wait,
    /// A start; its events may go out once the reply is queued.
    Start { id: ProcessId, place: Place, started: Option<Started> },
}

/// What requests work with.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    pub(super) files: Arc<FileSystem>,
    pub(super) config: Arc<EnvironmentConfig>,
    /// Answers that may be large, at a time.
    pub(super) large: Arc<Semaphore>,
}

/// What a file call names, and whether it changes files. `None` for other calls.
pub(super) fn file_keys(call: &Call) -> Option<(Vec<Key>, bool)> {
    let path = |uri: &PathUri| Key::Path(uri.as_str().trim_end_matches('/').to_owned());
    let handle = |id: &String| Key::Handle(id.clone());
    Some(match call {
        Call::FsReadFile(params) => (vec![path(&params.path)], false),
        Call::FsWriteFile(params) => (vec![path(&params.path)], true),
        Call::FsOpen(params) => (vec![path(&params.path), handle(&params.handle_id)], true),
        Call::FsReadBlock(params) => (vec![handle(&params.handle_id)], false),
        Call::FsWriteBlock(params) => (vec![handle(&params.handle_id)], true),
        Call::FsClose(params) => (vec![handle(&params.handle_id)], false),
        Call::FsCreateDirectory(params) => (vec![path(&params.path)], true),
        Call::FsGetMetadata(params) => (vec![path(&params.path)], false),
        Call::FsCanonicalize(params) => (vec![path(&params.path)], false),
        Call::FsReadDirectory(params) => (vec![path(&params.path)], false),
        Call::FsWalk(params) => (vec![path(&params.path)], false),
        Call::FsRemove(params) => (vec![path(&params.path)], true),
        Call::FsCopy(params) => (vec![path(&params.source_path), path(&params.destination_path)], true),
        Call::FsRename(params) => (vec![path(&params.source_path), path(&params.destination_path)], true),
        Call::FsSetPermissions(params) => (vec![path(&params.path)], true),
        Call::FsCreateSymlink(params) => (vec![path(&params.path)], true),
        _ => return None,
    })
}

/// Runs the work of a request. Should it panic, the request is answered all the same and its place given back.
async fn guarded<T>(id: &RequestId, work: impl Future<Output = (Reply, Option<T>)>) -> (Reply, Option<T>) {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(_) => (answers::failure(id, &interrupted()).into(), None),
    }
}

/// Does a call on files or settings.
pub(super) async fn files(
    id: RequestId,
    call: Call,
    tools: Tools,
    before: Before,
    place: Place,
    takes_place: bool,
) -> Done {
    before.done().await;
    let work = async { (on_files(&id, call, tools).await, None::<()>) };
    let (reply, _) = guarded(&id, work).await;
    Done { reply, kind: if takes_place { DoneKind::Work(place) } else { DoneKind::Control(place) } }
}

async fn on_files(id: &RequestId, call: Call, tools: Tools) -> Reply {
    let files = &tools.files;
    match call {
        Call::FsReadFile(params) => {
            let room = Arc::clone(&tools.large).acquire_owned().await.ok();
            let outcome = files.read_file(params).await;
            Reply { text: encode_blocking(id, outcome).await, _room: room }
        }
        Call::FsWalk(params) => encode_blocking(id, files.walk(params).await).await.into(),
        Call::FsReadDirectory(params) => encode_blocking(id, files.read_directory(params).await).await.into(),
        Call::FsReadBlock(params) => encode_blocking(id, files.read_block(params).await).await.into(),
        Call::FsWriteFile(params) => encode(id, files.write_file(params).await),
        Call::FsOpen(params) => encode(id, files.open(params).await),
        Call::FsWriteBlock(params) => encode(id, files.write_block(params).await),
        Call::FsClose(params) => encode(id, files.close(params).await),
        Call::FsCreateDirectory(params) => encode(id, files.create_directory(params).await),
        Call::FsGetMetadata(params) => encode(id, files.get_metadata(params).await),
        Call::FsCanonicalize(params) => encode(id, files.canonicalize(params).await),
        Call::FsRemove(params) => encode(id, files.remove(params).await),
        Call::FsCopy(params) => encode(id, files.copy(params).await),
        Call::FsRename(params) => encode(id, files.rename(params).await),
        Call::FsSetPermissions(params) => encode(id, files.set_permissions(params).await),
        Call::FsCreateSymlink(params) => encode(id, files.create_symlink(params).await),
        Call::ConfigRead(params) => {
            let config = Arc::clone(&tools.config);
            match spawn_blocking(move || config.read(&params)).await {
                Ok(outcome) => encode(id, outcome),
                Err(_) => Reply::from(answers::failure(id, &interrupted())),
            }
        }
        other => {
            tracing::error!(method = other.method(), "a call reached the wrong hands");
            Reply::from(answers::failure(id, &interrupted()))
        }
    }
}

fn encode<R: serde::Serialize, E: IntoErrorObject>(id: &RequestId, outcome: Result<R, E>) -> Reply {
    answers::answer(id, outcome.map_err(IntoErrorObject::into_error_object)).into()
}

async fn encode_blocking<R, E>(id: &RequestId, outcome: Result<R, E>) -> String
where
    R: serde::Serialize + Send + 'static,
    E: IntoErrorObject,
{
    match outcome {
        Ok(result) => {
            let owned = id.clone();
            let encoding = spawn_blocking(move || answers::success(&owned, &result));
            encoding.await.unwrap_or_else(|_| answers::failure(id, &interrupted()))
        }
        Err(error) => answers::failure(id, &error.into_error_object()),
    }
}

fn interrupted() -> ErrorObject {
    ErrorObject::new(crate::protocol::code::INTERNAL, "the server could not finish the request")
}

/// Starts a process, after the file changes sent before.
pub(super) async fn start(
    id: RequestId,
    params: StartParams,
    session: Arc<Session>,
    origin: ConnectionId,
    before: Before,
    place: Place,
) -> Done {
    let _ = tokio::time::timeout(FILES_BEFORE_START, before.done()).await;
    let process_id = params.exec.process_id.clone();
    let work = async {
        match session.start(params, origin).await {
            Ok(started) => (answers::success(&id, &started.result).into(), Some(started)),
            Err(error) => (answers::failure(&id, &error.into_error_object()).into(), None),
        }
    };
    let (reply, started) = guarded(&id, work).await;
    Done { reply, kind: DoneKind::Start { id: process_id, place, started } }
}

/// Reads output that is not in memory, or waits for news.
pub(super) async fn read(
    id: RequestId,
    process: Arc<Process>,
    request: ReadRequest,
    wait: Duration,
    large: Arc<Semaphore>,
) -> Done {
    // The wait holds no room for the answer that may come of it.
    if !wait.is_zero() {
        wait_for_news(&process, request.after, wait).await;
    }
    let room = large.acquire_owned().await.ok();
    let outcome = read_now(&process, request).await;
    let size: u64 = outcome.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
    let text = if size > LARGE_ANSWER {
        let failed = answers::failure(&id, &interrupted());
        spawn_blocking(move || answers::read(&id, &outcome)).await.unwrap_or(failed)
    } else {
        answers::read(&id, &outcome)
    };
    Done { reply: Reply { text, _room: room }, kind: DoneKind::Wait }
}

/// Waits until a write has found room.
pub(super) async fn write(
    id: RequestId,
    answer: tokio::sync::oneshot::Receiver<WriteStatus>,
    place: Place,
) -> Done {
    let status = answer.await.unwrap_or(WriteStatus::StdinClosed);
    Done { reply: answers::success(&id, &WriteResponse { status }).into(), kind: DoneKind::Work(place) }
}

/// The answer to a write that was refused.
pub(super) fn stdin_full(id: ProcessId) -> ErrorObject {
    ProcessCallError::StdinFull(id).into_error_object()
}
