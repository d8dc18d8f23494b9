//! Environments by name: rows N1 to N5 of the contract, and what replacing one leaves alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exec_server::backend::{ExecServerError, ReadFileOptions, Within};
use exec_server::environment::{
    EnvironmentConnectionState, EnvironmentManager, EnvironmentObservedStatus, ExecServerRuntimePaths,
    LOCAL_ENVIRONMENT_ID, PreparedEnvironmentManager, REMOTE_ENVIRONMENT_ID, RemoteEnvironmentOptions,
};
use exec_server::outbound::{HttpClientFactory, OutboundProxyPolicy};
use pretty_assertions::assert_eq;
use serde_json::json;
use tempfile::TempDir;
use test_case::test_case;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::events::{complete, rest};
use crate::support::gateway::{Gateway, Kind};
use crate::support::params::script;
use crate::support::place::Room;
use crate::support::scripted::ScriptedServer;
use crate::support::server::ServerProcess;
use crate::support::{soon, until};

fn settings(text: &str) -> TempDir {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("environments.toml"), text).unwrap();
    home
}

async fn prepare(home: &Path) -> PreparedEnvironmentManager {
    soon(EnvironmentManager::prepare_from_codex_home(home)).await.unwrap()
}

fn direct() -> HttpClientFactory {
    HttpClientFactory::with_environment(OutboundProxyPolicy::ReqwestDefault, Vec::new())
}

fn remote(url: &str) -> String {
    format!(
        "default = \"remote\"\ninclude_local = false\n\n[[environments]]\nid = \"remote\"\nurl = \"{url}\"\n"
    )
}

async fn refused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("ws://{}", listener.local_addr().unwrap())
}

/// N1, N2.
#[tokio::test]
async fn a_prepared_server_is_reached_through_the_system_proxy() {
    let server =
        ServerProcess::start_with(&["--set", "server.allowed_hosts=exec-server-system-proxy.invalid"]).await;
    let mut proxy = Gateway::start(Kind::Http(200), server.url()).await;
    let home = settings(&remote("ws://exec-server-system-proxy.invalid:8765/"));
    let prepared = prepare(home.path()).await;
    assert!(prepared.default_environment_is_remote());
    assert!(!proxy.was_asked());
    let route = ("http://exec-server-system-proxy.invalid:8765/", format!("http://127.0.0.1:{}", proxy.port));
    let http = HttpClientFactory::with_environment(OutboundProxyPolicy::RespectSystemProxy, Vec::new());
    let manager = prepared.build(None, http.with_system_route(route.0, &route.1).unwrap()).unwrap();
    let head = timeout(Duration::from_secs(5), proxy.asked()).await.unwrap();
    assert_eq!(head.lines().next(), Some("CONNECT exec-server-system-proxy.invalid:8765 HTTP/1.1"));
    let environment = manager.default_environment().unwrap();
    environment.info().within(Duration::from_secs(5)).await.unwrap();
}

/// N4, and the old handle is not led elsewhere.
#[tokio::test]
async fn a_replaced_environment_is_new_and_its_old_handle_stays_old() {
    let server = ServerProcess::start().await;
    let manager = EnvironmentManager::default_for_tests();
    let refused = refused_address().await;
    manager.upsert_environment("x".into(), refused, Some(Duration::from_millis(100))).unwrap();
    let old = manager.get_environment("x").unwrap();
    old.wait_until_ready().within(Duration::from_secs(2)).await.unwrap_err();
    manager.upsert_environment("x".into(), server.url().into(), None).unwrap();
    let new = manager.get_environment("x").unwrap();
    assert!(!Arc::ptr_eq(&old, &new));
    soon(new.wait_until_ready()).await.unwrap();
    soon(old.wait_until_ready()).await.unwrap_err();
}

#[tokio::test]
async fn what_runs_in_a_replaced_environment_goes_on() {
    let (first, second) = (ServerProcess::start().await, ServerProcess::start().await);
    let manager = EnvironmentManager::create_for_tests(Some(first.url().into()), None).await;
    let old = manager.default_environment().unwrap();
    let process = soon(old.get_exec_backend().start(script("p", "sleep 0.3; echo kept"))).await.unwrap();
    manager.upsert_environment(REMOTE_ENVIRONMENT_ID.into(), second.url().into(), None).unwrap();
    let new = manager.default_environment().unwrap();
    soon(new.get_exec_backend().start(script("p", "true"))).await.unwrap();
    let told = rest(&mut process.process.subscribe_events()).await;
    assert_eq!(complete(&told), ("kept\n".into(), 0));
}

/// N5, of a server and of this machine.
#[test_case(true; "remote")]
#[test_case(false; "local")]
#[tokio::test]
async fn the_default_environment_connects_by_itself(is_remote: bool) {
    let server = ServerProcess::start().await;
    let url = is_remote.then(|| server.url().to_owned());
    let manager = EnvironmentManager::create_for_tests(url, None).await;
    let environment = manager.default_environment().unwrap();
    assert_eq!(environment.is_remote(), is_remote);
    let info = soon(environment.info()).await.unwrap();
    assert!(info.capabilities.process_control && info.capabilities.environment_config_read);
    assert_eq!(manager.get_environment(LOCAL_ENVIRONMENT_ID).is_some(), !is_remote);
}

/// Servers are connected to as soon as a manager holds them, once; programs are not.
#[tokio::test]
async fn background_attempts_are_made_once_and_only_to_servers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let room = TempDir::new().unwrap();
    let started = room.path().join("started");
    let text = format!(
        "include_local = false\n[[environments]]\nid = \"server\"\nurl = \"ws://{}\"\n[[environments]]\n\
         id = \"program\"\nprogram = \"touch\"\nargs = [\"started\"]\ncwd = \"{}\"\n",
        listener.local_addr().unwrap(),
        room.path().display()
    );
    let home = settings(&text);
    let prepared = prepare(home.path()).await;
    assert!(!prepared.default_environment_is_remote());
    assert!(timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "dialled while it is read");
    let manager = prepared.build(None, direct()).unwrap();
    assert!(manager.default_environment().is_none());
    let server = manager.get_environment("server").unwrap();
    assert_eq!(server.status().await, EnvironmentObservedStatus::Pending);
    drop(soon(listener.accept()).await.unwrap());
    soon(async { until(|| server.startup_finished()).await }).await;
    assert!(matches!(server.status().await, EnvironmentObservedStatus::Disconnected { .. }));
    assert!(timeout(Duration::from_millis(300), listener.accept()).await.is_err(), "tried again unasked");

    let program = manager.get_environment("program").unwrap();
    assert_eq!(program.status().await, EnvironmentObservedStatus::Pending);
    assert!(!started.exists());
    soon(program.wait_until_ready()).await.unwrap_err();
    assert!(started.exists());
}

#[tokio::test]
async fn the_settings_reach_the_connection() {
    let server = ScriptedServer::start().await;
    let text = remote(&server.url()) + "auth_bearer_token = \"t k\"\ninitialize_timeout_sec = 0.2\n";
    let home = settings(&(text + "skills = { required = [\"deploy\"] }\n"));
    let manager = prepare(home.path()).await.build(None, direct()).unwrap();
    assert_eq!(manager.required_skills("remote"), ["deploy"]);
    assert!(manager.required_skills("local").is_empty());
    let mut connection = server.accept().await;
    assert!(connection.headers.contains(&("authorization".into(), "Bearer t k".into())));
    connection.expect("initialize").await;
    let error = soon(manager.default_environment().unwrap().wait_until_ready()).await.unwrap_err();
    let ExecServerError::ConnectionAttempt(error) = error else { panic!("{error}") };
    assert!(
        matches!(*error, ExecServerError::InitializeTimeout(limit) if limit == Duration::from_millis(200))
    );
}

#[test_case(None, Some(false), true; "unset")]
#[test_case(Some("  "), Some(false), true; "blank")]
#[test_case(Some(" NONE "), None, false; "none")]
#[test_case(Some(" ws://127.0.0.1:1/x "), Some(true), false; "a server")]
#[tokio::test]
async fn a_url_alone_decides_where_there_is_no_file(url: Option<&str>, remote: Option<bool>, local: bool) {
    let prepared = PreparedEnvironmentManager::from_server_url(url).unwrap();
    assert_eq!(prepared.default_environment_is_remote(), remote == Some(true));
    let manager = prepared.build(Some(ExecServerRuntimePaths::itself()), direct()).unwrap();
    assert_eq!(manager.default_environment().map(|environment| environment.is_remote()), remote);
    assert_eq!(manager.get_environment(LOCAL_ENVIRONMENT_ID).is_some(), local);
    assert_eq!(manager.get_environment(REMOTE_ENVIRONMENT_ID).is_some(), remote == Some(true));
}

#[tokio::test]
async fn a_local_environment_needs_paths_and_a_wrong_url_is_said() {
    let prepared = PreparedEnvironmentManager::from_server_url(None).unwrap();
    let error = prepared.build(None, direct()).unwrap_err().to_string();
    assert!(error.contains("include_local = false"), "{error}");
    let error = PreparedEnvironmentManager::from_server_url(Some("http://h")).unwrap_err().to_string();
    assert!(error.contains("must use ws:// or wss://"), "{error}");
    let home = settings("default = 3");
    let error = EnvironmentManager::prepare_from_codex_home(home.path()).await.unwrap_err().to_string();
    assert!(error.contains("environments.toml") && error.contains("`default`"), "{error}");
}

#[test_case("", "ws://h", "must not be empty"; "empty id")]
#[test_case("local", "ws://h", "is reserved"; "reserved id")]
#[test_case("a b", "ws://h", "letters"; "space in the id")]
#[test_case("x", "", "must not be empty"; "empty url")]
#[test_case("x", "none", "must not be empty or `none`"; "no url")]
#[test_case("x", "http://h", "must use ws:// or wss://"; "not a WebSocket")]
#[tokio::test]
async fn what_the_file_could_not_say_is_refused_and_changes_nothing(id: &str, url: &str, why: &str) {
    let manager = EnvironmentManager::without_environments(direct());
    manager.upsert_environment("x".into(), "ws://127.0.0.1:1".into(), None).unwrap();
    let before = manager.get_environment("x").unwrap();
    let error = manager.upsert_environment(id.into(), url.into(), None).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    assert!(Arc::ptr_eq(&before, &manager.get_environment("x").unwrap()));
    assert!(manager.get_environment(id).is_none_or(|now| Arc::ptr_eq(&before, &now)));
    assert!(manager.default_environment().is_none());
}

#[tokio::test]
async fn options_have_a_token_only_where_nobody_reads_it() {
    let manager = EnvironmentManager::without_environments(direct());
    let options = |url: &str| RemoteEnvironmentOptions {
        url: url.into(),
        auth_bearer_token: Some("t".into()),
        request_id: Some("r".into()),
        ..RemoteEnvironmentOptions::default()
    };
    let error = manager.upsert_environment_with_options("x".into(), options("ws://10.0.0.1:1")).unwrap_err();
    assert!(error.to_string().contains("clear text"), "{error}");
    let server = ScriptedServer::start().await;
    manager.upsert_environment_with_options("x".into(), options(&server.url())).unwrap();
    let connection = server.accept_session(json!({})).await;
    for header in [("authorization", "Bearer t"), ("x-request-id", "r")] {
        assert!(connection.headers.contains(&(header.0.into(), header.1.into())));
    }
}

#[test]
fn environments_can_be_added_before_there_is_a_runtime() {
    let manager = EnvironmentManager::without_environments(direct());
    manager.upsert_environment("x".into(), "ws://127.0.0.1:1".into(), None).unwrap();
    let environment = manager.get_environment("x").unwrap();
    assert!(!environment.startup_finished());
}

/// A deadline of the caller, on calls that would wait for ever.
#[tokio::test]
async fn any_call_can_have_a_deadline() {
    let server = ScriptedServer::start().await;
    let manager = EnvironmentManager::create_for_tests(Some(server.url()), None).await;
    let environment = manager.default_environment().unwrap();
    let mut connection = server.accept_session(json!({})).await;
    let mut states = environment.subscribe_connection_state().unwrap();
    soon(states.wait_for(|state| *state == EnvironmentConnectionState::Connected)).await.unwrap();
    let limit = Duration::from_millis(100);
    let start = environment.get_exec_backend();
    let error = start.start(script("p", "true")).within(limit).await.err().unwrap();
    assert!(matches!(error, ExecServerError::DeadlineExceeded(_)), "{error}");
    let files = environment.get_filesystem();
    let room = Room::new();
    let read = files.read_file(&room.uri("f"), ReadFileOptions::default(), None).within(limit).await;
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    // The start is in doubt, so what it started is ended as soon as that is known.
    let call = connection.expect("process/start").await;
    connection.expect("fs/readFile").await;
    connection.reply(&call, json!({"processId": "p"})).await;
    assert_eq!(connection.expect("process/terminate").await.params["processId"], "p");
}
