//! What the application's network policy says about a request, while it runs.

use reqwest::Url;

use super::error::{FailureKind, HttpError};
use crate::outbound::{NetworkPolicy, Permit};

/// Held from before the connection to the end of the body.
#[derive(Debug)]
pub(super) struct Permission(Option<Permit>);

impl Permission {
    /// Asks for one hop.
    ///
    /// # Errors
    /// The policy's refusal.
    pub(super) fn ask(policy: Option<&NetworkPolicy>, url: &Url) -> Result<Self, HttpError> {
        let Some(policy) = policy else { return Ok(Self(None)) };
        match policy.permit(url.scheme(), url.host_str().unwrap_or_default()) {
            Ok(permit) => Ok(Self(Some(permit))),
            Err(refusal) => Err(HttpError::failed(FailureKind::Denied, refusal.to_string())),
        }
    }

    /// The outcome of work, unless the permission is withdrawn before.
    ///
    /// # Errors
    /// It was withdrawn.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, HttpError> {
        let Some(permit) = &self.0 else { return Ok(work.await) };
        tokio::select! {
            biased;
            () = permit.withdrawn() => {
                let why = "the application network policy no longer allows this request";
                Err(HttpError::failed(FailureKind::Denied, why))
            }
            outcome = work => Ok(outcome),
        }
    }
}
