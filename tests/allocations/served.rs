//! The server, in this process, with a client that is ready.

use std::path::Path;
use std::sync::Arc;

use exec_server::config::{Flag, load};
use exec_server::sandbox::{SandboxSettings, Sandboxes};
use exec_server::server::{Resources, Server, Shutdown};
use exec_server::service::Sockets;
use exec_server::session::LimitPolicy;
use exec_server::spawn::mark::ServerMark;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::client::{RawClient, frame};

/// A server that ends, with its processes, with this value.
pub(crate) struct Served {
    pub(crate) client: RawClient,
    runtime: Runtime,
    shutdown: Shutdown,
    serving: Option<JoinHandle<()>>,
    home: TempDir,
}

impl Served {
    pub(crate) fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        // As the daemon has it.
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(bind(home.path()));
        let address = server.urls()[0].trim_start_matches("ws://").to_owned();
        let shutdown = Shutdown::default();
        let serving = Some(runtime.spawn(server.run(shutdown.clone())));
        let mut client = RawClient::connect(&address);
        client.call("initialize", json!({"clientName": "allocations"}));
        client.send(&frame(&json!({"method": "initialized", "params": {}})));
        Self { client, runtime, shutdown, serving, home }
    }

    /// A file with this content, as a URI.
    pub(crate) fn file(&self, content: &[u8]) -> String {
        let path = self.home.path().join("file");
        std::fs::write(&path, content).unwrap();
        format!("file://{}", path.display())
    }

    /// Starts a process by the name of `p`.
    pub(crate) fn start_process(&mut self, argv: &[&str]) {
        let params: Value = json!({
            "processId": "p", "argv": argv, "cwd": "file:///", "env": {"PATH": "/usr/bin:/bin"}, "tty": false,
            "pipeStdin": true,
        });
        self.client.call("process/start", params);
    }
}

async fn bind(home: &Path) -> Server {
    let flags = [
        Flag::set("server.listen", "ws://127.0.0.1:0"),
        Flag::set("server.state_dir", home.to_str().unwrap()),
    ];
    let resources = Resources {
        mark: ServerMark::new(),
        environment: Vec::new(),
        sandboxes: Sandboxes::new(SandboxSettings::default()),
        telemetry: Arc::default(),
        limits: LimitPolicy::default(),
    };
    Server::bind(&load(&flags, [], None).unwrap(), resources, Sockets::default()).await.unwrap()
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.begin.cancel();
        self.shutdown.at_once.cancel();
        if let Some(serving) = self.serving.take() {
            self.runtime.block_on(serving).unwrap();
        }
    }
}
