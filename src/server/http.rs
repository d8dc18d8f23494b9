//! The HTTP side: who may come in, what is served, and the upgrade to WebSocket.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::task::TaskTracker;

use super::auth::{AuthRefusal, Authenticator};
use super::connection::{self, Kind, Shared};
use super::host_check;
use super::stream::ServerStream;
use super::tls::Tls;
use crate::config::HostName;
use crate::rpc::websocket::WebSocket;
use crate::sandbox::origin::Inside;

/// What the head of a request may take; more is answered with 431.
const HEAD_BYTES: usize = 64 << 10;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix => f.write_str("a unix socket"),
        }
    }
}

/// What one listener serves with.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) shared: Arc<Shared>,
    pub(super) authenticator: Arc<Authenticator>,
    /// Without, it is served in clear.
    pub(super) tls: Option<Arc<Tls>>,
    /// Reached from this machine only, so that a browser here could be made to reach it.
    pub(super) is_loopback: bool,
    pub(super) allowed_hosts: Vec<HostName>,
    pub(super) head_timeout: Duration,
    /// One permit for each connection that has been upgraded.
    pub(super) seats: Arc<Semaphore>,
    pub(super) max_connections: usize,
    /// Upgraded connections, so that the end of the server can wait for them.
    pub(super) connections: TaskTracker,
}

#[derive(Clone)]
struct Visit {
    site: Arc<Site>,
    peer: Peer,
    /// Why it is let do nothing.
    refusal: Option<Arc<Inside>>,
    /// It has proved to own a certificate that is good here.
    is_certified: bool,
}

impl Visit {
    /// Whether it may do what not everybody may.
    fn check(&self, headers: &HeaderMap) -> Result<(), AuthRefusal> {
        let demands_certificate = self.site.tls.as_ref().is_some_and(|tls| tls.demands_certificate());
        if demands_certificate && !self.is_certified {
            return Err(AuthRefusal::NoCertificate);
        }
        self.site.authenticator.check(headers)
    }
}

/// Serves one accepted socket: plain requests, or the upgrade and then the whole connection. One that comes from inside
/// a sandbox gets nothing but refusals.
pub(super) async fn serve(stream: ServerStream, peer: Peer, site: Arc<Site>, refusal: Option<Inside>) {
    let head_timeout = site.head_timeout;
    let shutdown = site.shared.shutdown.clone();
    let is_certified = stream.peer_certificate().is_some();
    let visit = Visit { site, peer, refusal: refusal.map(Arc::new), is_certified };
    let router = Router::new()
        .route("/", get(upgrade))
        .route("/readyz", get(async || StatusCode::OK))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(middleware::from_fn_with_state(visit.clone(), admit))
        .with_state(visit);
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    tokio::select! {
        outcome = http => {
            if let Err(error) = outcome {
                tracing::debug!(%peer, %error, "an HTTP exchange has ended");
            }
        }
        () = shutdown.cancelled() => {}
    }
}

/// Turns sandboxed programs and browsers away before anything else is looked at.
async fn admit(State(visit): State<Visit>, request: Request, next: Next) -> Response {
    if let Some(refusal) = &visit.refusal {
        tracing::warn!(peer = %visit.peer, %refusal, "a connection was refused");
        return (StatusCode::FORBIDDEN, refusal.to_string()).into_response();
    }
    if request.headers().contains_key(header::ORIGIN) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if visit.site.is_loopback && !host_check::is_allowed(request.headers(), &visit.site.allowed_hosts) {
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}

async fn upgrade(State(visit): State<Visit>, mut request: Request) -> Response {
    let key = match handshake_key(request.version(), request.headers()) {
        Ok(key) => key,
        Err(refusal) => return refusal.into_response(),
    };
    let site = &visit.site;
    if let Err(refusal) = visit.check(request.headers()) {
        let delay = site.authenticator.refused(&visit.peer, refusal);
        tokio::time::sleep(delay).await;
        return (AuthRefusal::STATUS, refusal.to_string()).into_response();
    }
    let Ok(seat) = Arc::clone(&site.seats).try_acquire_owned() else {
        let message =
            format!("the limit of {} connections (server.max_connections) is reached", site.max_connections);
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return (StatusCode::UPGRADE_REQUIRED, "this connection cannot be upgraded").into_response();
    };
    let shared = Arc::clone(&site.shared);
    let peer = visit.peer;
    site.connections.spawn(async move {
        match upgrade.await {
            Ok(upgraded) => websocket(upgraded, shared, seat).await,
            Err(error) => tracing::debug!(%peer, %error, "an upgrade was not completed"),
        }
    });
    let headers = [
        (header::CONNECTION, "Upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(&key)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

async fn websocket(upgraded: Upgraded, shared: Arc<Shared>, seat: OwnedSemaphorePermit) {
    let Ok(parts) = upgraded.downcast::<TokioIo<ServerStream>>() else {
        tracing::error!("an upgraded connection is not one of ours");
        return;
    };
    let stream = parts.io.into_inner().with_ahead(parts.read_buf);
    let transport = WebSocket::server(stream).await;
    Box::pin(connection::serve(transport, shared, Kind::Socket)).await;
    drop(seat);
}

/// The `Sec-WebSocket-Key` of a request that is a WebSocket handshake.
fn handshake_key(version: Version, headers: &HeaderMap) -> Result<Vec<u8>, (StatusCode, &'static str)> {
    if !lists(headers, header::CONNECTION, "upgrade") {
        return Err((StatusCode::BAD_REQUEST, "Connection header did not include 'upgrade'"));
    }
    if !lists(headers, header::UPGRADE, "websocket") {
        return Err((StatusCode::BAD_REQUEST, "Upgrade header did not include 'websocket'"));
    }
    if version < Version::HTTP_11 {
        return Err((StatusCode::UPGRADE_REQUIRED, "WebSocket needs HTTP/1.1"));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err((StatusCode::BAD_REQUEST, "Sec-WebSocket-Version header must be '13'"));
    }
    match headers.get(header::SEC_WEBSOCKET_KEY) {
        Some(key) => Ok(key.as_bytes().to_vec()),
        None => Err((StatusCode::BAD_REQUEST, "Sec-WebSocket-Key header is missing")),
    }
}

/// Whether a header that is a list holds a word, without case.
fn lists(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(word))
}
