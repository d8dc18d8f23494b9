//! Why a call on an environment fails.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::within::DeadlineExceeded;
use crate::protocol::code;
use crate::protocol::envelope::ErrorObject;

/// The result of a call on an environment.
pub type Result<T, E = ExecServerError> = std::result::Result<T, E>;

/// Why a call on an environment failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecServerError {
    /// The server refused or failed the request; its error unchanged.
    #[error("{message}")]
    Server {
        /// One of [`crate::protocol::code`].
        code: i64,
        /// The server's sentence.
        message: String,
        /// The server's facts, such as `{"kind": "spawnNotFound"}`.
        data: Option<serde_json::Value>,
    },
    /// No connection within the time limit.
    #[error("no connection to {url} within {limit:?}")]
    ConnectTimeout {
        /// Where to.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// No connection: refused, unreachable, or answered with another status than 101.
    #[error("cannot connect to {url}: {reason}")]
    Connect {
        /// Where to.
        url: String,
        /// Why.
        reason: String,
        /// The HTTP status, when there was an answer.
        status: Option<u16>,
    },
    /// The server did not answer `initialize` in time.
    #[error("the server did not answer `initialize` within {0:?}")]
    InitializeTimeout(Duration),
    /// The connection broke while the call was unanswered; whether the server did it is unknown.
    #[error("transport disconnected")]
    TransportDisconnected,
    /// The connection is lost for good.
    #[error("{0}")]
    Disconnected(String),
    /// Refused on this side, or an answer that makes no sense.
    #[error("{0}")]
    Protocol(String),
    /// The server does not announce what the call needs.
    #[error("{0}")]
    Unsupported(String),
    /// The time limit that the caller gave has passed.
    #[error(transparent)]
    DeadlineExceeded(DeadlineExceeded),
    /// A shared attempt to connect failed.
    #[error(transparent)]
    ConnectionAttempt(Arc<ExecServerError>),
}

impl From<ErrorObject> for ExecServerError {
    fn from(error: ErrorObject) -> Self {
        Self::Server { code: error.code, message: error.message, data: error.data }
    }
}

/// As [`super::ExecutorFileSystem`] says, with the error inside.
impl From<ExecServerError> for io::Error {
    fn from(error: ExecServerError) -> Self {
        let kind = match &error {
            ExecServerError::DeadlineExceeded(_) => io::ErrorKind::TimedOut,
            ExecServerError::Server { code: code::NOT_FOUND, .. } => io::ErrorKind::NotFound,
            ExecServerError::Server { code: code::INVALID_REQUEST | code::INVALID_PARAMS, .. } => {
                io::ErrorKind::InvalidInput
            }
            ExecServerError::Unsupported(_) => io::ErrorKind::Unsupported,
            ExecServerError::TransportDisconnected | ExecServerError::Disconnected(_) => {
                io::ErrorKind::BrokenPipe
            }
            ExecServerError::ConnectTimeout { .. }
            | ExecServerError::Connect { .. }
            | ExecServerError::InitializeTimeout(_)
            | ExecServerError::ConnectionAttempt(_) => io::ErrorKind::NotConnected,
            ExecServerError::Server { .. } | ExecServerError::Protocol(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
