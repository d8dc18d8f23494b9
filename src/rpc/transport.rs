//! What a transport is.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

/// What came in.
#[derive(Debug)]
pub enum Received {
    /// One message, which need not be JSON nor UTF-8.
    Message(Bytes),
    /// A message above the limit, dropped; its beginning and its end, for finding the id in it.
    Oversized {
        /// The first bytes.
        head: Bytes,
        /// The last bytes, as far as they are not in `head`.
        tail: Bytes,
    },
    /// The peer answered a heartbeat.
    Pong,
    /// The peer sent a heartbeat; it is answered by itself.
    Ping,
    /// Nothing more will come.
    End(EndReason),
}

/// Why a transport ended.
#[derive(Debug, thiserror::Error)]
pub enum EndReason {
    /// The peer closed it, or its stream ended between messages.
    #[error("closed by the peer")]
    Closed,
    /// The peer broke the framing.
    #[error("the peer broke the framing: {0}")]
    Framing(String),
    /// A text message was not UTF-8.
    #[error("a text message is not UTF-8")]
    NotUtf8,
    /// A message was above the limit and nothing of it can be used.
    #[error("a message is larger than 64 MiB")]
    TooLarge,
    /// The stream failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// How a connection is closed, in the terms of RFC 6455; transports without close frames ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseCode {
    /// 1000.
    Normal,
    /// 1001: the server ends.
    GoingAway,
    /// 1002.
    Protocol,
    /// 1007.
    NotUtf8,
    /// 1008.
    Policy,
    /// 1009.
    TooLarge,
    /// 1011: an answer that was half written cannot be finished.
    Failed,
    /// 1013: too slow; come again.
    TryAgainLater,
}

/// A connection that moves whole messages.
///
/// All methods are for one task, which polls receiving and flushing in the same turn.
pub trait Transport: Send + Unpin + 'static {
    /// The next thing that came in. After [`Received::End`] it must not be called again.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received>;

    /// Whether [`Self::send`] may be called: little enough is waiting to be written.
    ///
    /// # Errors
    /// When the connection is broken.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes a message for writing. Call after `poll_ready` succeeded.
    ///
    /// # Errors
    /// When the connection is broken.
    fn send(&mut self, text: String) -> io::Result<()>;

    /// Takes a part of a message for writing, which goes on with the next part unless this is the last. Nothing else is
    /// sent in between, but heartbeats and the goodbye. Call after `poll_ready` succeeded.
    ///
    /// # Errors
    /// When the connection is broken.
    fn send_part(&mut self, text: String, last: bool) -> io::Result<()>;

    /// Writes what was taken.
    ///
    /// # Errors
    /// When the connection is broken.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends a heartbeat that the peer answers.
    ///
    /// # Errors
    /// When the connection is broken.
    fn ping(&mut self) -> io::Result<()>;

    /// Whether heartbeats exist here.
    fn has_heartbeat(&self) -> bool;

    /// How much of a message that is still coming in has come, over the life of the connection; `None` between
    /// messages, where that is known. A peer cannot answer a heartbeat in the middle of a frame.
    fn incoming_progress(&self) -> Option<u64> {
        None
    }

    /// Says goodbye; flush afterwards. Nothing can be sent after it.
    ///
    /// # Errors
    /// When the connection is broken.
    fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()>;
}
