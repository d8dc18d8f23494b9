//! A sandboxed program cannot use the server as its way out.

use serde_json::Value;
use test_case::test_case;

use super::support::sandbox::{read_only, workspace};
use super::support::{Client, Daemon, Marker, Start, work_dir};

/// Sends an upgrade to the address that it is given, and says the status of the answer.
const UPGRADE: &str = r#"
import os, socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
peer = socket.socket(socket.AF_UNIX) if host == "unix" else None
try:
    if peer:
        peer.connect(port)
    else:
        peer = socket.create_connection((host.strip("[]"), int(port)))
    peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    print(peer.recv(12)[-3:].decode(), flush=True)
except OSError as error:
    print("none", flush=True)
"#;

/// The same by an orphan of another session, while the first process waits for it.
const SCATTERED: &str = r#"
import os, time
ended, held = os.pipe()
if os.fork():
    os.close(held)
    os.read(ended, 1)
    os._exit(0)
os.setsid()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.001)
"#;

fn python(script: &str, target: &str) -> Start {
    Start::argv(["/usr/bin/python3", "-c", script, target])
}

fn target(url: &str) -> &str {
    url.trim_start_matches("ws://")
}

async fn said(client: &Client, start: &Start) -> String {
    String::from_utf8_lossy(&client.run(start).await.stdout).trim().to_owned()
}

async fn is_let_in(url: &str) {
    Client::ready(url).await.close().await;
}

async fn refused(backend: &str, context: Value) {
    let sockets = work_dir();
    let path = sockets.path().join("server");
    let daemon = Daemon::setup()
        .argument("--sandbox-backend")
        .argument(backend)
        .set("sandbox.accept_gaps", "outsideMetadata,protectedMetadata")
        .listen("127.0.0.1:0")
        .listen("[::1]:0")
        .listen(&format!("unix:{}", path.display()))
        .start()
        .await;
    let client = daemon.client().await;
    for url in daemon.urls() {
        let inside = |script: &str| python(script, target(url)).with("sandbox", context.clone());
        assert_eq!(said(&client, &inside(UPGRADE)).await, "403", "{url}");
        assert_eq!(said(&client, &inside(&format!("{SCATTERED}{UPGRADE}"))).await, "403", "{url}");
        assert_eq!(said(&client, &python(UPGRADE, target(url))).await, "101", "{url}");
    }
    let marker = Marker::new();
    let lasting = Start::sh("echo up; sleep 301").with("sandbox", context).marked(&marker);
    client.start(&lasting).await;
    client.wait_output(&lasting.id(), "up").await;
    for url in &daemon.urls()[..2] {
        is_let_in(url).await;
        assert_eq!(said(&client, &python(UPGRADE, target(url))).await, "101", "{url}");
    }
    assert_eq!(said(&client, &python(UPGRADE, target(&daemon.urls()[2]))).await, "101");
}

#[test_case("namespaces"; "namespaces")]
#[test_case("landlock"; "landlock")]
#[tokio::test]
async fn a_sandboxed_program_with_a_network_is_refused(backend: &str) {
    refused(backend, read_only("enabled")).await;
}

#[test_case("namespaces"; "namespaces")]
#[test_case("landlock"; "landlock")]
#[tokio::test]
async fn so_is_one_that_may_write_somewhere(backend: &str) {
    let directory = work_dir();
    refused(backend, workspace(&directory.path().canonicalize().unwrap(), "enabled")).await;
}

#[test_case("namespaces"; "namespaces")]
#[test_case("landlock"; "landlock")]
#[tokio::test]
async fn without_a_network_there_is_no_connection_at_all(backend: &str) {
    let daemon = Daemon::setup().argument("--sandbox-backend").argument(backend).start().await;
    let client = daemon.client().await;
    let inside = python(UPGRADE, target(daemon.url())).with("sandbox", read_only("restricted"));
    assert_eq!(said(&client, &inside).await, "none");
}
