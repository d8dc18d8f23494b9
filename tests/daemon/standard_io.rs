//! One connection on standard input and output.

use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::stdio::StdioServer;
use super::support::{LIMIT, Marker, Start, eventually};

const HANDSHAKE: &str = concat!(
    r#"{"id":1,"method":"initialize","params":{"clientName":"stdio"}}"#,
    "\n",
    r#"{"method":"initialized"}"#,
    "\n",
);

fn request(id: i64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({"id": id, "method": method, "params": params}))
}

fn ids(messages: &[Value]) -> Vec<i64> {
    let mut ids: Vec<i64> = messages.iter().filter_map(|message| message["id"].as_i64()).collect();
    ids.sort_unstable();
    ids
}

#[test_case("\n"; "ended lines")]
#[test_case(""; "a last line without end")]
#[tokio::test]
async fn all_that_arrived_is_answered_before_the_end(end: &str) {
    let mut server = StdioServer::start();
    let mut text = String::from(HANDSHAKE);
    for id in 2..40 {
        text.push_str(&request(id, "environment/status", &json!({})));
        text.push_str("\r\n\n");
    }
    text.push_str(&request(40, "fs/getMetadata", &json!({"path": "file:///tmp", "sandbox": null})));
    let start = Start::argv(["/bin/echo", "ran"]);
    text.push_str(request(41, "process/start", &start.params()).trim_end());
    text.push_str(end);
    server.send(text.as_bytes()).await;
    server.end_input();
    let messages = server.rest().await;
    assert_eq!(ids(&messages), (1..=41).collect::<Vec<_>>());
    assert!(messages.iter().all(|message| message.get("error").is_none()), "{messages:?}");
    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_end_of_input_ends_the_session() {
    let mut server = StdioServer::start();
    server.send(HANDSHAKE.as_bytes()).await;
    let marker = Marker::new();
    for (id, start) in [
        (2, Start::argv(["/bin/sleep", "351"])),
        (3, Start::sh("setsid sleep 352 & trap '' TERM HUP; sleep 353; sleep 353").tty(true)),
    ] {
        server.send(request(id, "process/start", &start.marked(&marker).params()).as_bytes()).await;
    }
    for nap in ["351", "352", "353"] {
        eventually(nap, LIMIT, || !marker.running(&format!("sleep {nap}")).is_empty()).await;
    }
    server.end_input();
    server.rest().await;
    assert_eq!(server.ended().await.code(), Some(0));
    eventually("nothing is left", Duration::from_secs(6), || marker.pids().is_empty()).await;
}

#[tokio::test]
async fn what_is_malformed_is_one_message() {
    let mut server = StdioServer::start();
    server.send(HANDSHAKE.as_bytes()).await;
    assert_eq!(server.next().await.unwrap()["id"], 1);
    for bad in [&b"\xff\xfe\n"[..], b"nope\n", b"[]\n", b"{\"id\":null,\"method\":\"x\"}\n"] {
        server.send(bad).await;
        let answer = server.next().await.unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(-1), &json!(-32600)));
    }
    server.send(request(2, "environment/status", &json!({})).as_bytes()).await;
    assert_eq!(server.next().await.unwrap()["result"]["status"], "ready");
    server.end_input();
    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_breach_of_the_handshake_ends_the_program() {
    let mut server = StdioServer::start();
    server.send(b"{\"method\":\"initialized\"}\n").await;
    // Its input stays open: it ends by itself.
    server.rest().await;
    server.ended().await;
}

#[tokio::test]
async fn output_flows_as_on_a_socket() {
    let mut server = StdioServer::start();
    let start = Start::sh("head -c 3000000 /dev/zero | tr '\\0' q");
    server
        .send([HANDSHAKE.to_owned(), request(2, "process/start", &start.params())].concat().as_bytes())
        .await;
    let (mut size, mut seq) = (0, 0);
    loop {
        let message = server.next().await.expect("still open");
        let params = &message["params"];
        if let Some(number) = params["seq"].as_u64() {
            seq += 1;
            assert_eq!(number, seq);
        }
        match message["method"].as_str() {
            Some("process/output") => {
                let bytes = super::support::unbase64(params["chunk"].as_str().unwrap());
                assert!(bytes.iter().all(|byte| *byte == b'q'));
                size += bytes.len();
            }
            Some("process/closed") => break,
            _ => {}
        }
    }
    assert_eq!(size, 3_000_000);
}
