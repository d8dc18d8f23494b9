//! How a run reaches the network: through which proxy, and whether its network is its own.
//!
//! What a start says is checked once. Each run of it, the command and the capture of its shell, is then given [`doors`] to
//! the one proxy, by variables that are laid over everything else, and a network in which there is nothing but these doors
//! where that is enforced.

mod doors;
mod endpoints;
mod host;
mod variables;

use std::sync::Arc;

pub(super) use self::doors::{Doors, Way};
use self::host::HostSide;
use super::{Executor, Session, StartError};
use crate::network::proxy::Proxy;
use crate::protocol::network::NetworkProxyLaunch;
use crate::protocol::process::ExecParams;
use crate::sandbox::NetworkIsolation;

/// What a start has of the network, for all its runs.
#[derive(Debug)]
pub(super) struct Egress {
    carrier: Carrier,
    /// How it is enforced; `None` if the run may pass its proxy by.
    isolation: Option<NetworkIsolation>,
    executor: Arc<Executor>,
}

/// Who carries the connections.
#[derive(Debug)]
enum Carrier {
    /// A proxy of this server.
    Own(Arc<OwnProxy>),
    /// Proxies of somebody else, which the variables name; with any `listed`, at these ports only.
    Others { listed: Vec<u16> },
}

#[derive(Debug)]
struct OwnProxy {
    proxy: Proxy,
    allows_local: bool,
    /// Where it listens for runs in the network of this machine.
    host: Option<HostSide>,
    /// What its runs send elsewhere comes to it as well.
    transparent: bool,
}

impl Egress {
    /// Checks what a start wants of the network. `None` if that is nothing. Cancel-safe.
    ///
    /// # Errors
    /// What can never be right, and what this machine cannot enforce.
    pub(super) async fn of(exec: &ExecParams, session: &Session) -> Result<Option<Arc<Self>>, StartError> {
        check(exec)?;
        let executor = Arc::clone(&session.executor);
        let launch = exec.network_proxy.as_ref();
        let is_transparent = launch.is_some_and(|launch| launch.proxy.transparent_tcp);
        let is_enforced = exec.sandbox.is_some() && (exec.enforce_managed_network || is_transparent);
        if launch.is_none() && !is_enforced {
            return Ok(None);
        }
        if launch.is_none() && executor.network().has_tcp_upstream() {
            return Err(StartError::InvalidParams(
                "`enforceManagedNetwork` needs `networkProxy`: connections of this server go through \
                 `network.tcp_upstream_proxy`, which proxies of others do not know"
                    .to_owned(),
            ));
        }
        let proxy = launch.map(|launch| proxy(launch, exec, session)).transpose()?;
        let isolation = if is_enforced { Some(isolation(&executor, is_transparent).await?) } else { None };
        let carrier = match (launch, proxy) {
            (Some(launch), Some(proxy)) => {
                let only_own = exec.sandbox.is_some() || executor.settings().checks_peers;
                let is_outside = isolation != Some(NetworkIsolation::Private);
                let host = is_outside.then(|| HostSide::open(&proxy, only_own)).transpose()?;
                let allows_local = launch.proxy.allow_local_binding;
                Carrier::Own(Arc::new(OwnProxy { proxy, allows_local, host, transparent: is_transparent }))
            }
            _ => Carrier::Others {
                listed: exec
                    .managed_network
                    .as_ref()
                    .map(|facts| facts.loopback_ports.clone())
                    .unwrap_or_default(),
            },
        };
        Ok(Some(Arc::new(Self { carrier, isolation, executor })))
    }
}

/// What can be told from the params alone.
fn check(exec: &ExecParams) -> Result<(), StartError> {
    let invalid = |text: &str| Err(StartError::InvalidParams(text.to_owned()));
    let is_transparent = exec.network_proxy.as_ref().is_some_and(|launch| launch.proxy.transparent_tcp);
    if is_transparent && exec.sandbox.is_none() {
        return invalid(
            "`networkProxy.proxy.transparentTcp` needs `sandbox`: it is for a network of a run's own",
        );
    }
    let wants_device = exec.managed_network.as_ref().is_some_and(|facts| facts.transparent_tcp);
    if wants_device && exec.network_proxy.is_none() {
        return invalid("`managedNetwork.transparentTcp` needs `networkProxy`, a proxy of this server");
    }
    Ok(())
}

fn proxy(launch: &NetworkProxyLaunch, exec: &ExecParams, session: &Session) -> Result<Proxy, StartError> {
    let (desk, site) = (Arc::clone(&session.desk), Arc::clone(session.executor.network()));
    Proxy::new(launch, exec.process_id.clone(), desk, site)
        .map_err(|error| StartError::InvalidParams(error.to_string()))
}

/// How this machine isolates the network of a run.
async fn isolation(executor: &Executor, transparent: bool) -> Result<NetworkIsolation, StartError> {
    let sandboxes = Arc::clone(executor.sandboxes());
    let looked = tokio::task::spawn_blocking(move || sandboxes.network_isolation(transparent)).await;
    let looked = looked.map_err(|_| StartError::SessionEnded)?;
    looked.map_err(|error| match transparent {
        // What the capability `networkProxyTransparentTcp` says can be known before.
        true => StartError::InvalidParams(format!("`networkProxy.proxy.transparentTcp`: {error}")),
        false => error.into(),
    })
}
