//! What users of the library hold: a place to execute, this machine or a server.

use std::sync::Arc;

use tokio::sync::watch;

use crate::backend::{ExecBackend, Result};
use crate::client::RemoteBackend;
pub use crate::client::{ClientOptions, EnvironmentConnectionState, EnvironmentObservedStatus};
use crate::environment_info;
use crate::local::LocalBackend;
use crate::protocol::environment::EnvironmentInfo;

/// One place to execute. Clones share it.
#[derive(Clone)]
pub struct Environment {
    place: Place,
}

#[derive(Clone)]
enum Place {
    Local(LocalBackend, Arc<EnvironmentInfo>),
    Remote(RemoteBackend),
}

impl Environment {
    /// The server at a `ws://` or `unix:` URL, or without one this machine. Connects when it is first used.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`] with what is wrong with the URL or the options.
    pub fn create(url: Option<String>, options: ClientOptions) -> Result<Self> {
        let place = match url {
            Some(url) => Place::Remote(RemoteBackend::new(&url, options)?),
            None => Place::Local(
                LocalBackend::default(),
                Arc::new(environment_info::gather(|name| std::env::var_os(name), true)),
            ),
        };
        Ok(Self { place })
    }

    /// [`Self::create`] with default options.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_for_tests(url: Option<String>) -> Result<Self> {
        Self::create(url, ClientOptions::default())
    }

    /// Whether it is a server.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Remote(_))
    }

    /// What the executor is; connects, and waits while the connection is being recovered. Cancel-safe.
    ///
    /// # Errors
    /// No connection; an executor that does not say.
    pub async fn info(&self) -> Result<EnvironmentInfo> {
        match &self.place {
            Place::Local(backend, info) => {
                let sandboxes = backend.sandboxes();
                let sandbox = tokio::task::spawn_blocking(move || sandboxes.report()).await.ok();
                Ok(EnvironmentInfo { sandbox, ..EnvironmentInfo::clone(info) })
            }
            Place::Remote(remote) => remote.info().await,
        }
    }

    /// Looks without connecting. Cancel-safe.
    pub async fn status(&self) -> EnvironmentObservedStatus {
        match &self.place {
            Place::Local(..) => EnvironmentObservedStatus::Ready,
            Place::Remote(remote) => remote.status().await,
        }
    }

    /// Waits until it can be used; makes one attempt to connect if none is being made. Cancel-safe.
    ///
    /// # Errors
    /// That of the attempt.
    pub async fn wait_until_ready(&self) -> Result<()> {
        match &self.place {
            Place::Local(..) => Ok(()),
            Place::Remote(remote) => remote.wait_until_ready().await,
        }
    }

    /// Begins to connect and returns at once. Needs a tokio runtime.
    pub fn start_connecting(&self) {
        if let Place::Remote(remote) = &self.place {
            remote.start_connecting();
        }
    }

    /// Whether the first attempt to connect has ended, well or badly.
    #[must_use]
    pub fn startup_finished(&self) -> bool {
        match &self.place {
            Place::Local(..) => true,
            Place::Remote(remote) => remote.startup_finished(),
        }
    }

    /// Follows whether there is a connection; none for this machine, which needs none.
    #[must_use]
    pub fn subscribe_connection_state(&self) -> Option<watch::Receiver<EnvironmentConnectionState>> {
        match &self.place {
            Place::Local(..) => None,
            Place::Remote(remote) => Some(remote.subscribe_connection_state()),
        }
    }

    /// What starts processes there.
    #[must_use]
    pub fn get_exec_backend(&self) -> Arc<dyn ExecBackend> {
        match &self.place {
            Place::Local(backend, _) => Arc::new(backend.clone()),
            Place::Remote(remote) => Arc::new(remote.clone()),
        }
    }
}
