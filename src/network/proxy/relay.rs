//! Carries bytes between two connections, in both directions until both have ended.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use hyper::rt::{Read, Write};
use hyper::upgrade::Upgraded;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What a direction carries at a time.
const BUFFER: usize = 64 << 10;

/// One side of a tunnel.
#[derive(Debug)]
pub(super) struct End {
    stream: TcpStream,
    /// What has been read of it already.
    early: Bytes,
}

impl From<TcpStream> for End {
    fn from(stream: TcpStream) -> Self {
        Self { stream, early: Bytes::new() }
    }
}

impl End {
    /// A connection of which something has been read already.
    pub(super) fn new(stream: TcpStream, early: Bytes) -> Self {
        Self { stream, early }
    }

    /// This side's own address.
    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The connection, if nothing has been read of it yet.
    ///
    /// # Errors
    /// Whoever is there has spoken unasked.
    pub(super) fn into_fresh(self) -> io::Result<TcpStream> {
        let is_fresh = self.early.is_empty();
        if is_fresh { Ok(self.stream) } else { Err(io::Error::other("it speaks before it is asked")) }
    }

    /// What is left of a connection behind the end of HTTP on it.
    pub(super) fn of<T>(upgraded: Upgraded, stream: impl FnOnce(T) -> TcpStream) -> io::Result<Self>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let parts = upgraded.downcast::<T>();
        let parts = parts.map_err(|_| io::Error::other("a tunnel is not made of what it was made of"))?;
        Ok(Self { stream: stream(parts.io), early: parts.read_buf })
    }
}

/// Relays until both sides have ended, or one has failed.
pub(super) async fn relay(mut one: End, mut other: End) -> io::Result<()> {
    let (one_reads, one_writes) = one.stream.split();
    let (other_reads, other_writes) = other.stream.split();
    let mut one = tokio::io::join(one.early.chain(one_reads), one_writes);
    let mut other = tokio::io::join(other.early.chain(other_reads), other_writes);
    tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER, BUFFER).await.map(drop)
}
