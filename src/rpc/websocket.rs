//! WebSocket as a [`Transport`], for both ends.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode as WireCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::oversize::OversizeGuard;
use super::transport::{CloseCode, EndReason, Received, Transport};
use crate::protocol::{MAX_FRAME_BYTES, MAX_MESSAGE_BYTES};

/// Fragments of a large message stay well under what peers accept.
const FRAGMENT_BYTES: usize = MAX_FRAME_BYTES / 2;
/// One buffer of this size is held per connection, and cleared for every read.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// A WebSocket connection after its upgrade.
pub struct WebSocket<S> {
    stream: WebSocketStream<OversizeGuard<S>>,
    role: Role,
    /// Messages received, those cut by the guard included.
    received: u64,
    /// The beginning of a message whose rest the guard is still dropping.
    cut: Option<(u64, Bytes)>,
    fragments: VecDeque<Frame>,
    /// The next fragment goes on with a message.
    continues: bool,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> WebSocket<S> {
    /// The server's end.
    pub async fn server(stream: S) -> Self {
        Self::new(stream, Role::Server).await
    }

    /// The client's end.
    pub async fn client(stream: S) -> Self {
        Self::new(stream, Role::Client).await
    }

    async fn new(stream: S, role: Role) -> Self {
        // Clients refuse frames above 16 MiB, so that servers cannot rely on more; the server takes any up to 64 MiB.
        let max_frame = if role == Role::Server { MAX_MESSAGE_BYTES } else { MAX_FRAME_BYTES };
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(max_frame));
        let guard = OversizeGuard::new(stream, role == Role::Server);
        let stream = WebSocketStream::from_raw_socket(guard, role, Some(config)).await;
        Self { stream, role, received: 0, cut: None, fragments: VecDeque::new(), continues: false }
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        self.stream.get_ref().get_ref()
    }

    fn message(&mut self, bytes: Bytes) -> Option<Received> {
        let number = self.received;
        self.received += 1;
        if self.stream.get_ref().cuts(number) {
            self.cut = Some((number, bytes));
            return self.finished_cut();
        }
        Some(Received::Message(bytes))
    }

    fn finished_cut(&mut self) -> Option<Received> {
        let (number, head) = self.cut.take()?;
        match self.stream.get_mut().take_tail(number) {
            Some(tail) => Some(Received::Oversized { head, tail }),
            None => {
                self.cut = Some((number, head));
                None
            }
        }
    }

    fn send_message(&mut self, message: Message) -> io::Result<()> {
        Pin::new(&mut self.stream).start_send(message).map_err(into_io)
    }

    fn poll_stream_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_ready(cx).map_err(into_io)
    }

    /// The next fragment of a message.
    fn fragment(&mut self, piece: Bytes, last: bool) -> Frame {
        let kind = if self.continues { Data::Continue } else { Data::Text };
        self.continues = !last;
        Frame::message(piece, OpCode::Data(kind), last)
    }

    /// Hands the fragments of a large message on, one at a time, so that only one is copied into the write buffer.
    fn poll_fragments(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.fragments.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_flush(cx).map_err(into_io))?;
            if let Some(frame) = self.fragments.pop_front() {
                self.send_message(Message::Frame(frame))?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for WebSocket<S> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        loop {
            let next = Pin::new(&mut self.stream).poll_next(cx);
            if let Some(oversized) = self.finished_cut() {
                // Nothing can have come in the same turn: the message before it had not ended.
                return Poll::Ready(oversized);
            }
            let received = match ready!(next) {
                Some(Ok(Message::Text(text))) => self.message(text.into()),
                Some(Ok(Message::Binary(bytes))) => self.message(bytes),
                Some(Ok(Message::Ping(_))) => Some(Received::Ping),
                Some(Ok(Message::Pong(_))) => Some(Received::Pong),
                // The answer to a close frame has been queued. A client does not wait for the end of the stream: it
                // has a session to resume.
                Some(Ok(Message::Close(_))) if self.role == Role::Client => {
                    Some(Received::End(EndReason::Closed))
                }
                Some(Ok(Message::Close(_) | Message::Frame(_))) => None,
                Some(Err(error)) => Some(Received::End(end_reason(error))),
                None => Some(Received::End(EndReason::Closed)),
            };
            if let Some(received) = received {
                return Poll::Ready(received);
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_fragments(cx))?;
        self.poll_stream_ready(cx)
    }

    fn send(&mut self, text: String) -> io::Result<()> {
        if text.len() <= FRAGMENT_BYTES {
            return self.send_message(Message::text(text));
        }
        let mut rest = Bytes::from(text);
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(FRAGMENT_BYTES));
            let fragment = self.fragment(piece, rest.is_empty());
            self.fragments.push_back(fragment);
        }
        Ok(())
    }

    fn send_part(&mut self, text: String, last: bool) -> io::Result<()> {
        let fragment = self.fragment(text.into(), last);
        self.send_message(Message::Frame(fragment))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_fragments(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx).map_err(into_io)
    }

    fn ping(&mut self) -> io::Result<()> {
        self.send_message(Message::Ping(Bytes::new()))
    }

    fn has_heartbeat(&self) -> bool {
        true
    }

    fn incoming_progress(&self) -> Option<u64> {
        self.stream.get_ref().incoming_progress()
    }

    fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()> {
        let code = match code {
            CloseCode::Normal => WireCode::Normal,
            CloseCode::GoingAway => WireCode::Away,
            CloseCode::Protocol => WireCode::Protocol,
            CloseCode::NotUtf8 => WireCode::Invalid,
            CloseCode::Policy => WireCode::Policy,
            CloseCode::TooLarge => WireCode::Size,
            CloseCode::Failed => WireCode::Error,
            CloseCode::TryAgainLater => WireCode::Again,
        };
        self.fragments.clear();
        self.send_message(Message::Close(Some(CloseFrame { code, reason: reason.to_owned().into() })))
    }
}

fn end_reason(error: Error) -> EndReason {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => EndReason::Closed,
        Error::Io(error) => EndReason::Io(error),
        Error::Utf8(_) => EndReason::NotUtf8,
        Error::Capacity(CapacityError::MessageTooLong { .. }) => EndReason::TooLarge,
        other => EndReason::Framing(other.to_string()),
    }
}

fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::NotConnected.into(),
        other => io::Error::other(other),
    }
}
