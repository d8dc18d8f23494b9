//! HTTP requests that an environment makes.

use std::time::Duration;

use super::{BoxFuture, Result};
use crate::protocol::http::RequestParams;
pub use crate::protocol::http::{RedirectPolicy, RequestHeader, ResponseHeader};

/// A request. What is not set is absent or the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpRequest {
    /// Any HTTP token, sent as it is.
    pub method: String,
    /// Absolute, of `http` or `https`.
    pub url: String,
    /// In order, repeats kept. A value may come from the executor's environment.
    pub headers: Vec<RequestHeader>,
    /// The body, if any.
    pub body: Option<Vec<u8>>,
    /// Limit of the whole request, the body of the response included; rounded down to milliseconds.
    pub timeout: Option<Duration>,
    /// Whether redirects are followed.
    pub redirects: RedirectPolicy,
}

impl HttpRequest {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self { method: method.into(), url: url.into(), ..Self::default() }
    }

    /// The request on the wire.
    pub(crate) fn into_params(self, request_id: String, stream_response: bool) -> RequestParams {
        RequestParams {
            method: self.method,
            url: self.url,
            headers: self.headers,
            body: self.body.map(Into::into),
            timeout_ms: self.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            redirect_policy: self.redirects,
            request_id,
            stream_response,
        }
    }
}

/// A response with its whole body, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code, whatever it is.
    pub status: u16,
    /// Names in lower case, in order, repeats kept.
    pub headers: Vec<ResponseHeader>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response whose body follows.
pub struct StreamedHttpResponse {
    /// The status code, whatever it is.
    pub status: u16,
    /// Names in lower case, in order, repeats kept.
    pub headers: Vec<ResponseHeader>,
    /// The body.
    pub body: Box<dyn HttpBody>,
}

/// The body of a response, as it comes.
pub trait HttpBody: Send {
    /// The next decoded bytes, never none; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// The body is not complete: the server of the URL broke off, the time limit passed, the connection to the
    /// executor was lost (streams are not resumed), or this side was too slow: more than 256 pieces or 32 MiB behind.
    /// Nothing follows then.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>>>;
}

/// Makes HTTP requests with the network, the proxies and the trust store of an environment.
///
/// A request whose answer was lost with the connection is not repeated: it fails, and may have been made.
pub trait HttpClient: Send + Sync {
    /// Makes a request and takes the body as a whole, 44 MiB at most. Dropping the future gives the answer up.
    ///
    /// # Errors
    /// [`super::ExecServerError::Server`] with `data.kind` when the request cannot be right or failed;
    /// [`super::ExecServerError::Unsupported`] where the server lacks something; no connection.
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse>>;

    /// Makes a request; the body follows. Dropping the future, or the body, gives the rest up.
    ///
    /// # Errors
    /// As [`Self::request`].
    fn stream(&self, request: HttpRequest) -> BoxFuture<'_, Result<StreamedHttpResponse>>;
}
