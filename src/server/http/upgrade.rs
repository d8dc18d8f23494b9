//! The upgrade of a request to a WebSocket connection.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{Peer, Visit};
use crate::rpc::websocket::WebSocket;
use crate::server::connection::{self, Kind, Shared, Who};
use crate::server::metrics::{OpenConnection, Refusal};
use crate::server::site::Common;
use crate::server::stream::ServerStream;
use crate::telemetry::Limit;

pub(super) async fn upgrade(State(visit): State<Visit>, mut request: Request) -> Response {
    let key = match handshake_key(request.version(), request.headers()) {
        Ok(key) => key,
        Err(refusal) => return refusal.into_response(),
    };
    let common = &visit.site.common;
    if common.is_draining() {
        common.refused(visit.peer, Refusal::Draining, &"the server is shutting down");
        return (StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down").into_response();
    }
    let token =
        match visit.authenticate(Arc::clone(&visit.site.access().authenticator), request.headers()).await {
            Ok(token) => token,
            Err(refusal) => return refusal,
        };
    let Some(seat) = take_seat(common, visit.peer) else {
        let message = format!(
            "the limit of {} connections (server.max_connections) is reached",
            common.max_connections
        );
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return (StatusCode::UPGRADE_REQUIRED, "this connection cannot be upgraded").into_response();
    };
    let (shared, peer) = (Arc::clone(&common.shared), visit.peer);
    let who = Who { peer: peer.to_string(), token };
    common.connections.spawn(async move {
        match upgrade.await {
            Ok(upgraded) => websocket(upgraded, shared, seat, who).await,
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

fn take_seat(common: &Common, peer: Peer) -> Option<OwnedSemaphorePermit> {
    let seat = Arc::clone(&common.seats).try_acquire_owned().ok();
    if seat.is_none() {
        common.refused(peer, Refusal::Limit, &"server.max_connections");
        common.shared.registry.executor().telemetry().runs.limits.of(Limit::Connections).increment();
    }
    seat
}

async fn websocket(upgraded: Upgraded, shared: Arc<Shared>, seat: OwnedSemaphorePermit, who: Who) {
    let Ok(parts) = upgraded.downcast::<TokioIo<ServerStream>>() else {
        tracing::error!("an upgraded connection is not one of ours");
        return;
    };
    let stream = parts.io.into_inner().with_ahead(parts.read_buf);
    let transport = WebSocket::server(stream).await;
    let _open = OpenConnection::new(&shared.traffic);
    Box::pin(connection::serve(transport, shared, Kind::Socket, who)).await;
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
