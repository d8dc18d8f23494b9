//! What the client does of discovery: what it does not send, and what it repeats. Rows D1 to D5 of the contract.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec_server::backend::ExecServerError;
use exec_server::environment::{ClientOptions, Environment};
use exec_server::path_uri::PathUri;
use exec_server::protocol::discovery::{
    CapabilityRootDiscoverRequest, CapabilityRootsDiscoverParams, DiscoverV2CapabilitiesRequest,
};
use exec_server::protocol::sandbox::SandboxContext;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::time::{Instant, sleep, timeout};

use crate::support::messages::{Fate, MessageProxy, Way};
use crate::support::place::Room;
use crate::support::sandbox::{disabled, mxc, reading, reading_everything};
use crate::support::scripted::{SESSION, ScriptedConnection, ScriptedServer, welcome};
use crate::support::server::ServerProcess;
use crate::support::soon;

/// A server that announces none of these, and the requests that reached it.
struct Older {
    environment: Environment,
    sent: Arc<Mutex<Vec<Value>>>,
    _proxy: MessageProxy,
    _server: ServerProcess,
}

impl Older {
    async fn without(flags: &'static [&'static str]) -> Self {
        let server = ServerProcess::start().await;
        let sent = Arc::<Mutex<Vec<Value>>>::default();
        let seen = Arc::clone(&sent);
        let rule = move |way: Way, message: &Value| {
            let method = message["method"].as_str().unwrap_or_default();
            if way == Way::ToServer && (method.starts_with("capabil") || method.starts_with("fs/")) {
                seen.lock().unwrap().push(message.clone());
            }
            let mut changed = message.clone();
            for place in ["/result/environmentInfo/capabilities", "/result/capabilities"] {
                for flag in flags {
                    if let Some(announced) = changed.pointer_mut(&format!("{place}/{flag}")) {
                        *announced = false.into();
                    }
                }
            }
            if changed == *message { Fate::Pass } else { Fate::Change(changed) }
        };
        let proxy = MessageProxy::start(server.url(), rule).await;
        let environment = Environment::create_for_tests(Some(proxy.url())).unwrap();
        Self { environment, sent, _proxy: proxy, _server: server }
    }

    fn sent(&self) -> Vec<Value> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }

    async fn roots(&self, roots: &[CapabilityRootDiscoverRequest]) -> Result<Vec<String>, ExecServerError> {
        let params = CapabilityRootsDiscoverParams { roots: roots.to_vec() };
        let found = soon(self.environment.discover_capability_roots(params)).await?;
        Ok(found.roots.into_iter().map(|root| root.error.unwrap_or(root.id)).collect())
    }
}

fn root(id: &str, room: &Room, sandbox: Option<SandboxContext>) -> CapabilityRootDiscoverRequest {
    CapabilityRootDiscoverRequest { id: id.to_owned(), path: room.uri(""), sandbox }
}

/// D1 to D4.
#[tokio::test]
async fn an_older_server_gets_only_what_it_understands() {
    let older = Older::without(&["capabilityDiscoverySandbox", "windowsMxc"]).await;
    let (room, info) = (Room::new(), soon(older.environment.info()).await.unwrap());
    assert!(!info.capabilities.capability_discovery_sandbox);
    let here = room.path("");
    let plain = [
        root("full", &room, Some(reading_everything(&here))),
        root("off", &room, Some(disabled(&here))),
        root("none", &room, None),
    ];
    assert_eq!(older.roots(&plain).await.unwrap(), ["full", "off", "none"]);
    let sent = older.sent();
    assert_eq!(sent.len(), 1);
    let params = CapabilityRootsDiscoverParams { roots: plain.to_vec() };
    assert_eq!(sent[0]["params"], serde_json::to_value(params).unwrap());

    let restricted = reading(&[&here], &[]);
    let one_of_two = [plain[0].clone(), root("restricted", &room, Some(restricted.clone()))];
    let refused = older.roots(&one_of_two).await.unwrap_err();
    assert!(matches!(refused, ExecServerError::Protocol(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("exec-server does not support sandboxed capability discovery"), "{text}");

    let other_platform = mxc(restricted);
    let refused = older.roots(&[root("mxc", &room, Some(other_platform.clone()))]).await.unwrap_err();
    let why = "does not support the requested MXC Windows sandbox";
    assert!(matches!(&refused, ExecServerError::Protocol(text) if text.contains(why)), "{refused:?}");
    let files = older.environment.get_filesystem();
    let refused = soon(files.get_metadata(&room.uri(""), Default::default(), Some(&other_platform))).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains(why), "{refused}");
    assert_eq!(older.sent(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_deny_rule_makes_a_sandbox_that_restricts() {
    let older = Older::without(&["capabilityDiscoverySandbox"]).await;
    let room = Room::new();
    let all_but_one = reading(&[std::path::Path::new("/")], &[&room.path("x")]);
    older.roots(&[root("r", &room, Some(all_but_one))]).await.unwrap_err();
    assert_eq!(older.sent(), Vec::<Value>::new());
}

#[tokio::test]
async fn an_inventory_is_not_asked_of_a_server_without_one() {
    let older = Older::without(&["capabilityDiscoveryV2", "environmentConfigRead"]).await;
    let request = DiscoverV2CapabilitiesRequest { cwd: PathUri::parse("file:///").unwrap(), sandbox: None };
    let refused = soon(older.environment.discover_capabilities(request)).await.unwrap_err();
    let is_named = |text: &str| text.contains("unavailable") && text.contains("capabilityDiscoveryV2");
    assert!(matches!(&refused, ExecServerError::Protocol(text) if is_named(text)), "{refused:?}");
    assert_eq!(older.sent(), Vec::<Value>::new());
}

fn answer(id: &str, path: &PathUri) -> Value {
    json!({"roots": [{"id": id, "path": path, "plugin": null, "skills": [], "namespaceManifests": [],
        "warnings": [], "error": null}]})
}

/// The next connection, which resumes the session.
async fn resumed(server: &ScriptedServer, capabilities: Value) -> ScriptedConnection {
    let mut connection = server.accept().await;
    let initialize = connection.expect("initialize").await;
    assert_eq!(initialize.params["resumeSessionId"], SESSION);
    connection.reply(&initialize, welcome(capabilities)).await;
    connection.expect("initialized").await;
    connection
}

/// D5: cut on receipt, asked once more within the call, and the second answer takes its time.
#[tokio::test]
async fn an_interrupted_discovery_is_asked_once_more() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    let room = Room::new();
    let params = CapabilityRootsDiscoverParams { roots: vec![root("r", &room, None)] };
    let script = async {
        let mut connection = server.accept_session(json!({})).await;
        let first = connection.expect("capabilityRoots/discoverV1").await;
        drop(connection);
        let mut connection = resumed(&server, json!({})).await;
        let second = connection.expect("capabilityRoots/discoverV1").await;
        assert_eq!(first.params, second.params);
        sleep(Duration::from_secs(9)).await;
        connection.reply(&second, answer("r", &room.uri(""))).await;
        connection
    };
    let started = Instant::now();
    let (found, _connection) = tokio::join!(environment.discover_capability_roots(params), script);
    assert_eq!(found.unwrap().roots[0].id, "r");
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_second_interruption_is_the_caller_s() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    let request = DiscoverV2CapabilitiesRequest { cwd: PathUri::parse("file:///").unwrap(), sandbox: None };
    let script = async {
        let announced = json!({"capabilityDiscoveryV2": true});
        let mut connection = server.accept_session(announced.clone()).await;
        connection.expect("capabilities/discoverV2").await;
        drop(connection);
        let mut connection = resumed(&server, announced.clone()).await;
        connection.expect("capabilities/discoverV2").await;
        drop(connection);
        // The session goes on, and nothing is asked on it.
        let mut connection = resumed(&server, announced).await;
        timeout(Duration::from_millis(200), connection.next()).await.unwrap_err();
    };
    let (found, ()) = tokio::join!(soon(environment.discover_capabilities(request)), script);
    assert!(matches!(found, Err(ExecServerError::TransportDisconnected)), "{found:?}");
}

/// A server that comes back with less is asked for less.
#[tokio::test]
async fn the_second_request_is_held_to_what_the_second_connection_announces() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    let room = Room::new();
    let sandbox = reading(&[&room.path("")], &[]);
    let params = CapabilityRootsDiscoverParams { roots: vec![root("r", &room, Some(sandbox))] };
    let script = async {
        let mut connection = server.accept_session(json!({"capabilityDiscoverySandbox": true})).await;
        connection.expect("capabilityRoots/discoverV1").await;
        drop(connection);
        let mut connection = resumed(&server, json!({})).await;
        timeout(Duration::from_millis(200), connection.next()).await.unwrap_err();
    };
    let (found, ()) = tokio::join!(soon(environment.discover_capability_roots(params)), script);
    let refused = found.unwrap_err();
    assert!(refused.to_string().contains("sandboxed capability discovery"), "{refused}");
}

/// Errors of the server are answers: nothing is asked again.
#[tokio::test]
async fn an_error_of_the_server_is_not_repeated() {
    let server = ScriptedServer::start().await;
    let environment = Environment::create_for_tests(Some(server.url())).unwrap();
    let room = Room::new();
    let params = CapabilityRootsDiscoverParams { roots: vec![root("r", &room, None)] };
    let script = async {
        let mut connection = server.accept_session(json!({})).await;
        let call = connection.expect("capabilityRoots/discoverV1").await;
        connection.fail(&call, -32603, "no disk").await;
        timeout(Duration::from_millis(200), connection.next()).await.unwrap_err();
    };
    let (found, ()) = tokio::join!(soon(environment.discover_capability_roots(params)), script);
    let failed = found.unwrap_err();
    assert!(matches!(&failed, ExecServerError::Server { code: -32603, .. }), "{failed:?}");
}

/// A server that stays away for longer than the wait leaves the first error; a new session is as good as the old one.
#[test_case(true; "it comes back as another session")]
#[test_case(false; "it stays away")]
#[tokio::test]
async fn the_wait_for_a_lost_server(comes_back: bool) {
    let server = ScriptedServer::start().await;
    let options = ClientOptions { recovery_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let environment = Environment::remote(&server.url(), options).unwrap();
    let room = Room::new();
    let params = CapabilityRootsDiscoverParams { roots: vec![root("r", &room, None)] };
    let script = async {
        let mut connection = server.accept_session(json!({})).await;
        connection.expect("capabilityRoots/discoverV1").await;
        drop(connection);
        if !comes_back {
            // Whoever connects is sent away.
            loop {
                drop(server.accept_raw().await);
            }
        }
        let mut connection = server.accept().await;
        let initialize = connection.expect("initialize").await;
        connection.fail(&initialize, -32600, "unknown session id").await;
        let mut connection = server.accept_session(json!({})).await;
        let call = connection.expect("capabilityRoots/discoverV1").await;
        connection.reply(&call, answer("r", &room.uri(""))).await;
        std::future::pending::<()>().await;
    };
    let found = tokio::select! {
        found = soon(environment.discover_capability_roots(params)) => found,
        () = script => unreachable!(),
    };
    match comes_back {
        true => assert_eq!(found.unwrap().roots[0].id, "r"),
        false => assert!(matches!(found, Err(ExecServerError::TransportDisconnected)), "{found:?}"),
    }
}
