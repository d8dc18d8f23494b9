//! Opening, framing, tolerance and limits of one connection.

use std::time::Duration;

use exec_server::backend::ExecServerError;
use exec_server::environment::{
    ClientOptions, Environment, EnvironmentConnectionState, EnvironmentObservedStatus,
};
use futures_util::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::support::events::{next, stdout};
use crate::support::params::script;
use crate::support::proxy::CutProxy;
use crate::support::scripted::{ScriptedServer, welcome};
use crate::support::soon;

fn environment(url: String) -> Environment {
    Environment::create_for_tests(Some(url)).unwrap()
}

fn reason(error: &ExecServerError) -> &ExecServerError {
    match error {
        ExecServerError::ConnectionAttempt(shared) => shared,
        other => other,
    }
}

#[tokio::test]
async fn the_upgrade_has_exactly_the_headers_of_the_contract() {
    let server = ScriptedServer::start().await;
    let options = ClientOptions {
        bearer_token: Some(" secret ".into()),
        request_id: Some("r-1".into()),
        ..ClientOptions::default()
    };
    let environment = Environment::remote(&format!("{}/p/../q?a=b", server.url()), options).unwrap();
    environment.start_connecting();
    let mut stream = server.accept_raw().await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let key = head.split("Sec-WebSocket-Key: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let host = server.url().replace("ws://", "");
    let mut lines: Vec<_> = head.trim_end_matches("\r\n").split("\r\n").map(str::to_owned).collect();
    let request = lines.remove(0);
    lines.sort();
    assert_eq!(request, "GET /p/../q?a=b HTTP/1.1");
    let expected = [
        "Connection: Upgrade".to_owned(),
        format!("Host: {host}"),
        format!("Sec-WebSocket-Key: {key}"),
        "Sec-WebSocket-Version: 13".to_owned(),
        "Upgrade: websocket".to_owned(),
        "authorization: Bearer  secret ".to_owned(),
        "x-request-id: r-1".to_owned(),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_message_right_behind_the_upgrade_is_not_lost() {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    environment.start_connecting();
    let mut stream = server.accept_raw().await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let key = head.split("Sec-WebSocket-Key: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let accept = derive_accept_key(key.as_bytes());
    let mut answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
    .into_bytes();
    let text = json!({"id": "early", "method": "invented", "params": "x".repeat(50)}).to_string();
    answer.extend([0x81, u8::try_from(text.len()).unwrap()]);
    answer.extend(text.as_bytes());
    stream.write_all(&answer).await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let mut answered = false;
    while !answered {
        let message = soon(socket.next()).await.unwrap().unwrap().into_text().unwrap();
        let message: Value = serde_json::from_str(&message).unwrap();
        answered = message["id"] == "early" && message["error"]["code"] == -32601;
    }
}

#[tokio::test]
async fn headers_come_again_with_every_reconnect() {
    let server = ScriptedServer::start().await;
    let options = ClientOptions { bearer_token: Some("t".into()), ..ClientOptions::default() };
    let environment = Environment::remote(&server.url(), options).unwrap();
    environment.start_connecting();
    let authorization = ("authorization".to_owned(), "Bearer t".to_owned());
    let first = server.accept_session(json!({})).await;
    assert!(first.headers.contains(&authorization));
    drop(first);
    assert!(server.accept_resume().await.headers.contains(&authorization));
}

#[test_case("ws://10.0.0.1:1"; "another machine")]
#[test_case("ws://0.0.0.0:1"; "any address")]
fn a_token_for_another_machine_is_refused_before_anything_is_dialled(url: &str) {
    let options = ClientOptions { bearer_token: Some("t".into()), ..ClientOptions::default() };
    let error = Environment::remote(url, options).err().unwrap();
    assert!(matches!(error, ExecServerError::Protocol(_)));
}

#[tokio::test]
async fn the_first_three_messages() {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    environment.start_connecting();
    let mut connection = server.accept().await;
    assert!(!environment.startup_finished());
    let initialize = connection.next().await.unwrap();
    let params = json!({"clientName": "exec-server-client", "resumeSessionId": null});
    assert_eq!(initialize, json!({"id": 1, "method": "initialize", "params": params}));
    connection.text(json!({"id": 1, "result": {"sessionId": "s"}}).to_string()).await;
    assert_eq!(connection.next().await.unwrap(), json!({"method": "initialized", "params": {}}));
    soon(environment.wait_until_ready()).await.unwrap();
    assert!(environment.startup_finished());
    // An older server that did not describe itself is asked, once.
    let asking = tokio::spawn({
        let environment = environment.clone();
        async move { (environment.info().await, environment.info().await) }
    });
    let ask = connection.next().await.unwrap();
    assert_eq!(ask, json!({"id": 2, "method": "environment/info", "params": null}));
    let info = json!({"shell": {"name": "zsh", "path": "/bin/zsh"}});
    connection.text(json!({"id": 2, "result": info}).to_string()).await;
    let (first, second) = soon(asking).await.unwrap();
    assert_eq!(first.unwrap().shell.name, "zsh");
    assert_eq!(second.unwrap().executor_version, "0.0.0");
}

#[tokio::test]
async fn what_a_client_does_not_know_it_ignores() {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    environment.start_connecting();
    let mut connection = server.accept_session(json!({"newer": true})).await;
    connection.notify("process/invented", json!([1])).await;
    connection.text(json!({"id": 77, "result": 1}).to_string()).await;
    connection.text(json!({"id": "1", "result": 1, "more": {}}).to_string()).await;
    connection.output("unknown", 1, "aGk=").await;
    connection.text(json!({"id": "q", "method": "network/invented", "params": {}}).to_string()).await;
    let refusal = connection.next().await.unwrap();
    assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!("q"), &json!(-32601)));
    let backend = environment.get_exec_backend();
    let start = tokio::spawn(async move { backend.start(script("p", "true")).await });
    let call = connection.expect("process/start").await;
    // Output before the answer, and the answer in a binary message.
    connection.output("p", 1, "aGk=").await;
    let answer = json!({"jsonrpc": "2.0", "id": call.id, "result": {"processId": "p", "extra": 1}});
    connection.binary(answer.to_string().into_bytes()).await;
    let started = soon(start).await.unwrap().unwrap();
    assert_eq!(started.sandbox_type, None);
    assert_eq!(next(&mut started.process.subscribe_events()).await, stdout(1, "hi"));
}

#[test_case("nonsense"; "no json")]
#[test_case("[]"; "a list")]
#[test_case(r#"{"foo":1}"#; "no message")]
#[test_case(r#"{"method":"process/output","params":{}}"#; "a known notification without its members")]
#[tokio::test]
async fn nonsense_costs_the_connection_not_the_session(text: &str) {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    environment.start_connecting();
    let mut connection = server.accept_session(json!({})).await;
    connection.text(text.into()).await;
    server.accept_resume().await;
    soon(environment.wait_until_ready()).await.unwrap();
}

#[tokio::test]
async fn a_close_frame_is_a_lost_connection() {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    environment.start_connecting();
    let mut connection = server.accept_session(json!({})).await;
    connection.send(Message::Close(None)).await;
    server.accept_resume().await;
}

fn info_answer(id: &Value, filler: usize) -> Vec<u8> {
    let mut info = welcome(json!({}))["environmentInfo"].clone();
    info["filler"] = "x".repeat(filler).into();
    json!({"id": id, "result": info}).to_string().into_bytes()
}

#[tokio::test]
async fn a_large_message_in_fragments_is_taken_a_larger_frame_is_not() {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    let asking = tokio::spawn({
        let environment = environment.clone();
        async move { environment.info().await }
    });
    let mut connection = server.accept().await;
    let initialize = connection.expect("initialize").await;
    connection.reply(&initialize, json!({"sessionId": "session-1"})).await;
    connection.expect("initialized").await;
    let ask = connection.expect("environment/info").await;
    connection.text(String::from_utf8(info_answer(&ask.id, 17 << 20)).unwrap()).await;
    drop(connection);
    let mut connection = server.accept().await;
    let initialize = connection.expect("initialize").await;
    connection.reply(&initialize, json!({"sessionId": "session-1"})).await;
    connection.expect("initialized").await;
    let ask = connection.expect("environment/info").await;
    let answer = info_answer(&ask.id, 40 << 20);
    let mut pieces = answer.chunks(8 << 20).peekable();
    let mut kind = Data::Text;
    while let Some(piece) = pieces.next() {
        let frame = Frame::message(piece.to_vec(), OpCode::Data(kind), pieces.peek().is_none());
        connection.send(Message::Frame(frame)).await;
        kind = Data::Continue;
    }
    assert_eq!(soon(asking).await.unwrap().unwrap().shell.name, "sh");
}

#[test_case(401)]
#[test_case(403)]
#[test_case(404)]
#[test_case(503)]
#[test_case(302)]
#[tokio::test]
async fn another_status_than_101_fails_the_attempt_and_each_use_makes_one(status: u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let environment = environment(format!("ws://{}", listener.local_addr().unwrap()));
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let answer =
                format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nLocation: ws://127.0.0.1:1\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        listener
    });
    assert_eq!(environment.status().await, EnvironmentObservedStatus::Pending);
    let (first, second) = tokio::join!(environment.wait_until_ready(), environment.info());
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(
            matches!(reason(&error), ExecServerError::Connect { status: Some(s), .. } if *s == status),
            "{error}"
        );
    }
    assert!(environment.startup_finished());
    assert!(matches!(environment.status().await, EnvironmentObservedStatus::Disconnected { .. }));
    soon(environment.wait_until_ready()).await.unwrap_err();
    // The server saw exactly these two attempts: nobody waits at its door.
    let listener = soon(server).await.unwrap();
    let nobody = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(nobody.is_err());
}

#[tokio::test]
async fn a_refused_connection_fails_and_a_later_use_succeeds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let environment = environment(format!("ws://{address}"));
    let error = soon(environment.wait_until_ready()).await.unwrap_err();
    assert!(matches!(reason(&error), ExecServerError::Connect { status: None, .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn silence_at_the_upgrade_and_at_initialize_has_limits() {
    let server = ScriptedServer::start().await;
    let options = ClientOptions {
        connect_timeout: Duration::from_millis(100),
        initialize_timeout: Duration::from_millis(100),
        ..ClientOptions::default()
    };
    let environment = Environment::remote(&server.url(), options).unwrap();
    let error = soon(environment.wait_until_ready()).await.unwrap_err();
    assert!(matches!(reason(&error), ExecServerError::ConnectTimeout { .. }), "{error:?}");
    drop(server.accept_raw().await);
    let (error, _held) = tokio::join!(environment.wait_until_ready(), async {
        let mut connection = server.accept().await;
        connection.expect("initialize").await;
        connection
    });
    let error = error.unwrap_err();
    assert!(matches!(reason(&error), ExecServerError::InitializeTimeout(_)), "{error:?}");
}

#[tokio::test]
async fn too_many_calls_at_once_are_refused_but_a_clean_up_has_its_place() {
    let server = ScriptedServer::start().await;
    let environment = environment(server.url());
    let backend = environment.get_exec_backend();
    let start = tokio::spawn(async move { backend.start(script("p", "true")).await });
    let mut connection = server.accept_session(json!({})).await;
    connection.started("p").await;
    let process = soon(start).await.unwrap().unwrap().process;
    let reads: Vec<_> = (0..1024)
        .map(|_| {
            let process = process.clone();
            tokio::spawn(async move { process.read(None, None, Some(60_000)).await })
        })
        .collect();
    for _ in &reads {
        connection.expect("process/read").await;
    }
    let error = soon(process.read(None, None, None)).await.unwrap_err();
    assert!(error.to_string().contains("limit of 1024 pending requests"), "{error}");
    let terminate = tokio::spawn({
        let process = process.clone();
        async move { process.terminate().await }
    });
    let call = connection.expect("process/terminate").await;
    connection.reply(&call, json!({"running": true})).await;
    soon(terminate).await.unwrap().unwrap();
    reads.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_noticed() {
    let server = ScriptedServer::start().await;
    let proxy = CutProxy::start(&server.url()).await;
    let options = ClientOptions {
        ping_interval: Some(Duration::from_millis(50)),
        ping_timeout: Duration::from_secs(1),
        ..ClientOptions::default()
    };
    let environment = Environment::remote(&proxy.url(), options).unwrap();
    environment.start_connecting();
    let mut connection = server.accept_session(json!({})).await;
    // It answers pings while it is read from.
    let alive = tokio::time::timeout(Duration::from_millis(1500), connection.next()).await;
    assert!(alive.is_err(), "the connection lives while pings are answered");
    proxy.freeze();
    soon(async {
        let mut states = environment.subscribe_connection_state().unwrap();
        states.wait_for(|state| *state == EnvironmentConnectionState::Disconnected).await.unwrap();
    })
    .await;
    proxy.resume();
    server.accept_resume().await;
}
