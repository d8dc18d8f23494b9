//! Answers of the proxy itself.

use std::io;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::network::proxy::gate::Block;
use crate::protocol::network::{Decision, DecisionSource, NetworkProtocol};

/// The body of an answer: of the proxy's own, or as it comes.
pub(super) type Body = Either<Full<Bytes>, Incoming>;

const ERROR: &str = "x-proxy-error";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why a request is not forwarded.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is no request that can be understood in one way.
    Invalid(&'static str),
    /// It may not be.
    Blocked {
        /// Why.
        block: Block,
        /// How it was to be forwarded.
        protocol: NetworkProtocol,
        /// The port of the destination.
        port: u16,
    },
    /// It is for a socket in the file system.
    UnixSocket,
    /// The destination cannot be reached, or does not speak HTTP.
    Failed(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// What a client reads about a plain request.
#[derive(Debug, Serialize)]
struct Blocked<'a> {
    status: &'static str,
    host: &'a str,
    reason: &'a str,
    decision: Decision,
    source: DecisionSource,
    protocol: NetworkProtocol,
    port: u16,
    message: &'a str,
}

impl Refusal {
    pub(super) fn response(&self) -> Response<Body> {
        match self {
            Self::Invalid(why) => text(StatusCode::BAD_REQUEST, (*why).to_owned()),
            Self::UnixSocket => {
                text(StatusCode::NOT_IMPLEMENTED, "unix sockets are not supported on Linux".to_owned())
            }
            Self::Failed(error) => text(StatusCode::BAD_GATEWAY, format!("upstream failure: {error}")),
            Self::Blocked { block, protocol, port } => blocked(block, *protocol, *port),
        }
    }
}

fn blocked(block: &Block, protocol: NetworkProtocol, port: u16) -> Response<Body> {
    let message = format!("the network policy of this process blocks {} ({})", block.host, block.reason);
    let mut response = if protocol == NetworkProtocol::Http {
        let Block { host, reason, decision, source, .. } = block;
        let body = Blocked {
            status: "blocked",
            host,
            reason,
            decision: *decision,
            source: *source,
            protocol,
            port,
            message: &message,
        };
        // Texts, numbers and words: it always can be encoded.
        answer(StatusCode::FORBIDDEN, JSON, serde_json::to_vec(&body).unwrap_or_default())
    } else {
        text(StatusCode::FORBIDDEN, message)
    };
    response.headers_mut().insert(ERROR, HeaderValue::from_static(kind(block)));
    response
}

fn kind(block: &Block) -> &'static str {
    match (block.source, block.reason.as_str()) {
        (_, "not_allowed" | "not_allowed_local") => "blocked-by-allowlist",
        (DecisionSource::BaselinePolicy, "denied") => "blocked-by-denylist",
        (DecisionSource::ModeGuard, "method_not_allowed") => "blocked-by-method-policy",
        (DecisionSource::ModeGuard, "mitm_required") => "blocked-by-mitm-required",
        _ => "blocked-by-policy",
    }
}

fn text(status: StatusCode, message: String) -> Response<Body> {
    answer(status, TEXT, message.into_bytes())
}

fn answer(status: StatusCode, kind: HeaderValue, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
