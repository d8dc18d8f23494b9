//! One connection: order, concurrency, and what it survives.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::support::client::write_params;
use super::support::http::{read_head, status, upgrade_head};
use super::support::{Client, Daemon, End, LIMIT, Start, base64, machine, uri, work_dir};

const MIB: usize = 1024 * 1024;

#[test_case("64"; "by default")]
#[test_case("1"; "one at a time")]
#[tokio::test]
async fn a_long_poll_holds_nobody_up(concurrent: &str) {
    let daemon = Daemon::setup().argument("--concurrent-requests").argument(concurrent).start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/bin/cat"]).stdin();
    client.start(&start).await;
    let poll = json!({"processId": start.id(), "afterSeq": 0, "waitMs": 60_000});
    let mut polls = Vec::new();
    for _ in 0..70 {
        polls.push(client.send("process/read", poll.clone()).await);
    }
    let began = Instant::now();
    client.round_trip().await;
    client.ok("fs/getMetadata", json!({"path": "file:///tmp", "sandbox": null})).await;
    client.run(&Start::argv(["/bin/true"])).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(polls.iter().all(|id| client.answered(*id).is_none()), "a poll ended without news");
    client.write(&start.id(), "w", b"news").await;
    for id in polls {
        assert_eq!(client.answer(id).await.unwrap()["chunks"][0]["chunk"], base64(b"news"));
    }
    client.ok("process/signal", json!({"processId": start.id(), "signal": "kill"})).await;
    client.finish(&start.id()).await;
}

#[test_case("64"; "by default")]
#[test_case("2"; "two at a time")]
#[test_case("1"; "one at a time")]
#[tokio::test]
async fn requests_of_one_process_take_effect_in_the_order_sent(concurrent: &str) {
    let daemon = Daemon::setup().argument("--concurrent-requests").argument(concurrent).start().await;
    let client = daemon.client().await;
    let rounds: Vec<u32> = (0..24).collect();
    join_all(rounds.iter().map(async |round| {
        let start = Start::argv(["/bin/cat"]).stdin();
        let id = start.id();
        let started = client.send("process/start", start.params()).await;
        let mut requests = Vec::new();
        for number in 0..20 {
            let text = format!("{round}.{number} ");
            requests.push(
                client.send("process/write", write_params(&id, &format!("w{number}"), text.as_bytes())).await,
            );
        }
        requests.push(client.send("process/closeStdin", json!({"processId": id})).await);
        let poll = json!({"processId": id, "afterSeq": 0, "waitMs": 30_000, "maxBytes": 1});
        requests.push(client.send("process/read", poll).await);
        client.answer(started).await.unwrap();
        for request in requests {
            client.answer(request).await.unwrap();
        }
        let run = client.finish(&id).await;
        run.assert_whole();
        assert_eq!(run.text(), (0..20).map(|number| format!("{round}.{number} ")).collect::<String>());
        let (answer, event) = client.places(started, &id);
        assert!(answer < event, "output before the answer of its start");
    }))
    .await;
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_start_is_answered_before_its_output(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for _ in 0..12 {
        let starts: Vec<Start> = (0..16).map(|_| Start::argv(["/bin/echo", "at once"]).tty(tty)).collect();
        let mut requests = Vec::new();
        for start in &starts {
            requests.push(client.send("process/start", start.params()).await);
        }
        for (request, start) in requests.iter().zip(&starts) {
            client.finish(&start.id()).await.assert_whole();
            let (answer, event) = client.places(*request, &start.id());
            assert!(answer.is_some() && answer < event);
        }
    }
}

#[tokio::test]
async fn a_terminate_right_behind_its_start_is_not_lost() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for number in 0..30 {
        let start = Start::argv(["/bin/sleep", "300"]).tty(number % 2 == 0);
        let started = client.send("process/start", start.params()).await;
        let params = json!({"processId": start.id(), "graceMs": 0});
        let ended = client.send("process/terminate", params).await;
        client.answer(started).await.unwrap();
        assert_eq!(client.answer(ended).await.unwrap(), json!({"running": true}));
        assert_eq!(client.finish(&start.id()).await.exit(), 137);
    }
}

#[tokio::test]
async fn a_start_sees_the_files_written_before_it() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    for number in 0..20 {
        let path = directory.path().join(format!("f{number}"));
        let data = vec![b'0' + u8::try_from(number % 10).unwrap(); 200_000];
        let write = json!({"path": uri(&path), "dataBase64": base64(&data), "sandbox": null});
        let written = client.send("fs/writeFile", write).await;
        let start = Start::argv(["/bin/cat", path.to_str().unwrap()]);
        let started = client.send("process/start", start.params()).await;
        client.answer(written).await.unwrap();
        client.answer(started).await.unwrap();
        assert!(client.finish(&start.id()).await.stdout == data, "an older state of the file");
    }
}

#[tokio::test]
async fn small_messages_are_not_held_back() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/bin/cat"]).stdin();
    client.start(&start).await;
    let mut times = Vec::new();
    for number in 0..60 {
        let began = Instant::now();
        client.write(&start.id(), &format!("w{number}"), b"echo").await;
        client.wait_events(&start.id(), "the echo", |events| (events.len() > number).then_some(())).await;
        times.push(began.elapsed());
    }
    // The answer and then the echo: a sender that waits for the acknowledgement of the first costs 40 ms each time.
    times.sort_unstable();
    assert!(times[times.len() / 2] < Duration::from_millis(30), "{times:?}");
}

/// `fs/writeFile` with so much content, its id before or behind the params.
fn large_write(path: &str, id: i64, size: usize, id_first: bool) -> String {
    let params = json!({"path": path, "dataBase64": "@", "sandbox": null, "atomic": null}).to_string();
    let params = params.replace('@', &"QUFB".repeat(size / 4));
    if id_first {
        format!(r#"{{"id":{id},"method":"fs/writeFile","params":{params}}}"#)
    } else {
        format!(r#"{{"method":"fs/writeFile","params":{params},"id":{id}}}"#)
    }
}

#[test_case(false; "one frame")]
#[test_case(true; "fragments")]
#[tokio::test]
async fn a_message_of_fifty_mebibytes_is_taken(fragments: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let path = directory.path().join("large");
    let text = large_write(&uri(&path), 500, 50 * MIB, true);
    if fragments {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(5 * MIB + 1).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let kind = if number == 0 { Data::Text } else { Data::Continue };
            let last = number + 1 == pieces.len();
            client.raw(Message::Frame(Frame::message(piece.to_vec(), OpCode::Data(kind), last))).await;
        }
    } else {
        client.text(&text).await;
    }
    client.answer(500).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (50 * MIB / 4 * 3) as u64);
    client.round_trip().await;
}

#[test_case(true, 70; "id first")]
#[test_case(false, 70; "id last")]
#[test_case(true, 150; "much too large")]
#[tokio::test]
async fn a_larger_message_gets_an_error_by_its_id(id_first: bool, size: usize) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let path = directory.path().join("large");
    let before = daemon.resident();
    client.text(&large_write(&uri(&path), 501, size * MIB, id_first)).await;
    let error = client.answer(501).await.unwrap_err();
    assert_eq!(error.code, -32600);
    assert!(!path.exists());
    let grown = daemon.resident().saturating_sub(before);
    assert!(grown < 200 * MIB as u64, "grown by {grown}");
    client.round_trip().await;
    assert_eq!(client.ended(), None);
}

#[tokio::test]
async fn a_larger_message_without_id_ends_the_connection() {
    let daemon = Daemon::start().await;
    for text in
        [format!(r#"{{"method":"fs/writeFile","params":"{}"}}"#, "x".repeat(66 * MIB)), "y".repeat(65 * MIB)]
    {
        let client = daemon.client().await;
        // The server may close before all of it is sent.
        client.text(&text).await;
        assert_eq!(client.end().await, End::Closed(1009));
        Client::resume_when_free(daemon.url(), &client.session_id()).await.round_trip().await;
    }
}

#[tokio::test]
async fn what_nobody_knows_is_ignored() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for text in [
        r#"{"method":"foo/bar","params":{}}"#,
        r#"{"method":"process/start","params":{}}"#,
        r#"{"method":"$/cancel"}"#,
        r#"{"id":77,"result":{}}"#,
        r#"{"id":"late","error":{"code":-1,"message":"no"}}"#,
        r#"{"method":"initialized"}"#,
    ] {
        client.text(text).await;
        client.round_trip().await;
    }
    let error = client.error("foo/bar", json!({})).await;
    assert!(error.code == -32601 && error.message.contains("`foo/bar`"), "{error:?}");
}

#[tokio::test]
async fn a_malformed_message_is_answered_and_forgotten() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let deep = format!(r#"{{"id":1,"method":"x","params":{}{}}}"#, "[".repeat(127), "]".repeat(127));
    let malformed = [
        "nope",
        "",
        "{",
        "7",
        "[]",
        r#"[{"id":1,"method":"environment/status"}]"#,
        r#"{"id":null,"method":"environment/status"}"#,
        r#"{"id":1.5,"method":"environment/status"}"#,
        r#"{"id":1e3,"method":"environment/status"}"#,
        r#"{"id":true,"method":"environment/status"}"#,
        r#"{"id":{},"method":"environment/status"}"#,
        r#"{"id":9223372036854775808,"method":"environment/status"}"#,
        r#"{"id":1,"id":2,"method":"environment/status"}"#,
        r#"{"id":1,"method":"environment/status","params":{"a":1,"a":2}}"#,
        "\u{feff}{\"id\":1,\"method\":\"environment/status\"}",
        r#"{"id":1,"method":"environment/status"} {}"#,
        r#"{"id":1,"method":7}"#,
        r#"{"id":1}"#,
        r#"{"id":1,"method":"environment/status","params":NaN}"#,
        r#"{"id":1,"method":"\ud800"}"#,
        r#"{"id":1,"method":"environment/status","trace":7}"#,
        &deep,
    ];
    for (number, text) in malformed.iter().enumerate() {
        client.text(text).await;
        let answers = client.answers_of(json!(-1), number + 1).await;
        assert_eq!(answers[number]["error"]["code"], -32600, "{text}");
        client.round_trip().await;
        assert_eq!(client.answers(&json!(-1)).len(), number + 1, "one answer for {text}");
    }
    client.raw(Message::binary(b"\xff\xfe{}".to_vec())).await;
    client.answers_of(json!(-1), malformed.len() + 1).await;

    // Unusual, but whole.
    for (id, text) in [
        (json!(""), r#"{"id":"","method":"environment/status"}"#),
        (json!(-9), r#"{"params":null,"id":-9,"method":"environment/status","jsonrpc":"3.0","more":[]}"#),
        (json!("x"), r#"{"id":"x","method":"environment/status","params":{"x":1},"trace":null,"result":1}"#),
        (
            json!(i64::MAX),
            r#"{"id":9223372036854775807,"method":"environment/status","trace":{"traceparent":"?"}}"#,
        ),
    ] {
        client.text(text).await;
        let answers = client.answers_of(id, 1).await;
        assert_eq!(answers[0]["result"]["status"], "ready", "{text}");
    }
    let binary = br#"{"id":900,"method":"environment/status"}"#;
    client.raw(Message::binary(binary.to_vec())).await;
    assert_eq!(client.answer(900).await.unwrap()["status"], "ready");
    let deepest = format!(
        r#"{{"id":901,"method":"environment/status","params":{{"x":{}{}}}}}"#,
        "[".repeat(125),
        "]".repeat(125)
    );
    client.text(&deepest).await;
    client.answer(901).await.unwrap();
}

#[tokio::test]
async fn the_handshake_has_its_order() {
    let daemon = Daemon::start().await;
    let client = Client::connect(daemon.url()).await;
    assert_eq!(client.error("process/list", json!({})).await.code, -32600);
    assert_eq!(client.error("initialize", json!({})).await.code, -32602);
    let unknown = json!({"clientName": "x", "resumeSessionId": "no-such-session"});
    assert_eq!(client.error("initialize", unknown).await.code, -32600);
    let first = client.ok("initialize", json!({"clientName": ""})).await;
    assert!(first["sessionId"].is_string());
    assert_eq!(client.error("process/list", json!({})).await.code, -32600, "before `initialized`");
    client.notify("initialized", Value::Null).await;
    client.ok("process/list", json!({})).await;
    assert_eq!(client.error("initialize", json!({"clientName": ""})).await.code, -32600);
    client.ok("process/list", json!({})).await;

    let hasty = Client::connect(daemon.url()).await;
    hasty.notify("initialized", json!({})).await;
    assert_eq!(hasty.end().await, End::Closed(1008));
}

/// Sends bytes on an upgraded connection and gives the code of the close frame that comes.
async fn close_code(daemon: &Daemon, bytes: &[u8]) -> u16 {
    let mut socket = TcpStream::connect(daemon.address()).await.unwrap();
    socket.write_all(upgrade_head(daemon.address(), &[]).as_bytes()).await.unwrap();
    assert_eq!(status(&read_head(&mut socket).await), 101);
    socket.write_all(bytes).await.unwrap();
    let mut rest = Vec::new();
    timeout(LIMIT, socket.read_to_end(&mut rest)).await.expect("the connection is ended").ok();
    assert!(rest.len() >= 4 && rest[0] == 0x88, "no close frame: {rest:?}");
    u16::from_be_bytes([rest[2], rest[3]])
}

#[tokio::test]
async fn breaches_of_the_framing_end_the_connection() {
    let daemon = Daemon::start().await;
    for (first, payload, code, what) in [
        (0x81, &b"\xff\xfe"[..], 1007, "text that is no text"),
        (0x80, b"{}", 1002, "a continuation of nothing"),
        (0x83, b"{}", 1002, "a reserved opcode"),
        (0x8b, b"", 1002, "a reserved control opcode"),
        (0xc1, b"{}", 1002, "a reserved bit"),
        (0x09, b"", 1002, "a ping in fragments"),
    ] {
        let masked = [&[first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0], payload].concat();
        assert_eq!(close_code(&daemon, &masked).await, code, "{what}");
    }
    let long_ping = [&[0x89, 0xfe, 0, 126, 0, 0, 0, 0][..], &[0; 126]].concat();
    assert_eq!(close_code(&daemon, &long_ping).await, 1002, "a long ping");
    assert_eq!(close_code(&daemon, b"\x81\x02{}").await, 1002, "not masked");
    let begun_twice = b"\x01\x81\0\0\0\0{\x01\x81\0\0\0\0{";
    assert_eq!(close_code(&daemon, begun_twice).await, 1002, "a message in a message");
}

#[tokio::test]
async fn a_message_in_tiny_fragments_is_one_message() {
    let daemon = Daemon::start().await;
    let client = Client::connect(daemon.url()).await;
    let text = br#"{"id":1,"method":"initialize","params":{"clientName":"fragments"}}"#;
    let pieces: Vec<&[u8]> = text.chunks(3).collect();
    for (number, piece) in pieces.iter().enumerate() {
        let kind = if number == 0 { Data::Text } else { Data::Continue };
        let last = number + 1 == pieces.len();
        client.raw(Message::Frame(Frame::message(piece.to_vec(), OpCode::Data(kind), last))).await;
        client.raw(Message::Ping(vec![1, 2].into())).await;
    }
    assert!(client.answer(1).await.unwrap()["sessionId"].is_string());
    assert_eq!(client.close().await, End::Closed(1005), "a close frame is answered");
}

#[tokio::test]
async fn running_out_of_descriptors_is_an_error_of_one_start() {
    let wrapper = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let daemon = Daemon::setup().wrapper(&wrapper).start().await;
    let client = daemon.client().await;
    let starts: Vec<Start> =
        (0..40).map(|number| Start::argv(["/bin/sleep", "300"]).stdin().tty(number % 4 == 0)).collect();
    let (mut running, mut failed) = (Vec::new(), 0);
    for start in &starts {
        match client.call("process/start", start.params()).await {
            Ok(_) => running.push(start.id()),
            Err(error) => {
                assert_eq!((error.code, error.kind()), (-32603, "spawnFailed"), "{error:?}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0 && running.len() > 8, "{failed} failed, {} run", running.len());
    let mut waiting = Vec::new();
    for _ in 0..30 {
        waiting.push(TcpStream::connect(daemon.address()).await.unwrap());
    }
    // Not a wait for anything: the time over which idling is measured.
    let before = machine::cpu_ticks(daemon.pid());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = machine::cpu_ticks(daemon.pid()) - before;
    assert!(used < 30, "{used} ticks in a second");
    client.round_trip().await;
    for id in &running {
        client.ok("process/terminate", json!({"processId": id, "graceMs": 0})).await;
    }
    for id in &running {
        client.finish(id).await;
    }
    drop(waiting);
    assert_eq!(client.run(&Start::argv(["/bin/echo", "again"])).await.text(), "again\n");
    let other = daemon.client().await;
    assert_eq!(other.run(&Start::argv(["/bin/echo", "new"]).tty(true)).await.text(), "new\r\n");
}
