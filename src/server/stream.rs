//! The byte stream below a WebSocket connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::net::sockopt::{set_tcp_nodelay, set_tcp_quickack, set_tcp_user_timeout};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// An accepted connection, below HTTP and WebSocket.
#[derive(Debug)]
pub(super) struct ServerStream {
    /// Read ahead while the upgrade was parsed.
    ahead: Bytes,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(PromptTcp),
    Tls(Box<TlsStream<PromptTcp>>),
    Unix(UnixStream),
}

impl ServerStream {
    /// Small messages leave at once, and a peer that acknowledges nothing for `timeout` counts as gone, while one
    /// that only reads slowly does not.
    pub(super) fn tcp(stream: TcpStream, timeout: Duration) -> Self {
        // Without these everything still works, only later.
        let _ = set_tcp_nodelay(&stream, true);
        let _ = set_tcp_user_timeout(&stream, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        Self::over(Socket::Tcp(PromptTcp { stream, acknowledgement: Acknowledgement::Done }))
    }

    pub(super) fn unix(stream: UnixStream) -> Self {
        Self::over(Socket::Unix(stream))
    }

    fn over(socket: Socket) -> Self {
        Self { ahead: Bytes::new(), socket }
    }

    /// The same stream with bytes in front that were read already.
    pub(super) fn with_ahead(mut self, ahead: Bytes) -> Self {
        self.ahead = ahead;
        self
    }

    /// The same connection inside TLS, after the handshake. Nothing may have been read. Only TCP has TLS.
    pub(super) async fn encrypted(self, config: Arc<ServerConfig>) -> io::Result<Self> {
        match self.socket {
            Socket::Tcp(socket) => {
                let stream = Box::pin(TlsAcceptor::from(config).accept(socket)).await?;
                Ok(Self::over(Socket::Tls(Box::new(stream))))
            }
            Socket::Tls(_) | Socket::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The certificate that the peer has proved to own.
    pub(super) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        match &self.socket {
            Socket::Tls(stream) => stream.get_ref().1.peer_certificates()?.first(),
            Socket::Tcp(_) | Socket::Unix(_) => None,
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(&this.ahead[..count]);
            this.ahead.advance(count);
            return Poll::Ready(Ok(()));
        }
        match &mut this.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// TCP whose peer is not kept waiting for acknowledgements.
#[derive(Debug)]
struct PromptTcp {
    stream: TcpStream,
    acknowledgement: Acknowledgement,
}

/// Whether what was read has been acknowledged. Clients delay their second small message until the first is, and the
/// kernel would take 40 ms. An answer carries it along; where none follows, it is asked for once everything that can
/// be written has been: at the second look that finds nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acknowledgement {
    Done,
    Owed,
    Due,
}

impl AsyncRead for PromptTcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_read(cx, buffer);
        this.acknowledgement = match (this.acknowledgement, outcome.is_ready()) {
            (_, true) => Acknowledgement::Owed,
            (Acknowledgement::Owed, false) => Acknowledgement::Due,
            (Acknowledgement::Due, false) => {
                // Without it everything still works, only later.
                let _ = set_tcp_quickack(&this.stream, true);
                Acknowledgement::Done
            }
            (Acknowledgement::Done, false) => Acknowledgement::Done,
        };
        outcome
    }
}

impl AsyncWrite for PromptTcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if outcome.is_ready() {
            this.acknowledgement = Acknowledgement::Done;
        }
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
