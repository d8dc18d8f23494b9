//! The HTTP side: who may come in, and what is served.

mod operations;
mod upgrade;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::OwnedSemaphorePermit;

use super::auth::{self, AuthRefusal, Authenticator};
use super::host_check;
use super::metrics::Refusal;
use super::site::Site;
use super::stream::ServerStream;
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

#[derive(Clone)]
struct Visit {
    site: Arc<Site>,
    peer: Peer,
    /// Why it is let do nothing.
    refusal: Option<Arc<Inside>>,
    /// The label of the certificate that it has proved to own.
    certificate: Option<Arc<str>>,
    place: Arc<Place>,
}

/// A place among the sockets of the server, until it is given back.
pub(super) struct Place(Mutex<Option<OwnedSemaphorePermit>>);

impl Place {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Mutex::new(Some(permit)))
    }

    fn give_back(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Visit {
    /// By which token it may do what not everybody may; otherwise the answer, late.
    async fn authenticate(
        &self,
        authenticator: Arc<Authenticator>,
        headers: &HeaderMap,
    ) -> Result<Option<String>, Response> {
        let refusal = match self.check(&authenticator, headers).await {
            Ok(token) => return Ok(token),
            Err(refusal) => refusal,
        };
        let common = &self.site.common;
        common.refused(self.peer, Refusal::Authentication, &refusal);
        let delay = authenticator.refused(&self.peer, refusal);
        // Whoever fails keeps no place from others while it waits, and those who wait are bounded themselves.
        self.place.give_back();
        if let Ok(_waiting) = common.held_back.try_acquire() {
            tokio::time::sleep(delay).await;
        }
        let headers = [(header::CONNECTION, "close")];
        Err((AuthRefusal::STATUS, headers, refusal.to_string()).into_response())
    }

    async fn check(
        &self,
        authenticator: &Arc<Authenticator>,
        headers: &HeaderMap,
    ) -> Result<Option<String>, AuthRefusal> {
        let demands_certificate =
            self.site.access().tls.as_ref().is_some_and(|tls| tls.demands_certificate());
        if demands_certificate && self.certificate.is_none() {
            return Err(AuthRefusal::NoCertificate);
        }
        if authenticator.is_open() {
            return Ok(self.certificate.as_deref().map(str::to_owned));
        }
        let (authenticator, headers) = (Arc::clone(authenticator), headers.clone());
        let checked = tokio::task::spawn_blocking(move || authenticator.check(&headers)).await;
        checked.unwrap_or(Err(AuthRefusal::WrongToken))
    }

    fn router(self) -> Router {
        let mut router = Router::new()
            .route("/healthz", get(async || StatusCode::OK))
            .route("/readyz", get(operations::ready))
            .fallback(async || StatusCode::NOT_FOUND);
        if self.site.upgrades {
            router = router.route("/", get(upgrade::upgrade));
        }
        if self.site.serves_metrics {
            router = router.route("/metrics", get(operations::metrics));
        }
        router.layer(middleware::from_fn_with_state(self.clone(), admit)).with_state(self)
    }
}

/// Serves one accepted socket: plain requests, or the upgrade and then the whole connection. One that comes from inside
/// a sandbox gets nothing but refusals.
pub(super) async fn serve(
    stream: ServerStream,
    peer: Peer,
    site: Arc<Site>,
    refusal: Option<Inside>,
    place: Place,
) {
    let head_timeout = site.common.head_timeout;
    let closed = site.common.closed.clone();
    let certificate = stream.peer_certificate().map(|certificate| auth::label(certificate).into());
    let (refusal, place) = (refusal.map(Arc::new), Arc::new(place));
    let visit = Visit { site, peer, refusal, certificate, place };
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(visit.router()))
        .with_upgrades();
    tokio::select! {
        outcome = http => {
            if let Err(error) = outcome {
                tracing::debug!(%peer, %error, "an HTTP exchange has ended");
            }
        }
        () = closed.cancelled() => {}
    }
}

/// Turns sandboxed programs and browsers away before anything else is looked at.
async fn admit(State(visit): State<Visit>, request: Request, next: Next) -> Response {
    if let Some(refusal) = &visit.refusal {
        tracing::warn!(peer = %visit.peer, %refusal, "a connection was refused");
        visit.site.common.refused(visit.peer, Refusal::Sandbox, refusal);
        return (StatusCode::FORBIDDEN, refusal.to_string()).into_response();
    }
    if request.headers().contains_key(header::ORIGIN) {
        visit.site.common.refused(visit.peer, Refusal::Origin, &"it has an Origin header");
        return StatusCode::FORBIDDEN.into_response();
    }
    if visit.site.is_loopback()
        && !host_check::is_allowed(request.headers(), &visit.site.access().allowed_hosts)
    {
        visit.site.common.refused(visit.peer, Refusal::Host, &"its Host is not this machine");
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}
