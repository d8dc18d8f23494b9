//! The HTTP listener: plain requests, forwarded one by one, and tunnels by CONNECT.
//!
//! `hyper` speaks on both sides. What it would forgive in the framing of a request, [`framing`] sees. Every request is
//! decided on its own; when one has made a tunnel of the connection, HTTP on it is over and the bytes are relayed.

mod connect;
mod exchange;
mod forward;
pub(crate) mod framing;
mod headers;
mod line;
mod refusal;
pub(crate) mod target;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use self::exchange::Exchange;
use self::framing::Watched;
use super::visit::Visit;

/// How long the head of a request may take, and how long a connection may wait for one.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// The largest head.
const HEAD_BYTES: usize = 64 << 10;
/// What is read of a body at a time, if so much is there.
const BUFFER: usize = 256 << 10;
/// The most headers of a message.
const HEADERS: usize = 128;

/// Serves one connection until it ends.
pub(super) async fn serve(stream: TcpStream, visit: Visit) {
    let (watched, framing) = Watched::new(stream);
    let exchange = Arc::new(Exchange::new(visit, framing));
    let service = service_fn(|request| {
        let exchange = Arc::clone(&exchange);
        async move { Ok::<_, Infallible>(exchange.answer(request).await) }
    });
    let connection = builder().serve_connection(TokioIo::new(watched), service).with_upgrades();
    if let Err(error) = connection.await {
        // A peer that has gone, or that does not speak HTTP; it has been answered where that is possible.
        tracing::debug!(%error, "a connection to a proxy has failed");
        return;
    }
    if let Some(tunnel) = exchange.tunnel()
        && let Err(error) = tunnel.run().await
    {
        tracing::debug!(%error, "a tunnel through a proxy has failed");
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(BUFFER)
        .max_header_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .preserve_header_case(true)
        .auto_date_header(false);
    builder
}
