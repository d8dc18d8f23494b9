use std::net::SocketAddr;

use crate::policy::egress::EgressError;

/// Why a proxy cannot be what a start wants. Each text names the field and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// It is switched off.
    #[error("`networkProxy.proxy.enabled` must be true; leave `networkProxy` out to start without a proxy")]
    Disabled,
    /// A rule that is none.
    #[error(transparent)]
    Rules(#[from] EgressError),
    /// A socket that nobody could name so.
    #[error("`networkProxy.proxy.unixSockets`: `{0}` must be an absolute path")]
    RelativeSocket(String),
    /// Not built.
    #[error(
        "`networkProxy.proxy.credentialMasking` is not supported by this server; leave it out or set it to false"
    )]
    CredentialMasking,
    /// A setting that needs another.
    #[error("`networkProxy.proxy.transparentTcp` needs `networkProxy.proxy.enableSocks5`")]
    TransparentWithoutSocks,
    /// A bridge to this very server.
    #[error("`managedNetwork`: {0} is where this server itself listens; name the address of a proxy")]
    OwnEndpoint(SocketAddr),
}
