//! Requests that take a while: what they name, and how they are done, in tasks of their own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::READ_FILE_LIMIT;
use super::answers;
use super::bodies::Seat;
use super::calls::Call;
use super::order::{Before, Key, Place};
use super::parts::{self, Announce};
use super::ticket::Ticket;
use crate::discovery::{Discovery, MAX_INVENTORY_BYTES, MAX_ROOTS_BYTES};
use crate::environment_config::EnvironmentConfig;
use crate::error_map::{IntoErrorObject, ProcessCallError};
use crate::fs::{FileSystem, MAX_BLOCK_BYTES, MAX_WATCHED_PATHS, Read, Watch};
use crate::http_request::{HttpClient, HttpError, Room, StreamedBody, Taken};
use crate::memory::{Held, MemoryBudget, with_base64};
use crate::path_uri::PathUri;
use crate::process::Process;
use crate::protocol::envelope::ErrorObject;
use crate::protocol::fs::{ReadFileParams, WatchMissingParams, WatchMissingResponse};
use crate::protocol::http::{RequestParams, Response};
use crate::protocol::process::{ProcessId, StartParams, WriteResponse, WriteStatus};
use crate::session::{
    ConnectionId, MAX_ANSWER_OUTPUT, ReadRequest, Session, Started, read_now, wait_for_news,
};

/// How long a start waits for the file changes sent before it.
const FILES_BEFORE_START: Duration = Duration::from_secs(1);
/// An answer above this size is encoded where blocking is allowed.
const LARGE_ANSWER: u64 = 256 << 10;
/// What is reserved for any file, since some do not say their size.
const SMALL_FILE: u64 = 64 << 10;
/// Larger files are answered in parts.
const WHOLE_FILE: u64 = 1 << 20;

/// An answer that is ready to go out.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) text: String,
    /// Held until the text has been handed to the transport, where answers can be large.
    _room: Option<OwnedSemaphorePermit>,
    /// Held until the transport has written it: the memory of the server that it takes.
    pub(super) memory: Option<Held>,
    /// As the first, of the room for HTTP bodies.
    _body: Option<Taken>,
}

impl Reply {
    /// Counts the text, as long as it waits.
    pub(super) fn count(&mut self, memory: &Arc<MemoryBudget>) {
        match &mut self.memory {
            Some(held) => held.resize(self.text.len()),
            None => self.memory = Some(memory.hold(self.text.len())),
        }
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self { text, _room: None, memory: None, _body: None }
    }
}

/// What an entry of a listing weighs in an answer, roughly.
const ENTRY_BYTES: usize = 100;

/// What a plugin may weigh in an answer.
const PLUGIN_BYTES: usize = 1 << 20;

/// A finished request.
#[derive(Debug)]
pub(super) struct Done {
    /// `None` where it has gone out in parts.
    pub(super) reply: Option<Reply>,
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
    /// A start; its events may go out once the reply is queued. One that may wait for a shell's start-up files takes no
    /// place among the running ones.
    Start { id: ProcessId, place: Place, takes_place: bool, started: Option<Started> },
    /// A watch; it may ring once the reply is queued.
    Watch { place: Place, watch: Option<Box<Watch>> },
    /// An HTTP request, without a place; its body may go out once the reply is queued.
    Http(Option<Stream>),
}

/// A stream that was asked for, and what it is made of if there is a response.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: String,
    pub(super) body: Option<Box<(StreamedBody, Seat)>>,
}

/// What requests work with.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) files: Arc<FileSystem>,
    pub(super) config: Arc<EnvironmentConfig>,
    pub(super) discovery: Arc<Discovery>,
    /// Discoveries at a time, their answers included.
    pub(super) discoveries: Arc<Semaphore>,
    /// Answers that may be large, at a time.
    pub(super) large: Arc<Semaphore>,
    pub(super) http: Arc<HttpClient>,
    /// Where answers in parts go.
    pub(super) announce: Announce,
    /// What all buffers of the server share.
    pub(super) memory: Arc<MemoryBudget>,
    /// Bodies that are large and taken whole, at a time.
    pub(super) large_bodies: Room,
}

/// What a file call names, and whether starts wait for it: it changes files, or wants to hear of changes. `None` for
/// other calls.
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
        Call::FsWatchMissing(params) => {
            let missing = params.missing.iter().take(MAX_WATCHED_PATHS);
            (missing.chain(&params.present).map(path).collect(), true)
        }
        Call::FsRename(params) => (vec![path(&params.source_path), path(&params.destination_path)], true),
        Call::FsSetPermissions(params) => (vec![path(&params.path)], true),
        Call::FsCreateSymlink(params) => (vec![path(&params.path)], true),
        _ => return None,
    })
}

/// Whether a call takes a place among those that run. A close may have to wait for an open that is still queued, and must
/// not take a place from it. Discoveries take a while, and wait for each other.
pub(super) fn takes_place(call: &Call) -> bool {
    !matches!(call, Call::FsClose(_) | Call::RootsDiscover(_) | Call::Discover(_))
}

/// Runs the work of a request. Should it panic, the request is answered all the same and its place given back.
async fn guarded<T>(
    ticket: &Ticket,
    work: impl Future<Output = (Option<Reply>, Option<T>)>,
) -> (Option<Reply>, Option<T>) {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(_) => (Some(answers::failure(ticket, &interrupted()).into()), None),
    }
}

/// The answer to a call on files that can be given without waiting for anything.
pub(super) fn at_once(ticket: &Ticket, call: &Call, tools: &Tools) -> Option<Reply> {
    let Call::FsGetMetadata(params) = call else { return None };
    tools.files.get_metadata_at_once(params).map(|outcome| encode(ticket, outcome))
}

/// Does a call on files or settings.
pub(super) async fn files(
    ticket: Ticket,
    call: Call,
    tools: Arc<Tools>,
    before: Before,
    place: Place,
    takes_place: bool,
) -> Done {
    before.done().await;
    let work = async {
        let reply = match call {
            Call::FsReadFile(params) => read_file(&ticket, params, &tools).await,
            call => Some(on_files(&ticket, call, tools).await),
        };
        (reply, None::<()>)
    };
    let (reply, _) = guarded(&ticket, work).await;
    Done { reply, kind: if takes_place { DoneKind::Work(place) } else { DoneKind::Control(place) } }
}

/// Begins to watch missing paths.
pub(super) async fn watch_missing(
    ticket: Ticket,
    params: WatchMissingParams,
    tools: Arc<Tools>,
    before: Before,
    place: Place,
) -> Done {
    before.done().await;
    let work = async {
        let watch = tools.files.watch_missing(params).await;
        (Some(watching(&ticket, watch.is_some())), watch.map(Box::new))
    };
    let (reply, watch) = guarded(&ticket, work).await;
    Done { reply, kind: DoneKind::Watch { place, watch } }
}

/// The answer to a request for a watch.
pub(super) fn watching(ticket: &Ticket, watching: bool) -> Reply {
    answers::success(ticket, &WatchMissingResponse { watching }).into()
}

async fn on_files(ticket: &Ticket, call: Call, tools: Arc<Tools>) -> Reply {
    let files = &tools.files;
    match call {
        Call::FsWalk(params) => {
            let outcome = files.walk(params).await;
            let size = outcome.as_ref().map_or(0, |tree| tree.entries.len() * ENTRY_BYTES);
            encode_sized(ticket, outcome, size, answers::success).await.into()
        }
        Call::FsReadDirectory(params) => {
            let outcome = files.read_directory(params).await;
            let size = outcome.as_ref().map_or(0, |listed| listed.entries.len() * ENTRY_BYTES);
            encode_sized(ticket, outcome, size, answers::success).await.into()
        }
        Call::FsReadBlock(params) => {
            let memory = for_answer(params.len.min(MAX_BLOCK_BYTES), &tools.memory).await;
            let outcome = files.read_block(params).await;
            let size = outcome.as_ref().map_or(0, |block| block.chunk.as_slice().len());
            let text = encode_sized(ticket, outcome, size, answers::block).await;
            Reply { memory, ..Reply::from(text) }
        }
        Call::FsWriteFile(params) => encode(ticket, files.write_file(params).await),
        Call::FsOpen(params) => encode(ticket, files.open(params).await),
        Call::FsWriteBlock(params) => encode(ticket, files.write_block(params).await),
        Call::FsClose(params) => encode(ticket, files.close(params).await),
        Call::FsCreateDirectory(params) => encode(ticket, files.create_directory(params).await),
        Call::FsGetMetadata(params) => encode(ticket, files.get_metadata(params).await),
        Call::FsCanonicalize(params) => encode(ticket, files.canonicalize(params).await),
        Call::FsRemove(params) => encode(ticket, files.remove(params).await),
        Call::FsCopy(params) => encode(ticket, files.copy(params).await),
        Call::FsRename(params) => encode(ticket, files.rename(params).await),
        Call::FsSetPermissions(params) => encode(ticket, files.set_permissions(params).await),
        Call::FsCreateSymlink(params) => encode(ticket, files.create_symlink(params).await),
        Call::ConfigRead(params) => {
            let config = Arc::clone(&tools.config);
            match spawn_blocking(move || config.read(&params)).await {
                Ok(outcome) => encode(ticket, outcome),
                Err(_) => Reply::from(answers::failure(ticket, &interrupted())),
            }
        }
        Call::RootsDiscover(params) => {
            let room = Arc::clone(&tools.discoveries).acquire_owned().await.ok();
            let memory = reserve(2 * MAX_ROOTS_BYTES, &tools.memory).await;
            let (outcome, size) = match tools.discovery.roots(params).await {
                Ok((found, size)) => (Ok(found), size),
                Err(error) => (Err(error), 0),
            };
            let text = encode_sized(ticket, outcome, size, answers::success).await;
            Reply { _room: room, memory, ..Reply::from(text) }
        }
        Call::Discover(request) => {
            let room = Arc::clone(&tools.discoveries).acquire_owned().await.ok();
            let memory = reserve(2 * MAX_INVENTORY_BYTES, &tools.memory).await;
            let outcome = tools.discovery.inventory(request).await;
            let size = outcome.as_ref().map_or(0, |found| found.plugins.len() * PLUGIN_BYTES);
            let text = encode_sized(ticket, outcome, size, answers::success).await;
            Reply { _room: room, memory, ..Reply::from(text) }
        }
        other => {
            tracing::error!(method = other.method(), "a call reached the wrong hands");
            Reply::from(answers::failure(ticket, &interrupted()))
        }
    }
}

/// Reserves what an answer with so many bytes and their base64 takes, where memory is limited.
async fn for_answer(bytes: u64, memory: &Arc<MemoryBudget>) -> Option<Held> {
    reserve(with_base64(bytes), memory).await
}

/// Reserves what a page of output takes.
async fn for_page(process: &Process, request: ReadRequest, memory: &Arc<MemoryBudget>) -> Option<Held> {
    memory.limit()?;
    let there = process.log().retained_after(request.after);
    for_answer(request.max_bytes.unwrap_or(MAX_ANSWER_OUTPUT).min(there), memory).await
}

async fn reserve(bytes: usize, memory: &Arc<MemoryBudget>) -> Option<Held> {
    memory.limit()?;
    Some(memory.reserve(bytes).await)
}

/// Answers with a file: a small one whole, from one visit to the disk, a large one in parts. `None` when it has gone out.
/// Memory is reserved before it is used; nobody waits for some while holding some.
async fn read_file(ticket: &Ticket, params: ReadFileParams, tools: &Tools) -> Option<Reply> {
    let place = Arc::clone(&tools.large).acquire_owned().await.ok();
    // Small reservations do not wait, so that no file need be visited twice for them.
    let mut room = if tools.memory.limit().is_some() { SMALL_FILE } else { WHOLE_FILE };
    let mut memory = for_answer(room, &tools.memory).await;
    let mut read = tools.files.read_file_into(params, room).await;
    let outcome = loop {
        let file = match read {
            Ok(Read::Whole(content)) => break Ok(content),
            Ok(Read::Larger(file)) => file,
            Err(error) => break Err(error),
        };
        drop(memory.take());
        if file.size() > WHOLE_FILE {
            let _memory = for_answer(parts::HELD_BYTES, &tools.memory).await;
            return parts::answer(ticket, file, &tools.announce).await.map(Reply::from);
        }
        // One that does not say its size, or has grown, may be as large as any.
        room = if file.size() > room { file.size() } else { READ_FILE_LIMIT };
        memory = for_answer(room, &tools.memory).await;
        read = file.read(room).await;
    };
    let size = outcome.as_ref().map_or(0, |content| content.data_base64.as_slice().len());
    let text = encode_sized(ticket, outcome, size, answers::file).await;
    Some(Reply { _room: place, memory, ..Reply::from(text) })
}

fn encode<R: serde::Serialize, E: IntoErrorObject>(ticket: &Ticket, outcome: Result<R, E>) -> Reply {
    answers::answer(ticket, outcome.map_err(IntoErrorObject::into_error_object)).into()
}

/// Encodes an answer of about this size, a large one on a blocking thread.
async fn encode_sized<R, E>(
    ticket: &Ticket,
    outcome: Result<R, E>,
    size: usize,
    encode: fn(&Ticket, &R) -> String,
) -> String
where
    R: serde::Serialize + Send + 'static,
    E: IntoErrorObject,
{
    match outcome {
        Ok(result) if size as u64 <= LARGE_ANSWER => encode(ticket, &result),
        Ok(result) => {
            let owned = ticket.clone();
            let encoding = spawn_blocking(move || encode(&owned, &result));
            encoding.await.unwrap_or_else(|_| answers::failure(ticket, &interrupted()))
        }
        Err(error) => answers::failure(ticket, &error.into_error_object()),
    }
}

fn interrupted() -> ErrorObject {
    ErrorObject::new(crate::protocol::code::INTERNAL, "the server could not finish the request")
}

/// Starts a process, after the file changes sent before.
pub(super) async fn start(
    ticket: Ticket,
    params: StartParams,
    session: Arc<Session>,
    origin: ConnectionId,
    before: Before,
    place: Place,
) -> Done {
    let _ = tokio::time::timeout(FILES_BEFORE_START, before.done()).await;
    let process_id = params.exec.process_id.clone();
    let takes_place = start_takes_place(&params);
    let work = async {
        match session.start(params, origin).await {
            Ok(started) => {
                ticket.started(&started.result);
                (Some(answers::success(&ticket, &started.result).into()), Some(started))
            }
            Err(error) => (Some(answers::failure(&ticket, &error.into_error_object()).into()), None),
        }
    };
    let (reply, started) = guarded(&ticket, work).await;
    Done { reply, kind: DoneKind::Start { id: process_id, place, takes_place, started } }
}

/// Whether a start is done in moments. Others must not keep the places from everybody else.
pub(super) fn start_takes_place(params: &StartParams) -> bool {
    params.exec.shell_snapshot.is_none()
}

/// Reads output that is not in memory, or waits for news.
pub(super) async fn read(
    ticket: Ticket,
    process: Arc<Process>,
    request: ReadRequest,
    wait: Duration,
    tools: Arc<Tools>,
) -> Done {
    // The wait holds no room for the answer that may come of it.
    if !wait.is_zero() {
        wait_for_news(&process, request.after, wait).await;
    }
    let room = Arc::clone(&tools.large).acquire_owned().await.ok();
    let memory = for_page(&process, request, &tools.memory).await;
    let outcome = read_now(&process, request).await;
    let size: u64 = outcome.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
    let text = if size > LARGE_ANSWER {
        let owned = ticket.clone();
        let encoding = spawn_blocking(move || answers::read(&owned, &outcome)).await;
        encoding.unwrap_or_else(|_| answers::failure(&ticket, &interrupted()))
    } else {
        answers::read(&ticket, &outcome)
    };
    Done { reply: Some(Reply { text, _room: room, memory, _body: None }), kind: DoneKind::Wait }
}

/// Waits until a write has found room.
pub(super) async fn write(
    ticket: Ticket,
    answer: tokio::sync::oneshot::Receiver<WriteStatus>,
    place: Place,
) -> Done {
    let status = answer.await.unwrap_or(WriteStatus::StdinClosed);
    let reply = answers::success(&ticket, &WriteResponse { status }).into();
    Done { reply: Some(reply), kind: DoneKind::Work(place) }
}

/// Makes an HTTP request, and takes the body whole unless it is to be streamed.
pub(super) async fn http(ticket: Ticket, params: RequestParams, tools: Arc<Tools>, seat: Seat) -> Done {
    let stream = params.stream_response.then(|| params.request_id.clone());
    let work = async {
        if stream.is_some() {
            match tools.http.send(params).await {
                Ok(response) => {
                    let head = Response {
                        status: response.status,
                        headers: response.headers,
                        body: Vec::new().into(),
                    };
                    (Some(answers::success(&ticket, &head).into()), Some(response.body))
                }
                Err(error) => (Some(answers::failure(&ticket, &error.into_error_object()).into()), None),
            }
        } else {
            (Some(whole_response(&ticket, params, &tools).await), None)
        }
    };
    let (reply, body) = guarded(&ticket, work).await;
    let stream = stream.map(|id| Stream { id, body: body.map(|body| Box::new((body, seat))) });
    Done { reply, kind: DoneKind::Http(stream) }
}

async fn whole_response(ticket: &Ticket, params: RequestParams, tools: &Tools) -> Reply {
    let fetched = async {
        let response = tools.http.send(params).await?;
        let limit = tools.http.settings().max_buffered;
        let (body, room) = response.body.whole(limit, &tools.large_bodies).await?;
        Ok::<_, HttpError>((response.status, response.headers, body, room))
    };
    match fetched.await {
        Ok((status, headers, body, room)) => {
            let size = body.len();
            let response = Ok::<_, HttpError>(Response { status, headers, body: body.into() });
            let text = encode_sized(ticket, response, size, answers::success).await;
            Reply { _body: room, ..Reply::from(text) }
        }
        Err(error) => answers::failure(ticket, &error.into_error_object()).into(),
    }
}

/// The answer to a write that was refused.
pub(super) fn stdin_full(id: ProcessId) -> ErrorObject {
    ProcessCallError::StdinFull(id).into_error_object()
}
