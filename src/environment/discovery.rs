//! What a place offers to an agent.

use super::{Environment, Place};
use crate::backend::Result;
use crate::client::Readiness;
use crate::environment_info;
use crate::local;
use crate::protocol::discovery::{
    CapabilityRootsDiscoverParams, CapabilityRootsDiscoverResponse, DiscoverV2CapabilitiesRequest,
    DiscoverV2CapabilitiesResponse,
};

impl Environment {
    /// The recognised files of plugins and skills at and below chosen directories, at most
    /// [`crate::protocol::discovery::MAX_CAPABILITY_ROOTS`] of them. If the connection breaks, the request waits up to
    /// 8 s for the next one and is sent once more. Cancel-safe.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`], with nothing sent, where the server does not announce that it
    /// honours a sandbox of the request; too many roots; no connection. What is wrong with one root is said in its result.
    pub async fn discover_capability_roots(
        &self,
        params: CapabilityRootsDiscoverParams,
    ) -> Result<CapabilityRootsDiscoverResponse> {
        match &self.place {
            Place::Local(local) => local::discover_capability_roots(local.backend.sandboxes(), params).await,
            Place::Remote(remote) => remote.discover_capability_roots(&params).await,
        }
    }

    /// Plugins and skills that are installed for the user there, without the texts of the skills. Repeated as
    /// [`Self::discover_capability_roots`]. Cancel-safe.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`], with nothing sent, where the server does not announce the inventory
    /// or cannot honour the sandbox; a sandbox that cannot be enforced; no connection.
    pub async fn discover_capabilities(
        &self,
        request: DiscoverV2CapabilitiesRequest,
    ) -> Result<DiscoverV2CapabilitiesResponse> {
        match &self.place {
            Place::Local(local) => {
                let home = environment_info::home(&local.info);
                local::discover_capabilities(home, local.backend.sandboxes(), request).await
            }
            Place::Remote(remote) => remote.discover_capabilities(&request).await,
        }
    }

    /// How far it is from use. Nothing is dialled, asked or waited for.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match &self.place {
            Place::Local(..) => Readiness::Ready,
            Place::Remote(remote) => remote.readiness(),
        }
    }
}
