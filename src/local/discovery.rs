//! Capabilities on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use super::config::settings;
use crate::backend::{ExecServerError, Result};
use crate::discovery::{Discovery, DiscoveryError};
use crate::error_map::IntoErrorObject;
use crate::protocol::discovery::{
    CapabilityRootsDiscoverParams, CapabilityRootsDiscoverResponse, DiscoverV2CapabilitiesRequest,
    DiscoverV2CapabilitiesResponse,
};
use crate::sandbox::Sandboxes;

/// The recognised files below chosen directories of this machine. Cancel-safe.
///
/// # Errors
/// [`ExecServerError::Server`] as a server would answer: too many roots.
pub async fn discover_capability_roots(
    sandboxes: Arc<Sandboxes>,
    params: CapabilityRootsDiscoverParams,
) -> Result<CapabilityRootsDiscoverResponse> {
    let discovery = Discovery::new(None, None).beside(sandboxes);
    discovery.roots(params).await.map(|(found, _)| found).map_err(as_answered)
}

/// What is installed for the user with this home. Cancel-safe.
///
/// # Errors
/// [`ExecServerError::Server`] as a server would answer: a sandbox that cannot be enforced.
pub async fn discover_capabilities(
    home: Option<PathBuf>,
    sandboxes: Arc<Sandboxes>,
    request: DiscoverV2CapabilitiesRequest,
) -> Result<DiscoverV2CapabilitiesResponse> {
    let settings = settings(home);
    let discovery = Discovery::new(settings.home(), settings.codex_home()).beside(sandboxes);
    discovery.inventory(request).await.map_err(as_answered)
}

fn as_answered(error: DiscoveryError) -> ExecServerError {
    error.into_error_object().into()
}
