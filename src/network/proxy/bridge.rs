//! Leads connections inside a run to a proxy that somebody else runs on this machine's loopback.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use super::acceptor::Acceptor;
use super::dial;
use super::error::LaunchError;
use super::relay::relay;
use super::site::Site;

/// Checks endpoints of others.
///
/// # Errors
/// One of them is where this server waits for its clients: a run would speak to it in the server's name.
pub fn check(endpoints: &[SocketAddr], site: &Site) -> Result<(), LaunchError> {
    let own = endpoints.iter().find(|endpoint| site.own.serve(**endpoint));
    own.map_or(Ok(()), |own| Err(LaunchError::OwnEndpoint(*own)))
}

/// The bridges of one run. Dropped, it cuts them.
#[derive(Debug)]
pub struct Bridges {
    acceptor: Acceptor,
}

impl Bridges {
    /// Bridges to these endpoints.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(endpoints: &[SocketAddr], site: &Arc<Site>) -> Result<Self, LaunchError> {
        check(endpoints, site)?;
        Ok(Self { acceptor: Acceptor::new(site.max_connections) })
    }

    /// Leads what comes to a listener inside the run to one of the endpoints. For a task of the runtime.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn serve(&self, listener: TcpListener, endpoint: SocketAddr) -> io::Result<()> {
        let serve = move |stream, _| async move {
            let carried = match dial::connect(&[endpoint]).await {
                Ok(far) => relay(tokio::net::TcpStream::into(stream), far.into()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = carried {
                tracing::debug!(%error, %endpoint, "a bridged connection has failed");
            }
        };
        self.acceptor.accept(listener, None, serve, ())
    }
}
