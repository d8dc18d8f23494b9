//! A connection to a destination, for one request after the other.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::{BUFFER, HEAD_BYTES, HEADERS};
use crate::network::proxy::gate::Route;
use crate::network::proxy::upstream::Via;

/// How long a connection may take to be done with the last request.
const SETTLING: Duration = Duration::from_secs(1);

/// See the module's description. Dropped, it is cut.
#[derive(Debug)]
pub(super) struct Line {
    sender: SendRequest<Incoming>,
    end: LineEnd,
    _driver: AbortOnDropHandle<hyper::Result<()>>,
}

/// What is at the other end of a line.
#[derive(Debug, PartialEq, Eq)]
enum LineEnd {
    /// What was dialled.
    Address(SocketAddr),
    /// An upstream proxy.
    Upstream(Via),
    /// What only this request may reach so: another network, or something behind a tunnel.
    Own,
}

impl Line {
    /// A line to what was dialled for a route, or to an upstream proxy.
    pub(super) async fn new(stream: TcpStream, via: Option<Via>) -> io::Result<Self> {
        let end = match via {
            None => LineEnd::Address(stream.peer_addr()?),
            Some(via) => LineEnd::Upstream(via),
        };
        Self::to(end, stream).await
    }

    /// A line for one request.
    pub(super) async fn own(stream: TcpStream) -> io::Result<Self> {
        Self::to(LineEnd::Own, stream).await
    }

    async fn to(end: LineEnd, stream: TcpStream) -> io::Result<Self> {
        let mut builder = Builder::new();
        builder
            .preserve_header_case(true)
            .max_buf_size(BUFFER)
            .max_header_size(HEAD_BYTES)
            .max_headers(HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let driver = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
        Ok(Self { sender, end, _driver: driver })
    }

    /// Whether this is a connection to where a request may go now, and still good.
    pub(super) async fn is_for(&mut self, route: &Route, via: Option<&Via>) -> bool {
        let leads_there = match (&self.end, via) {
            (LineEnd::Address(address), None) => route.addresses.contains(address),
            (LineEnd::Upstream(known), Some(via)) => known == via,
            _ => false,
        };
        leads_there && matches!(tokio::time::timeout(SETTLING, self.sender.ready()).await, Ok(Ok(())))
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// The connection has failed; with the request, if nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, (io::Error, Option<Request<Incoming>>)> {
        let sent = self.sender.try_send_request(request).await;
        sent.map_err(|mut error| {
            let request = error.take_message();
            (io::Error::other(error.into_error()), request)
        })
    }
}
