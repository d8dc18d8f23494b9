//! The requests of one connection, one after the other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::framing::{Framing, Watched};
use super::line::Line;
use super::refusal::{Body, Refusal};
use crate::network::proxy::relay::{End, relay};
use crate::network::proxy::visit::Visit;

/// What lasts from one request of a connection to the next.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) visit: Visit,
    framing: Arc<Framing>,
    requests: AtomicU64,
    line: Mutex<Option<Line>>,
    tunnel: Mutex<Option<Tunnel>>,
}

/// What becomes of the connection when HTTP on it is over.
#[derive(Debug)]
pub(super) struct Tunnel {
    near: OnUpgrade,
    far: Far,
}

/// The other side of a tunnel.
#[derive(Debug)]
pub(super) enum Far {
    /// A connection.
    End(End),
    /// A connection on which HTTP is not over yet. The line is what ends it.
    Upgrade(OnUpgrade, Line),
}

impl Exchange {
    pub(super) fn new(visit: Visit, framing: Arc<Framing>) -> Self {
        Self { visit, framing, requests: AtomicU64::new(0), line: Mutex::default(), tunnel: Mutex::default() }
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let is_tunnel = request.method() == Method::CONNECT;
        let answered = if self.framing.is_ambiguous(number) {
            Err(Refusal::Invalid("a request has either Content-Length or Transfer-Encoding, not both"))
        } else if is_tunnel {
            self.connect(request).await
        } else {
            self.forward(request).await
        };
        let is_invalid = matches!(answered, Err(Refusal::Invalid(_)));
        let is_over = answered
            .as_ref()
            .is_ok_and(|response| is_tunnel || response.status() == StatusCode::SWITCHING_PROTOCOLS);
        let mut response = answered.unwrap_or_else(|refusal| refusal.response());
        if is_invalid || (self.framing.is_opaque() && !is_over) {
            // What was sent behind it may be part of it, or was for somebody else.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The tunnel that the last request has made of the connection.
    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        locked(&self.tunnel).take()
    }

    pub(super) fn set_tunnel(&self, near: OnUpgrade, far: Far) {
        *locked(&self.tunnel) = Some(Tunnel { near, far });
    }

    /// The connection that the last request has used, if it can be used again.
    pub(super) fn take_line(&self) -> Option<Line> {
        locked(&self.line).take()
    }

    /// Keeps a connection for the next request, and alive for the rest of this one.
    pub(super) fn keep_line(&self, line: Line) {
        *locked(&self.line) = Some(line);
    }
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tunnel {
    /// Relays until both sides have ended.
    pub(super) async fn run(self) -> io::Result<()> {
        let near = self.near.await.map_err(io::Error::other)?;
        let near = End::of::<TokioIo<Watched>>(near, |stream| stream.into_inner().into_inner())?;
        let far = match self.far {
            Far::End(end) => end,
            Far::Upgrade(upgrade, _line) => {
                let upgraded = upgrade.await.map_err(io::Error::other)?;
                End::of::<TokioIo<TcpStream>>(upgraded, TokioIo::into_inner)?
            }
        };
        relay(near, far).await
    }
}
