//! A deadline for any call.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::ExecServerError;

/// A call took longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0:?}, the time limit of the call; it may still take effect")]
pub struct DeadlineExceeded(pub Duration);

impl From<DeadlineExceeded> for ExecServerError {
    fn from(error: DeadlineExceeded) -> Self {
        Self::DeadlineExceeded(error)
    }
}

impl From<DeadlineExceeded> for io::Error {
    fn from(error: DeadlineExceeded) -> Self {
        Self::new(io::ErrorKind::TimedOut, error)
    }
}

/// Gives the calls of this crate a deadline: `process.read(None, None, Some(0)).within(limit)`.
///
/// Without one a call ends with its answer or with its connection. When the time is over, the call is dropped, with
/// what that means for it: a start ends its process, and any other may or may not have taken effect.
pub trait Within<T, E>: Future<Output = Result<T, E>> + Send + Sized {
    /// The outcome, or an error after this time: [`ExecServerError::DeadlineExceeded`], or of the files
    /// [`io::ErrorKind::TimedOut`].
    fn within(self, limit: Duration) -> impl Future<Output = Result<T, E>> + Send;
}

impl<T, E, F> Within<T, E> for F
where
    E: From<DeadlineExceeded>,
    F: Future<Output = Result<T, E>> + Send,
{
    async fn within(self, limit: Duration) -> Result<T, E> {
        timeout(limit, self).await.unwrap_or_else(|_| Err(DeadlineExceeded(limit).into()))
    }
}
