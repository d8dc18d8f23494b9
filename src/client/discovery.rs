//! Capability discovery on a server: nothing is sent that it does not announce, and what a broken connection interrupted
//! is asked once more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::gate;
use super::remote::RemoteBackend;
use super::session::Session;
use crate::backend::{ExecServerError, Result};
use crate::protocol::Method;
use crate::protocol::discovery::{
    CapabilityRootsDiscoverParams, CapabilityRootsDiscoverResponse, Discover, DiscoverV2CapabilitiesRequest,
    DiscoverV2CapabilitiesResponse, RootsDiscover,
};
use crate::protocol::environment::Capabilities;

/// How long a discovery waits for a lost connection.
const RECONNECT_LIMIT: Duration = Duration::from_secs(8);

impl RemoteBackend {
    /// The recognised files below chosen directories of the server's machine. Connects, and waits while a lost connection
    /// is being recovered. Cancel-safe.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`], with nothing sent, where the server cannot honour a sandbox; the server's; no
    /// connection.
    pub async fn discover_capability_roots(
        &self,
        params: &CapabilityRootsDiscoverParams,
    ) -> Result<CapabilityRootsDiscoverResponse> {
        let admit = |announced: &Capabilities| gate::admit_roots(&params.roots, announced);
        self.discover::<RootsDiscover>(params, admit).await
    }

    /// What is installed for the server's user. As [`Self::discover_capability_roots`].
    ///
    /// # Errors
    /// As [`Self::discover_capability_roots`].
    pub async fn discover_capabilities(
        &self,
        request: &DiscoverV2CapabilitiesRequest,
    ) -> Result<DiscoverV2CapabilitiesResponse> {
        let admit = |announced: &Capabilities| gate::admit_inventory(request.sandbox.as_ref(), announced);
        self.discover::<Discover>(request, admit).await
    }

    /// Asks, and once more if the connection broke and is there again in time. The second answer has no time limit.
    async fn discover<M: Method>(
        &self,
        params: &M::Params,
        admit: impl Fn(&Capabilities) -> Result<()>,
    ) -> Result<M::Output> {
        let first = ask::<M>(&*self.session().await?, params, &admit).await;
        let Err(interrupted @ (ExecServerError::TransportDisconnected | ExecServerError::Disconnected(_))) =
            first
        else {
            return first;
        };
        match timeout(RECONNECT_LIMIT, self.reconnected()).await {
            Ok(Ok(session)) => ask::<M>(&session, params, &admit).await,
            Ok(Err(_)) | Err(_) => Err(interrupted),
        }
    }

    /// The session when it has a connection; a new one where the old one is lost for good.
    async fn reconnected(&self) -> Result<Arc<Session>> {
        loop {
            let session = self.session().await?;
            match session.live().await {
                Ok(_) => return Ok(session),
                Err(ExecServerError::Disconnected(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn ask<M: Method>(
    session: &Session,
    params: &M::Params,
    admit: &impl Fn(&Capabilities) -> Result<()>,
) -> Result<M::Output> {
    admit(&session.info().await?.capabilities)?;
    session.once::<M>(params).await
}
