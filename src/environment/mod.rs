//! What users of the library hold: a place to execute, this machine or a server, and a registry of such places.
//!
//! * [`Environment`] is one place; [`EnvironmentManager`] knows several by name.
//! * `file` reads `environments.toml`; `definition` has the rules that hold for one environment wherever it comes from;
//!   [`PreparedEnvironmentManager`] is settings that were read and not yet used.

mod definition;
mod discovery;
mod file;
mod manager;
mod paths;
mod prepared;
mod selected_roots;

use std::sync::Arc;

use tokio::sync::watch;

use self::definition::Definition;
pub use self::definition::RemoteEnvironmentOptions;
pub use self::manager::EnvironmentManager;
pub use self::paths::ExecServerRuntimePaths;
pub use self::prepared::PreparedEnvironmentManager;
pub use self::selected_roots::{
    CapabilityDiscoverySnapshot, CapabilityRootLocation, ExecutorCapabilityDiscoveryCache,
    ResolvedSelectedCapabilityRoot, SelectedCapabilityRoot, SelectedCapabilityRootsStatus,
    SelectedRootDiscovery, inspect_selected_capability_roots, resolve_selected_capability_roots,
};
use crate::backend::{ExecBackend, ExecutorFileSystem, HttpClient, Result};
pub use crate::client::{
    ClientOptions, EnvironmentConnectionState, EnvironmentObservedStatus, ProgramCommand, Readiness,
};
use crate::client::{RemoteBackend, RemoteFileSystem, RemoteHttpClient, Server};
use crate::environment_info;
use crate::local::{LocalBackend, LocalFileSystem, LocalHttpClient, read_config};
use crate::outbound::HttpClientFactory;
use crate::protocol::environment::{ConfigReadParams, ConfigReadResponse, EnvironmentInfo};

/// The id of this machine.
pub const LOCAL_ENVIRONMENT_ID: &str = "local";
/// The id of the server that `CODEX_EXEC_SERVER_URL` names.
pub const REMOTE_ENVIRONMENT_ID: &str = "remote";

/// One place to execute. Clones share it.
#[derive(Clone)]
pub struct Environment {
    place: Place,
}

#[derive(Clone)]
enum Place {
    Local(Arc<Local>),
    Remote(RemoteBackend),
}

/// This machine.
struct Local {
    backend: LocalBackend,
    files: Arc<dyn ExecutorFileSystem>,
    http: Arc<dyn HttpClient>,
    info: EnvironmentInfo,
}

impl Local {
    fn new(paths: ExecServerRuntimePaths, http: &HttpClientFactory) -> Self {
        let backend = LocalBackend::with_sandbox_helper(paths.sandbox_helper().map(ToOwned::to_owned));
        Self {
            files: Arc::new(LocalFileSystem::beside(backend.sandboxes())),
            backend,
            http: Arc::new(LocalHttpClient::new(http)),
            info: environment_info::gather(|name| std::env::var_os(name), true),
        }
    }
}

impl Environment {
    /// The server at a URL, as [`Self::remote`], or without one this machine, as [`Self::local`].
    ///
    /// # Errors
    /// As [`Self::remote`].
    pub fn create(
        url: Option<String>,
        paths: ExecServerRuntimePaths,
        http: HttpClientFactory,
    ) -> Result<Self> {
        match url {
            Some(url) => Self::remote(&url, ClientOptions::with_outbound(http)),
            None => Ok(Self::local(paths, &http)),
        }
    }

    /// [`Self::create`] with the defaults of everything.
    ///
    /// # Errors
    /// As [`Self::remote`].
    pub fn create_for_tests(url: Option<String>) -> Result<Self> {
        Self::create(url, ExecServerRuntimePaths::itself(), HttpClientFactory::default())
    }

    /// This machine. Its processes belong to this process and end with the last handle.
    #[must_use]
    pub fn local(paths: ExecServerRuntimePaths, http: &HttpClientFactory) -> Self {
        Self { place: Place::Local(Arc::new(Local::new(paths, http))) }
    }

    /// The server at a `ws://`, `wss://` or `unix:` URL. Connects when it is first used.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`] with what is wrong with the URL or the options.
    pub fn remote(url: &str, options: ClientOptions) -> Result<Self> {
        Ok(Self { place: Place::Remote(RemoteBackend::new(url, options)?) })
    }

    /// A server that is started as a program when it is first used, and again at the next use after it ended; its
    /// processes fail when it ends.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`] for an empty program.
    pub fn program(command: ProgramCommand, options: ClientOptions) -> Result<Self> {
        Ok(Self { place: Place::Remote(RemoteBackend::program(command, options)?) })
    }

    /// A server that has been checked, as [`RemoteBackend::at`].
    fn at(server: Server, options: ClientOptions) -> Self {
        Self { place: Place::Remote(RemoteBackend::at(server, options)) }
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
            Place::Local(local) => {
                let (sandboxes, info) = (local.backend.sandboxes(), local.info.clone());
                let described = tokio::task::spawn_blocking(move || sandboxes.described(info)).await;
                Ok(described.unwrap_or_else(|_| local.info.clone()))
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
            Place::Local(local) => Arc::new(local.backend.clone()),
            Place::Remote(remote) => Arc::new(remote.clone()),
        }
    }

    /// The files there. Calls connect, and wait while a lost connection is being recovered.
    #[must_use]
    pub fn get_filesystem(&self) -> Arc<dyn ExecutorFileSystem> {
        match &self.place {
            Place::Local(local) => Arc::clone(&local.files),
            Place::Remote(remote) => Arc::new(RemoteFileSystem::new(remote.clone())),
        }
    }

    /// The files there, for code that only looks: without a connection every call fails at once with
    /// [`std::io::ErrorKind::BrokenPipe`]; with one, calls work, also after it was lost and found again.
    #[must_use]
    pub fn get_filesystem_without_reconnect(&self) -> Arc<dyn ExecutorFileSystem> {
        match &self.place {
            Place::Local(local) => Arc::clone(&local.files),
            Place::Remote(remote) => Arc::new(RemoteFileSystem::without_reconnect(remote.clone())),
        }
    }

    /// What makes HTTP requests there.
    #[must_use]
    pub fn get_http_client(&self) -> Arc<dyn HttpClient> {
        match &self.place {
            Place::Local(local) => Arc::clone(&local.http),
            Place::Remote(remote) => Arc::new(RemoteHttpClient::new(remote.clone())),
        }
    }

    /// Chosen keys of the settings layers there, unmerged. Cancel-safe.
    ///
    /// # Errors
    /// Params that name no key; a file that cannot be read; [`crate::backend::ExecServerError::Unsupported`] where the
    /// server lacks it; no connection.
    pub async fn read_environment_config(&self, params: ConfigReadParams) -> Result<ConfigReadResponse> {
        match &self.place {
            Place::Local(local) => read_config(environment_info::home(&local.info), params).await,
            Place::Remote(remote) => remote.read_config(&params).await,
        }
    }
}
