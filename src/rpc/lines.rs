//! One message per line of text, over any pair of byte streams: standard input and output, a child's pipes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use super::transport::{CloseCode, EndReason, Received, Transport};
use crate::protocol::MAX_MESSAGE_BYTES;

/// Enough waits to be written; senders wait.
const ENOUGH: usize = 256 << 10;
/// Read at a time, at least.
const READ_BYTES: usize = 16 << 10;
const KEPT_OF_OVERSIZED: usize = 64 << 10;

/// See the module's description.
pub struct Lines<R, W> {
    reader: R,
    writer: W,
    incoming: BytesMut,
    /// How much of `incoming` is known to hold no line end.
    searched: usize,
    /// The beginning of a line that is too long, while its rest is being dropped.
    oversized: Option<Bytes>,
    ended: bool,
    outgoing: BytesMut,
}

impl<R, W> Lines<R, W> {
    /// A transport over two streams.
    pub fn new(reader: R, writer: W) -> Self {
        Self {
            reader,
            writer,
            incoming: BytesMut::new(),
            searched: 0,
            oversized: None,
            ended: false,
            outgoing: BytesMut::new(),
        }
    }

    /// Where lines come from.
    pub(crate) fn reader(&self) -> &R {
        &self.reader
    }

    /// The next complete line that is no blank one.
    fn next_line(&mut self) -> Option<Received> {
        loop {
            let found = self.incoming[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = found.map(|offset| self.searched + offset) else {
                self.searched = self.incoming.len();
                self.drop_oversized();
                return None;
            };
            let mut line = self.incoming.split_to(end + 1);
            self.searched = 0;
            line.truncate(end);
            if line.len() > MAX_MESSAGE_BYTES {
                self.oversized = Some(Bytes::copy_from_slice(&line[..KEPT_OF_OVERSIZED]));
                line.advance(line.len() - KEPT_OF_OVERSIZED);
            }
            if let Some(head) = self.oversized.take() {
                return Some(Received::Oversized { head, tail: line.freeze() });
            }
            if let Some(message) = message(line) {
                return Some(message);
            }
        }
    }

    fn drop_oversized(&mut self) {
        if self.oversized.is_none() && self.incoming.len() > MAX_MESSAGE_BYTES {
            self.oversized = Some(Bytes::copy_from_slice(&self.incoming[..KEPT_OF_OVERSIZED]));
        }
        if self.oversized.is_some() && self.incoming.len() > KEPT_OF_OVERSIZED {
            let tail = BytesMut::from(&self.incoming[self.incoming.len() - KEPT_OF_OVERSIZED..]);
            self.incoming = tail;
            self.searched = self.incoming.len();
        }
    }

    /// What is left at the end of the stream: a last line needs no line end.
    fn last_line(&mut self) -> Option<Received> {
        let line = std::mem::take(&mut self.incoming);
        self.searched = 0;
        match self.oversized.take() {
            Some(head) => Some(Received::Oversized { head, tail: line.freeze() }),
            None => message(line),
        }
    }
}

fn message(mut line: BytesMut) -> Option<Received> {
    if line.last() == Some(&b'\r') {
        line.truncate(line.len() - 1);
    }
    let blank = line.iter().all(u8::is_ascii_whitespace);
    (!blank).then(|| Received::Message(line.freeze()))
}

impl<R, W> Transport for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        loop {
            if let Some(received) = self.next_line() {
                return Poll::Ready(received);
            }
            if self.ended {
                return Poll::Ready(self.last_line().unwrap_or(Received::End(EndReason::Closed)));
            }
            self.incoming.reserve(READ_BYTES);
            match ready!(poll_read_buf(Pin::new(&mut self.reader), cx, &mut self.incoming)) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) => return Poll::Ready(Received::End(error.into())),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.outgoing.len() < ENOUGH { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
    }

    fn send(&mut self, text: String) -> io::Result<()> {
        self.outgoing.reserve(text.len() + 1);
        self.outgoing.extend_from_slice(text.as_bytes());
        self.outgoing.extend_from_slice(b"\n");
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let count = ready!(Pin::new(&mut self.writer).poll_write(cx, &self.outgoing))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.advance(count);
        }
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn ping(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn has_heartbeat(&self) -> bool {
        false
    }

    fn close(&mut self, _code: CloseCode, _reason: &str) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Cursor;

    async fn received(input: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(Cursor::new(input.to_vec()), tokio::io::sink());
        let mut texts = Vec::new();
        loop {
            match poll_fn(|cx| lines.poll_receive(cx)).await {
                Received::Message(bytes) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
                Received::Oversized { head, tail } => texts.push(format!("{}+{}", head.len(), tail.len())),
                Received::Ping | Received::Pong => {}
                Received::End(_) => return texts,
            }
        }
    }

    #[tokio::test]
    async fn lines_are_messages() {
        assert_eq!(received(b"a\r\n\n   \nb\xff\nlast").await, ["a", "b\u{fffd}", "last"]);
        assert!(received(b"").await.is_empty());
    }

    #[tokio::test]
    async fn a_line_above_the_limit_is_dropped_and_the_next_one_read() {
        let mut input = vec![b'x'; MAX_MESSAGE_BYTES];
        input.push(b'\n');
        input.extend(vec![b'y'; MAX_MESSAGE_BYTES + 1]);
        input.extend_from_slice(b"\nnext\n");
        let texts = received(&input).await;
        assert_eq!((texts[0].len(), texts.len()), (MAX_MESSAGE_BYTES, 3));
        assert_eq!(texts[2], "next");
    }
}
