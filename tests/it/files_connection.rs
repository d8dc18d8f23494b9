//! The file system of a server whose connection is lost, or that lacks something.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use exec_server::backend::{ReadFileOptions, WriteFileOptions};
use exec_server::environment::{ClientOptions, Environment, EnvironmentConnectionState};
use exec_server::path_uri::PathUri;
use exec_server::protocol::fs::FileMode;
use exec_server::protocol::sandbox::SandboxContext;
use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;
use tokio::time::timeout;

use crate::support::messages::{Fate, MessageProxy, Way};
use crate::support::place::Room;
use crate::support::proxy::CutProxy;
use crate::support::scripted::ScriptedServer;
use crate::support::server::ServerProcess;
use crate::support::soon;

fn uri(text: &str) -> PathUri {
    PathUri::parse(text).unwrap()
}

/// A server behind a proxy that breaks the connection at the first message of this method, once it is armed.
struct Fragile {
    environment: Environment,
    armed: Arc<AtomicBool>,
    /// How often the method went to the server.
    seen: Arc<AtomicUsize>,
    _proxy: MessageProxy,
    _server: ServerProcess,
}

impl Fragile {
    async fn new(method: &'static str, fate: Fate) -> Self {
        let server = ServerProcess::start().await;
        let (armed, seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let rule = {
            let (armed, seen) = (Arc::clone(&armed), Arc::clone(&seen));
            move |way: Way, message: &serde_json::Value| {
                if way == Way::ToClient || message["method"] != method {
                    return Fate::Pass;
                }
                seen.fetch_add(1, Ordering::Relaxed);
                if armed.swap(false, Ordering::Relaxed) { fate.clone() } else { Fate::Pass }
            }
        };
        let proxy = MessageProxy::start(server.url(), rule).await;
        let environment = Environment::create_for_tests(Some(proxy.url())).unwrap();
        soon(environment.wait_until_ready()).await.unwrap();
        Self { environment, armed, seen, _proxy: proxy, _server: server }
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
}

#[test_case(Fate::Cut; "not arrived")]
#[test_case(Fate::PassAndCut; "answer lost")]
#[tokio::test]
async fn a_read_is_repeated_on_the_next_connection(fate: Fate) {
    let (place, room) = (Fragile::new("fs/readFile", fate).await, Room::new());
    std::fs::write(room.path("f"), "content").unwrap();
    place.arm();
    let read = place.environment.get_filesystem();
    let content = soon(read.read_file(&room.uri("f"), ReadFileOptions::default(), None)).await.unwrap();
    assert_eq!((content, place.seen.load(Ordering::Relaxed)), (b"content".to_vec(), 2));
}

#[test_case(Fate::Cut; "not arrived")]
#[test_case(Fate::PassAndCut; "answer lost")]
#[tokio::test]
async fn a_change_is_never_repeated(fate: Fate) {
    let (place, room) = (Fragile::new("fs/writeFile", fate).await, Room::new());
    let files = place.environment.get_filesystem();
    let write = async |name: &str| {
        soon(files.write_file(&room.uri(name), b"x".to_vec(), WriteFileOptions::default(), None)).await
    };
    place.arm();
    let error = write("f").await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BrokenPipe, "transport disconnected"));
    write("g").await.unwrap();
    // Whether the first took effect is not known; it was sent once.
    assert!(room.path("g").exists());
    assert_eq!(place.seen.load(Ordering::Relaxed), 2);
}

/// A handle is of one connection: the same name on the next would be another file.
#[tokio::test]
async fn an_open_file_ends_with_its_connection() {
    let (place, room) = (Fragile::new("fs/getMetadata", Fate::Cut).await, Room::new());
    std::fs::write(room.path("big"), vec![7; 20 << 20]).unwrap();
    let files = place.environment.get_filesystem();
    let mut reader = soon(files.read_file_stream(&room.uri("big"), None)).await.unwrap();
    let mut writer = soon(files.open_for_replacement(&room.uri("new"), None)).await.unwrap();
    soon(reader.next()).await.unwrap();
    place.arm();
    soon(files.get_metadata(&room.uri("big"), Default::default(), None)).await.unwrap();
    let read = async {
        while reader.next().await?.is_some() {}
        Ok::<_, std::io::Error>(())
    };
    assert_eq!(soon(read).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(soon(reader.next()).await.unwrap().is_none());
    soon(writer.write(b"x")).await.unwrap();
    assert_eq!(soon(writer.finish()).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut again = soon(files.read_file_stream(&room.uri("big"), None)).await.unwrap();
    assert_eq!(soon(again.next()).await.unwrap().map(|bytes| bytes.len()), Some(1 << 20));
}

/// N7.
#[tokio::test]
async fn the_passive_file_system_never_waits_and_never_dials() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = Environment::create_for_tests(Some(proxy.url())).unwrap();
    let passive = environment.get_filesystem_without_reconnect();
    let look = || async {
        let root = uri("file:///");
        timeout(Duration::from_secs(1), passive.read_directory(&root, None)).await.expect("it waits")
    };
    assert_eq!(look().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(!environment.startup_finished(), "it has dialled");
    soon(environment.wait_until_ready()).await.unwrap();
    assert!(!look().await.unwrap().is_empty());
    proxy.pause();
    proxy.cut();
    let mut state = environment.subscribe_connection_state().unwrap();
    soon(state.wait_for(|state| *state == EnvironmentConnectionState::Disconnected)).await.unwrap();
    assert_eq!(look().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    proxy.resume();
    soon(state.wait_for(|state| *state == EnvironmentConnectionState::Connected)).await.unwrap();
    assert!(!look().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_file_system_without_a_server_says_so() {
    let options = ClientOptions { connect_timeout: Duration::from_secs(2), ..ClientOptions::default() };
    let environment = Environment::remote("ws://127.0.0.1:1", options).unwrap();
    let error = environment.get_filesystem().canonicalize(&uri("file:///"), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    assert!(error.to_string().contains("ws://127.0.0.1:1"), "{error}");
}

fn sandbox(permissions: serde_json::Value, level: &str) -> SandboxContext {
    serde_json::from_value(json!({"permissions": permissions, "windowsSandboxLevel": level})).unwrap()
}

/// D4 and the rows of section 6: refused here, with nothing sent.
#[tokio::test]
async fn what_a_server_lacks_is_not_sent() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    environment.start_connecting();
    let mut connection = server.accept_session(json!({})).await;
    let (files, path) = (environment.get_filesystem(), uri("file:///x"));
    let mxc = sandbox(json!({"type": "disabled"}), "mxc");
    let entries = json!({"type": "restricted", "entries": []});
    let confined =
        sandbox(json!({"type": "managed", "file_system": entries, "network": "enabled"}), "disabled");
    let mode = FileMode::from_bits(0o644);
    let atomic = WriteFileOptions { atomic: Some(true), ..Default::default() };
    let refused = [
        (
            files.get_metadata(&path, Default::default(), Some(&mxc)).await.err(),
            "requested MXC Windows sandbox",
        ),
        (files.read_file_stream(&path, Some(&mxc)).await.err(), "requested MXC Windows sandbox"),
        (files.read_file_stream(&path, Some(&confined)).await.err(), "not support sandboxed file streaming"),
        (files.open_for_replacement(&path, None).await.err(), "not support writable file streams"),
        (files.rename(&path, &path, Default::default(), None).await.err(), "`fileOperations`"),
        (files.set_permissions(&path, mode, None).await.err(), "`fileOperations`"),
        (files.create_symlink(&path, "t", None).await.err(), "`fileOperations`"),
        (files.write_file(&path, Vec::new(), atomic, None).await.err(), "`fileOperations`"),
        (files.read_directory_with_links(&path, None).await.err(), "`fileOperations`"),
    ];
    for (error, part) in refused {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(part), "{error}");
    }
    // Nothing was sent: the next call is this one, with what an older server knows.
    let (listed, ()) = tokio::join!(files.read_directory(&path, None), async {
        let call = connection.expect("fs/readDirectory").await;
        assert_eq!(call.params, json!({"path": "file:///x", "sandbox": null}));
        connection.reply(&call, json!({"entries": []})).await;
    });
    assert!(listed.unwrap().is_empty());
}

#[tokio::test]
async fn an_open_that_nobody_waits_for_is_closed() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    environment.start_connecting();
    let mut connection = server.accept_session(json!({})).await;
    let files = environment.get_filesystem();
    let open = tokio::spawn(async move { files.read_file_stream(&uri("file:///x"), None).await.map(drop) });
    let opened = connection.expect("fs/open").await;
    open.abort();
    let closed = connection.expect("fs/close").await;
    assert_eq!(closed.params["handleId"], opened.params["handleId"]);
}

#[tokio::test]
async fn a_file_that_grows_while_it_is_read_ends_where_its_end_was_met() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    environment.start_connecting();
    let mut connection = server.accept_session(json!({})).await;
    let files = environment.get_filesystem();
    let read = tokio::spawn(async move {
        let mut stream = files.read_file_stream(&uri("file:///x"), None).await.unwrap();
        let mut content = Vec::new();
        while let Some(bytes) = stream.next().await.unwrap() {
            content.extend(bytes);
        }
        content
    });
    let open = connection.expect("fs/open").await;
    connection.reply(&open, json!({"handleId": open.params["handleId"]})).await;
    // The end is met in the first block; the next block is there when it is read.
    for (chunk, eof) in [("aGk=", true), ("eHg=", true)] {
        let block = connection.expect("fs/readBlock").await;
        connection.reply(&block, json!({"chunk": chunk, "eof": eof})).await;
    }
    loop {
        let call = connection.next().await.unwrap();
        let result = if call["method"] == "fs/close" { json!({}) } else { json!({"chunk": "", "eof": true}) };
        connection.text(json!({"id": call["id"], "result": result}).to_string()).await;
        if call["method"] == "fs/close" {
            break;
        }
    }
    assert_eq!(soon(read).await.unwrap(), b"hi");
}
