//! The HTTP requests of a connection, and the pieces of streamed bodies on their way to its client.
//!
//! Each body has a task that reads on only when there is room for the piece that it has. So a client that does not
//! read stops the servers that send, and what waits here stays bounded however many streams there are.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::answers;
use super::work::Stream;
use crate::http_request::{HttpError, StreamedBody};
use crate::memory::{Held, MemoryBudget};
use crate::protocol::http::MAX_DELTA_BYTES;

/// Requests in progress, streams included.
const MAX_REQUESTS: usize = 1024;
/// Bytes of frames that may wait to be written, of all streams.
const WAITING_BYTES: usize = 2 << 20;
/// What a frame is besides its piece, roughly.
const FRAME_OVERHEAD: usize = 256;

/// A place among the requests in progress.
#[derive(Debug)]
pub(super) struct Seat {
    _permit: OwnedSemaphorePermit,
}

/// A notification that is ready to go out.
#[derive(Debug)]
struct Frame {
    text: String,
    /// The stream that ends with it.
    ends: Option<String>,
    _room: OwnedSemaphorePermit,
    _memory: Held,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Bodies {
    seats: Arc<Semaphore>,
    /// Requests that wait for their response.
    unanswered: usize,
    /// Streams whose last frame has not gone out.
    active: HashSet<String>,
    tasks: JoinSet<()>,
    room: Arc<Semaphore>,
    memory: Arc<MemoryBudget>,
    /// Bounded by the room.
    sender: mpsc::UnboundedSender<Frame>,
    frames: mpsc::UnboundedReceiver<Frame>,
    next: Option<Frame>,
}

impl Bodies {
    pub(super) fn new(memory: Arc<MemoryBudget>) -> Self {
        let (sender, frames) = mpsc::unbounded_channel();
        Self {
            seats: Arc::new(Semaphore::new(MAX_REQUESTS)),
            unanswered: 0,
            active: HashSet::new(),
            tasks: JoinSet::new(),
            room: Arc::new(Semaphore::new(WAITING_BYTES)),
            memory,
            sender,
            frames,
            next: None,
        }
    }

    /// Lets a request in, and takes the name of its stream, if it has one.
    pub(super) fn admit(&mut self, stream: Option<&String>) -> Result<Seat, HttpError> {
        if let Some(id) = stream.filter(|id| self.active.contains(*id)) {
            return Err(HttpError::Invalid(format!("streamResponse requestId `{id}` is already active")));
        }
        let permit = Arc::clone(&self.seats).try_acquire_owned();
        let permit = permit.map_err(|_| HttpError::TooMany(MAX_REQUESTS))?;
        self.active.extend(stream.cloned());
        self.unanswered += 1;
        Ok(Seat { _permit: permit })
    }

    /// The answer to a request has been queued: its body follows, if it is streamed.
    pub(super) fn answered(&mut self, stream: Option<Stream>) {
        self.unanswered -= 1;
        match stream {
            Some(Stream { id, body: Some(body) }) => self.start(id, *body),
            Some(Stream { id, body: None }) => {
                self.active.remove(&id);
            }
            None => {}
        }
    }

    fn start(&mut self, stream: String, (body, seat): (StreamedBody, Seat)) {
        while self.tasks.try_join_next().is_some() {}
        let (room, memory, sender) = (Arc::clone(&self.room), Arc::clone(&self.memory), self.sender.clone());
        let sink = Sink { stream, seq: 0, room, memory, sender };
        self.tasks.spawn(async move {
            pump(body, sink).await;
            drop(seat);
        });
    }

    /// Whether there is a frame to send.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> bool {
        if self.next.is_none()
            && let Poll::Ready(frame) = self.frames.poll_recv(cx)
        {
            self.next = frame;
        }
        self.next.is_some()
    }

    /// Takes the frame that [`Self::poll_frame`] has found.
    pub(super) fn next_frame(&mut self) -> Option<String> {
        let frame = self.next.take()?;
        if let Some(stream) = frame.ends {
            self.active.remove(&stream);
        }
        Some(frame.text)
    }

    /// No request waits for its response.
    pub(super) fn is_answered(&self) -> bool {
        self.unanswered == 0
    }

    /// No stream is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Ends all streams, without further frames.
    pub(super) fn abort(&mut self) {
        self.tasks.abort_all();
    }
}

/// Where the pieces of one stream go.
struct Sink {
    stream: String,
    seq: u64,
    room: Arc<Semaphore>,
    memory: Arc<MemoryBudget>,
    sender: mpsc::UnboundedSender<Frame>,
}

async fn pump(mut body: StreamedBody, mut sink: Sink) {
    let error = loop {
        match body.next().await {
            Ok(Some(piece)) => {
                for part in piece.chunks(MAX_DELTA_BYTES) {
                    sink.send(part, None).await;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    // The connection to the server is not needed while the last frame waits.
    drop(body);
    sink.send(&[], Some(error)).await;
}

impl Sink {
    /// Sends a piece, or the end with its error.
    async fn send(&mut self, piece: &[u8], end: Option<Option<String>>) {
        let size = base64_simd::STANDARD.encoded_length(piece.len()) + FRAME_OVERHEAD;
        let permits = u32::try_from(size.min(WAITING_BYTES)).unwrap_or(u32::MAX);
        // The connection is over where there is no room or nobody to receive.
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(permits).await else { return };
        let memory = self.memory.reserve(size).await;
        self.seq += 1;
        let text = answers::body_delta(&self.stream, self.seq, piece, end.as_ref().map(Option::as_deref));
        let ends = end.map(|_| std::mem::take(&mut self.stream));
        let _ = self.sender.send(Frame { text, ends, _room: room, _memory: memory });
    }
}
