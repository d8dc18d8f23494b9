//! Sees where each request on a connection begins, and whether its framing can be read in two ways.
//!
//! A request with a length and with chunks is read differently by different programs, so that one request may become two.
//! `hyper` chooses the chunks and forgets the length; here it is refused. Should this reading of the stream ever differ
//! from that of `hyper`, nothing but the refusal is lost: `hyper` forwards what it has read itself.

#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{HEAD_BYTES, HEADERS};

/// What is known of the requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// Which request, counted from 1, can be read in two ways. 0: none.
    ambiguous: AtomicU64,
    /// Nothing is known of what follows: it may be no HTTP.
    opaque: AtomicBool,
}

impl Framing {
    /// Whether the request of this number can be read in two ways.
    pub(super) fn is_ambiguous(&self, number: u64) -> bool {
        self.ambiguous.load(Ordering::Relaxed) == number
    }

    /// Whether the requests behind the latest one are not looked at.
    pub(super) fn is_opaque(&self) -> bool {
        self.opaque.load(Ordering::Relaxed)
    }
}

/// A connection whose requests are looked at as they are read.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    reader: RequestReader,
    framing: Arc<Framing>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream) -> (Self, Arc<Framing>) {
        let framing = Arc::new(Framing::default());
        (Self { stream, reader: RequestReader::default(), framing: Arc::clone(&framing) }, framing)
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let Self { reader, framing, .. } = &mut *self;
        reader.read(&buf.filled()[before..]);
        framing.ambiguous.store(reader.ambiguous(), Ordering::Relaxed);
        framing.opaque.store(matches!(reader.place, Place::Opaque), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Reads a stream of requests, in whatever pieces it comes.
#[derive(Debug, Default)]
pub(crate) struct RequestReader {
    place: Place,
    /// Heads that were read.
    heads: u64,
    ambiguous: u64,
}

/// Where in a request the reader is.
#[derive(Debug)]
enum Place {
    /// In a head, of which this has been read.
    Head(Vec<u8>),
    /// In a body, of which this is missing.
    Body(u64),
    /// In the line with the size of a chunk: the size so far, and whether that is all of it.
    ChunkSize(u64, bool),
    /// In a chunk, of which this is missing.
    Chunk(u64),
    /// Between a chunk and the end of its line.
    ChunkEnd,
    /// Behind the last chunk, in a line that has so many letters.
    Trailer(usize),
    /// Whatever follows is not looked at.
    Opaque,
}

impl Default for Place {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

impl RequestReader {
    /// Which request can be read in two ways, counted from 1. 0: none.
    pub(crate) fn ambiguous(&self) -> u64 {
        self.ambiguous
    }

    /// Reads what comes next.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (place, used) = match &mut self.place {
                Place::Opaque => return,
                Place::Head(head) => match end_of_head(head, bytes) {
                    None => return,
                    Some(used) => {
                        let head = std::mem::take(head);
                        (self.behind_head(&head), used)
                    }
                },
                place => step(place, bytes),
            };
            self.place = place;
            bytes = &bytes[used..];
        }
    }

    fn behind_head(&mut self, head: &[u8]) -> Place {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        if !matches!(request.parse(head), Ok(httparse::Status::Complete(_))) {
            return Place::Opaque;
        }
        self.heads += 1;
        let has = |name: &str| request.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
        let (is_chunked, length) = (has("transfer-encoding"), length(request.headers));
        if is_chunked && length.is_some() {
            self.ambiguous = self.heads;
            return Place::Opaque;
        }
        match length {
            // What follows is for somebody else, if this is agreed to.
            _ if request.method == Some("CONNECT") || has("upgrade") => Place::Opaque,
            _ if is_chunked => Place::ChunkSize(0, false),
            Some(Some(length @ 1..)) => Place::Body(length),
            Some(None) => Place::Opaque,
            _ => Place::default(),
        }
    }
}

/// The length that a head gives, if it gives one; nothing within where it is none.
fn length(headers: &[httparse::Header<'_>]) -> Option<Option<u64>> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    Some(std::str::from_utf8(header.value).ok().and_then(|text| text.trim().parse().ok()))
}

/// Adds to a head the lines that belong to it, and nothing behind them. How much of `bytes` that is, if the head has ended
/// or is too large to be one.
fn end_of_head(head: &mut Vec<u8>, bytes: &[u8]) -> Option<usize> {
    let mut used = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        used += line.len();
        if head.len() + line.len() > HEAD_BYTES {
            return Some(used);
        }
        // Empty lines before a request are none of it.
        let is_blank = head.is_empty() && line.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if !is_blank {
            head.extend_from_slice(line);
        }
        if head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n") {
            return Some(used);
        }
    }
    None
}

/// One step through a body.
fn step(place: &Place, bytes: &[u8]) -> (Place, usize) {
    let byte = bytes[0];
    match *place {
        Place::Body(left) => match skip(left, bytes) {
            (0, used) => (Place::default(), used),
            (left, used) => (Place::Body(left), used),
        },
        Place::Chunk(left) => match skip(left, bytes) {
            (0, used) => (Place::ChunkEnd, used),
            (left, used) => (Place::Chunk(left), used),
        },
        Place::ChunkSize(0, _) if byte == b'\n' => (Place::Trailer(0), 1),
        Place::ChunkSize(size, _) if byte == b'\n' => (Place::Chunk(size), 1),
        Place::ChunkSize(size, false) => (with_digit(size, byte), 1),
        Place::ChunkSize(size, true) => (Place::ChunkSize(size, true), 1),
        Place::ChunkEnd if byte == b'\n' => (Place::ChunkSize(0, false), 1),
        Place::ChunkEnd => (Place::ChunkEnd, 1),
        Place::Trailer(0) if byte == b'\n' => (Place::default(), 1),
        Place::Trailer(_) if byte == b'\n' => (Place::Trailer(0), 1),
        Place::Trailer(letters) if byte == b'\r' => (Place::Trailer(letters), 1),
        Place::Trailer(letters) => (Place::Trailer(letters.saturating_add(1)), 1),
        Place::Head(_) | Place::Opaque => (Place::Opaque, bytes.len()),
    }
}

fn skip(left: u64, bytes: &[u8]) -> (u64, usize) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (left - used as u64, used)
}

fn with_digit(size: u64, byte: u8) -> Place {
    match char::from(byte).to_digit(16) {
        None => Place::ChunkSize(size, true),
        Some(digit) => match size.checked_mul(16) {
            Some(size) => Place::ChunkSize(size | u64::from(digit), false),
            None => Place::Opaque,
        },
    }
}
