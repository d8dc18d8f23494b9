//! What can go wrong with a request, told apart for the client.

use std::error::Error;
use std::io;
use std::iter;

use reqwest::Url;

use super::deny::Denied;
use crate::outbound::PolicyRefusal;
use crate::protocol::failure::HttpErrorKind;

/// Why a request has no response, or no whole body.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// It can never be right; nothing was sent.
    #[error("http/request {0}")]
    Invalid(String),
    /// There is no response.
    #[error("http/request failed: {message}")]
    Failed {
        /// Where.
        kind: HttpErrorKind,
        /// Why.
        message: String,
    },
    /// There is no whole body.
    #[error("failed to read http/request response body: {message}")]
    Body {
        /// Where.
        kind: HttpErrorKind,
        /// Why.
        message: String,
    },
    /// Too many at a time on a connection.
    #[error("http/request failed: {0} requests are in progress on this connection, which is the limit")]
    TooMany(usize),
}

/// A host name without addresses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unresolved(pub(super) String);

impl HttpError {
    pub(super) fn failed(kind: HttpErrorKind, message: impl Into<String>) -> Self {
        Self::Failed { kind, message: message.into() }
    }

    pub(super) fn body(kind: HttpErrorKind, message: impl Into<String>) -> Self {
        Self::Body { kind, message: message.into() }
    }

    pub(super) fn refused(refusal: &PolicyRefusal) -> Self {
        Self::failed(HttpErrorKind::Denied, refusal.to_string())
    }

    /// The network policy has changed meanwhile.
    pub(super) fn withdrawn() -> Self {
        Self::failed(HttpErrorKind::Denied, "the application network policy no longer allows this request")
    }

    pub(super) fn from_client(url: &Url, error: &reqwest::Error) -> Self {
        // The error's own text names the URL with its query.
        let message = match error.source() {
            Some(cause) => chain(cause),
            None => "the request could not be sent".to_owned(),
        };
        Self::failed(kind_of(error), format!("{}: {message}", url.origin().ascii_serialization()))
    }
}

fn kind_of(error: &reqwest::Error) -> HttpErrorKind {
    if causes(error).any(|cause| cause.is::<Denied>()) {
        HttpErrorKind::Denied
    } else if causes(error).any(|cause| cause.is::<Unresolved>()) {
        HttpErrorKind::Dns
    } else if causes(error).any(is_tls) {
        HttpErrorKind::Tls
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Protocol
    }
}

fn is_tls(cause: &(dyn Error + 'static)) -> bool {
    // An I/O error hides what it wraps from the chain, and may wrap another.
    let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    cause.is::<rustls::Error>() || wrapped.is_some_and(|inner| is_tls(inner))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// The texts of an error and its causes, each once.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes(error) {
        let text = cause.to_string();
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}
