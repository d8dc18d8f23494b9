//! What those ask who operate the server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Visit;
use crate::server::metrics::CONTENT_TYPE;

/// Whether clients should be sent here: no longer when the server has begun to end.
pub(super) async fn ready(State(visit): State<Visit>) -> StatusCode {
    if visit.site.common.is_draining() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

pub(super) async fn metrics(State(visit): State<Visit>, request: Request) -> Response {
    let site = &visit.site;
    let readers = Arc::clone(&site.access().readers);
    if !readers.is_open()
        && let Err(refusal) = visit.authenticate(readers, request.headers()).await
    {
        return refusal;
    }
    let exposition = Arc::clone(&site.common.exposition);
    match tokio::task::spawn_blocking(move || exposition.text()).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
