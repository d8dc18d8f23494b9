//! Where a test runs that holds for this process and for a server alike.

use std::sync::Arc;

use exec_server::backend::{ExecProcess, ExecutorFileSystem, StartedExecProcess};
use exec_server::environment::{Environment, ExecServerRuntimePaths};
use exec_server::outbound::HttpClientFactory;
use exec_server::path_uri::PathUri;
use exec_server::protocol::process::ExecParams;
use tempfile::TempDir;

use super::server::ServerProcess;
use super::soon;

/// An environment; a server ends with it.
pub(crate) struct Place {
    pub(crate) environment: Environment,
    _server: Option<ServerProcess>,
}

impl Place {
    pub(crate) async fn new(remote: bool) -> Self {
        let server = if remote { Some(ServerProcess::start().await) } else { None };
        let url = server.as_ref().map(|server| server.url().to_owned());
        // The runner of the tests is no helper of sandboxes.
        let paths = ExecServerRuntimePaths::with_sandbox_helper(env!("CARGO_BIN_EXE_exec-server"));
        let environment = Environment::create(url, paths, HttpClientFactory::default()).unwrap();
        Self { environment, _server: server }
    }

    /// An environment of a server that is there.
    pub(crate) fn of(environment: Environment, server: ServerProcess) -> Self {
        Self { environment, _server: Some(server) }
    }

    pub(crate) async fn start(&self, params: ExecParams) -> StartedExecProcess {
        soon(self.environment.get_exec_backend().start(params)).await.unwrap()
    }

    pub(crate) async fn process(&self, params: ExecParams) -> Arc<dyn ExecProcess> {
        self.start(params).await.process
    }

    pub(crate) fn files(&self) -> Arc<dyn ExecutorFileSystem> {
        self.environment.get_filesystem()
    }
}

/// A directory for one test.
pub(crate) struct Room(TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn uri(&self, name: &str) -> PathUri {
        PathUri::from_native_path(&self.path(name)).unwrap()
    }
}
