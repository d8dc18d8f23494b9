//! Opens a transport over a socket: connect, then the upgrade to WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::handshake::client::{Request, generate_key};
use tokio_tungstenite::tungstenite::http::StatusCode;

use super::address::{Address, Headers, Target};
use crate::backend::{ExecServerError, Result};
use crate::outbound::{ConnectError, HttpClientFactory, Stream};
use crate::rpc::Transport;
use crate::rpc::websocket::WebSocket;

/// Connects within the limit, which covers name resolution, connecting and the upgrade.
///
/// # Errors
/// [`ExecServerError::ConnectTimeout`] and [`ExecServerError::Connect`].
pub(super) async fn dial(
    address: &Address,
    headers: &Headers,
    outbound: &HttpClientFactory,
    limit: Duration,
) -> Result<Box<dyn Transport>> {
    match timeout(limit, open(address, headers, outbound)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ExecServerError::ConnectTimeout { url: address.to_string(), limit }),
    }
}

async fn open(
    address: &Address,
    headers: &Headers,
    outbound: &HttpClientFactory,
) -> Result<Box<dyn Transport>> {
    let stream = connect(&address.target, outbound).await.map_err(|error| no_stream(&error, address))?;
    let upgraded = async { upgrade(stream, request(address, headers)?).await }.await;
    upgraded.map_err(|error| no_upgrade(error, address))
}

async fn connect(target: &Target, outbound: &HttpClientFactory) -> Result<Stream, ConnectError> {
    match target {
        Target::Network(endpoint) => outbound.connect(endpoint).await,
        Target::Unix(path) => {
            let permit = outbound.permit("unix", "")?;
            Ok(permit.guard(UnixStream::connect(path).await?))
        }
    }
}

fn request(address: &Address, headers: &Headers) -> Result<Request, Error> {
    let mut request = Request::builder()
        .uri(format!("ws://{}{}", address.host, address.path))
        .header("Host", &address.host)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", generate_key());
    if let Some(value) = &headers.authorization {
        request = request.header("authorization", value);
    }
    if let Some(value) = &headers.request_id {
        request = request.header("x-request-id", value);
    }
    Ok(request.body(())?)
}

async fn upgrade(stream: Stream, request: Request) -> Result<Box<dyn Transport>, Error> {
    let recorded = Recorded { stream, seen: BytesMut::new(), replaying: false };
    let (upgraded, _) = tokio_tungstenite::client_async(request, recorded).await?;
    let stream = upgraded.into_inner().replay_after_head();
    Ok(Box::new(WebSocket::client(stream).await))
}

fn no_stream(error: &ConnectError, address: &Address) -> ExecServerError {
    let status = match error {
        ConnectError::Proxy { status, .. } => *status,
        ConnectError::Policy(_) | ConnectError::Io(_) | ConnectError::Tls(_) => None,
    };
    ExecServerError::Connect { url: address.to_string(), reason: error.to_string(), status }
}

fn no_upgrade(error: Error, address: &Address) -> ExecServerError {
    let (reason, status) = match error {
        Error::Http(response) => {
            let status = response.status();
            (refusal(status), Some(status.as_u16()))
        }
        Error::Io(error) => (error.to_string(), None),
        other => (format!("it does not speak WebSocket: {other}"), None),
    };
    ExecServerError::Connect { url: address.to_string(), reason, status }
}

fn refusal(status: StatusCode) -> String {
    match status {
        StatusCode::UNAUTHORIZED => "the server wants another bearer token (401)".to_owned(),
        StatusCode::FORBIDDEN => "the server forbids it (403)".to_owned(),
        StatusCode::NOT_FOUND => "there is no exec-server at this path (404)".to_owned(),
        other => format!("the server answered {other}"),
    }
}

/// Remembers what the upgrade read, so that a message right behind the answer's head is not lost with its buffer.
struct Recorded<S> {
    stream: S,
    seen: BytesMut,
    replaying: bool,
}

impl<S> Recorded<S> {
    fn replay_after_head(mut self) -> Self {
        let end = self.seen.windows(4).position(|four| four == b"\r\n\r\n");
        self.seen.advance(end.map_or(self.seen.len(), |end| end + 4));
        self.replaying = true;
        self
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replaying && !self.seen.is_empty() {
            let count = self.seen.len().min(buffer.remaining());
            buffer.put_slice(&self.seen.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if !self.replaying {
            self.seen.extend_from_slice(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
