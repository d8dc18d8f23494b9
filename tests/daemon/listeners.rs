//! Where the server listens, whom it lets in, and how many.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::support::client::upgrade;
use super::support::http::{exchange, status, upgrade_head};
use super::support::{Client, Daemon, End, LIMIT, Refused, Start, eventually, work_dir};

async fn status_of(daemon: &Daemon, head: &str) -> u16 {
    status(&exchange(daemon.address(), head).await)
}

#[tokio::test]
async fn a_page_in_a_browser_is_kept_out() {
    let daemon = Daemon::start().await;
    let host = daemon.address().to_owned();
    for origin in ["http://evil.test", "null", "", &format!("http://{host}"), "file://"] {
        let line = format!("Origin: {origin}");
        assert_eq!(status_of(&daemon, &upgrade_head(&host, &[&line])).await, 403, "{origin:?}");
        for path in ["/readyz", "/nowhere"] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\norigin: {origin}\r\n\r\n");
            assert_eq!(status_of(&daemon, &head).await, 403, "{path} from {origin:?}");
        }
    }
    assert_eq!(status_of(&daemon, &upgrade_head(&host, &[])).await, 101);
}

#[tokio::test]
async fn a_name_that_leads_here_is_no_key() {
    let daemon = Daemon::setup().set("server.allowed_hosts", "known.test").start().await;
    for (host, expected) in [
        ("evil.test", 403),
        ("evil.test:80", 403),
        ("localhost.evil.test", 403),
        ("127.0.0.1.evil.test", 403),
        ("10.0.0.1", 403),
        ("", 403),
        ("localhost", 101),
        ("LOCALHOST:1", 101),
        ("127.0.0.1", 101),
        ("127.9.9.9:5", 101),
        ("[::1]:5", 101),
        ("known.test", 101),
        ("known.test:8765", 101),
    ] {
        assert_eq!(status_of(&daemon, &upgrade_head(host, &[])).await, expected, "{host:?}");
        let nowhere = format!("GET /nowhere HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let expected = if expected == 101 { 404 } else { 403 };
        assert_eq!(status_of(&daemon, &nowhere).await, expected, "{host:?} before the path");
    }
}

#[tokio::test]
async fn paths_and_methods() {
    let daemon = Daemon::start().await;
    for (line, expected) in [
        ("GET /readyz", 200),
        ("HEAD /readyz?x", 200),
        ("POST /readyz", 405),
        ("GET /", 400),
        ("POST /", 405),
        ("GET /readyz/", 404),
        ("GET /ws", 404),
    ] {
        let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(status_of(&daemon, &head).await, expected, "{line}");
    }
    let head = upgrade_head("localhost", &["Sec-WebSocket-Extensions: permessage-deflate"]);
    let answer = exchange(daemon.address(), &head).await;
    assert_eq!(status(&answer), 101);
    assert!(!answer.to_lowercase().contains("sec-websocket-extensions"));
    assert_eq!(
        status_of(&daemon, &upgrade_head("localhost", &[&format!("X: {}", "x".repeat(500_000))])).await,
        431
    );
    assert_eq!(status_of(&daemon, "nonsense\r\n\r\n").await, 400);
}

#[test_case(b""; "nothing")]
#[test_case(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgr"; "half a head")]
#[tokio::test]
async fn who_never_finishes_the_head_is_dropped(sent: &[u8]) {
    let daemon = Daemon::setup().set("server.head_timeout_ms", "400").start().await;
    let mut socket = TcpStream::connect(daemon.address()).await.unwrap();
    let began = Instant::now();
    socket.write_all(sent).await.unwrap();
    let mut rest = Vec::new();
    timeout(LIMIT, socket.read_to_end(&mut rest)).await.expect("the connection is ended").ok();
    assert!(began.elapsed() >= Duration::from_millis(350), "not before its time");
}

#[tokio::test]
async fn who_never_initializes_is_dropped() {
    let daemon = Daemon::setup().set("server.initialize_timeout_ms", "400").start().await;
    let client = daemon.client().await;
    let (silent, talker) = (Client::connect(daemon.url()).await, Client::connect(daemon.url()).await);
    assert_eq!(talker.error("process/list", json!({})).await.code, -32600);
    assert_eq!(silent.end().await, End::Closed(1008));
    assert_eq!(talker.end().await, End::Closed(1008));
    client.round_trip().await;
    assert_eq!(client.ended(), None);
}

#[tokio::test]
async fn several_addresses_at_once() {
    let directory = work_dir();
    let path = directory.path().join("socket");
    let unix = format!("unix:{}", path.display());
    let daemon = Daemon::setup().listen("127.0.0.1:0").listen(&unix).listen("ws://localhost:0").start().await;
    assert!(daemon.urls()[0].starts_with("ws://127.0.0.1:") && daemon.urls()[1] == unix);
    let mut session: Option<String> = None;
    for url in daemon.urls() {
        let client = match &session {
            None => Client::ready(url).await,
            // A session is the server's, whatever the listener.
            Some(session) => Client::resume_when_free(url, session).await,
        };
        assert_eq!(client.run(&Start::argv(["/bin/echo", "here"])).await.text(), "here\n");
        session = Some(client.session_id());
        client.close().await;
    }
}

#[tokio::test]
async fn a_unix_socket_is_private_and_taken_over_only_when_dead() {
    let directory = work_dir();
    let path = directory.path().join("socket");
    let address = format!("unix:{}", path.display());
    let mut first = Daemon::setup().listen(&address).start().await;
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    let client = Client::ready(&address).await;
    assert_eq!(client.run(&Start::argv(["/bin/echo", "x"])).await.text(), "x\n");

    let (status, text) = Daemon::setup().listen(&address).refused().await;
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("socket"), "{text}");
    client.round_trip().await;

    // Killed, it leaves its socket behind: the next server replaces it.
    first.signal(rustix::process::Signal::KILL);
    first.ended(LIMIT).await;
    assert!(path.exists());
    let second = Daemon::setup().listen(&address).start().await;
    Client::ready(second.url()).await.round_trip().await;

    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let (status, _) = Daemon::setup().listen(&format!("unix:{}", file.display())).refused().await;
    assert_eq!(status, Some(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[tokio::test]
async fn an_open_address_needs_the_generated_token() {
    let state = work_dir();
    let daemon = Daemon::setup()
        .listen("ws://0.0.0.0:0")
        .argument("--state-dir")
        .argument(state.path().to_str().unwrap())
        .set("auth.failure_delay_ms", "10")
        .start()
        .await;
    let url = daemon.url().replace("0.0.0.0", "127.0.0.1");
    assert_ne!(url, daemon.url());
    let file = state.path().join("token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(token.len() >= 32, "too short to be secret");

    let with = async |value: Option<String>| {
        let mut request = upgrade(&url);
        if let Some(value) = value {
            request.headers_mut().insert("authorization", value.parse().unwrap());
        }
        Client::try_connect(&url, request).await
    };
    let half = token[..token.len() / 2].to_owned();
    for bad in [
        None,
        Some("Bearer wrong".into()),
        Some(format!("Bearer {half}")),
        Some(format!("Basic {token}")),
        Some(token.clone()),
    ] {
        assert_eq!(with(bad).await.unwrap_err(), Refused::Status(401));
    }
    let client = with(Some(format!("bearer {token}"))).await.unwrap();
    client.handshake(json!({"clientName": "x"})).await.unwrap();
    let address = url.trim_start_matches("ws://");
    let ready = exchange(address, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(status(&ready), 200, "no token for this one");

    // The children do not learn it, and the next server keeps it.
    let environment = client.run(&Start::sh("cat /proc/$PPID/environ; env").env("X", "1")).await;
    assert!(!environment.text().contains(&token));
    let next = Daemon::setup()
        .listen("ws://0.0.0.0:0")
        .argument("--state-dir")
        .argument(state.path().to_str().unwrap())
        .start()
        .await;
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), token);
    drop(next);
}

#[tokio::test]
async fn limits_are_named_when_they_are_reached() {
    let daemon = Daemon::setup().set("server.max_sessions", "2").start().await;
    let (one, _two) = (daemon.client().await, daemon.client().await);
    let third = Client::connect(daemon.url()).await;
    let error = third.handshake(json!({"clientName": "x"})).await.unwrap_err();
    assert!(error.code == -32603 && error.message.contains("max_sessions"), "{error:?}");
    // A detached one counts, and can be taken up again.
    let session = one.session_id();
    one.abort().await;
    let error = third.handshake(json!({"clientName": "x"})).await.unwrap_err();
    assert_eq!(error.code, -32603);
    Client::resume_when_free(daemon.url(), &session).await.round_trip().await;

    let daemon = Daemon::setup().set("server.max_connections", "2").start().await;
    let (one, _two) = (daemon.client().await, daemon.client().await);
    let refused = Client::try_connect(daemon.url(), upgrade(daemon.url())).await.unwrap_err();
    assert_eq!(refused, Refused::Status(503));
    one.close().await;
    let deadline = Instant::now() + LIMIT;
    while Client::try_connect(daemon.url(), upgrade(daemon.url())).await.is_err() {
        assert!(Instant::now() < deadline, "a free place is not given away");
    }
}

#[test_case("limits.processes_per_session", true; "of a session")]
#[test_case("limits.processes", false; "of the server")]
#[tokio::test]
async fn living_processes_are_limited(key: &str, others_may: bool) {
    let daemon = Daemon::setup().set(key, "3").start().await;
    let (client, other) = (daemon.client().await, daemon.client().await);
    let starts: Vec<Start> =
        (0..3).map(|number| Start::argv(["/bin/sleep", "300"]).tty(number == 1)).collect();
    for start in &starts {
        client.start(start).await;
    }
    let more = Start::argv(["/bin/echo", "more"]);
    let error = client.error("process/start", more.params()).await;
    assert!(error.code == -32603 && error.message.contains(key), "{error:?}");
    let of_other = other.call("process/start", Start::argv(["/bin/echo", "x"]).params()).await;
    assert_eq!(of_other.is_ok(), others_may);
    client.ok("process/terminate", json!({"processId": starts[0].id(), "graceMs": 0})).await;
    client.finish(&starts[0].id()).await;
    assert_eq!(client.run(&more).await.text(), "more\n");
}

#[test_case(&["ws://127.0.0.1"], 1; "no port")]
#[test_case(&["ws://127.0.0.1:0/path"], 1; "a path")]
#[test_case(&["wss://127.0.0.1:0"], 1; "tls")]
#[test_case(&["http://127.0.0.1:0"], 1; "http")]
#[test_case(&["ws://127.0.0.1:65536"], 1; "port too large")]
#[test_case(&[""], 1; "empty")]
#[test_case(&["stdio", "ws://127.0.0.1:0"], 2; "stdio with others")]
#[tokio::test]
async fn addresses_that_stop_the_server(addresses: &[&str], expected: i32) {
    let mut setup = Daemon::setup();
    for address in addresses {
        setup = setup.listen(address);
    }
    let (status, text) = setup.refused().await;
    assert_eq!(status, Some(expected), "{text}");
    assert!(!text.is_empty());
}

/// 512 strangers and one client are all that may be open: were their places held, the last could not come in.
#[tokio::test]
async fn who_guesses_waits_and_keeps_no_place_from_others() {
    let directory = work_dir();
    let token = directory.path().join("token");
    std::fs::write(&token, "right").unwrap();
    let daemon = Daemon::setup()
        .set("server.max_connections", "1")
        .set("auth.failure_delay_ms", "60000")
        .set("auth.mode", "capability-token")
        .set("auth.token_file", token.to_str().unwrap())
        .start()
        .await;
    let mut guesses = Vec::new();
    for _ in 0..512 {
        let mut socket = TcpStream::connect(daemon.address()).await.unwrap();
        let head = upgrade_head("localhost", &["Authorization: Bearer wrong"]);
        socket.write_all(head.as_bytes()).await.unwrap();
        guesses.push(socket);
    }
    let all_failed = || daemon.log().matches("authentication failed").count() == 512;
    eventually("all have failed", LIMIT, all_failed).await;
    let early = timeout(Duration::from_millis(200), guesses[0].read_u8()).await;
    assert!(early.is_err(), "the answer is held back");
    assert_eq!(status_of(&daemon, &upgrade_head("localhost", &["Authorization: Bearer no"])).await, 401);
    let mut request = upgrade(daemon.url());
    request.headers_mut().insert("authorization", "Bearer right".parse().unwrap());
    let client = Client::try_connect(daemon.url(), request).await.expect("there is a place");
    client.handshake(json!({"clientName": "test"})).await.unwrap();
    assert!(!daemon.log().contains("wrong"), "what was guessed is not told");
}
