//! The audit log: who did what, and was refused what, without secrets.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::client::upgrade;
use super::support::exposition::parse;
use super::support::http;
use super::support::{Client, Daemon, LIMIT, Refused, Start, base64, eventually, uri, work_dir};

fn entries(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Waits for the one entry that fits.
async fn entry(path: &Path, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let find = || entries(path).into_iter().find(&fits);
    eventually(what, LIMIT, || find().is_some()).await;
    find().unwrap()
}

fn request<'a>(method: &'a str) -> impl Fn(&Value) -> bool + use<'a> {
    move |entry| entry["event"] == "request" && entry["method"] == method
}

struct Room {
    directory: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        Self { directory: work_dir() }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("audit")
    }

    async fn daemon(&self) -> Daemon {
        Daemon::setup().argument(&format!("--audit-log={}", self.log().display())).start().await
    }
}

#[tokio::test]
async fn it_tells_who_started_what_and_how_it_ended() {
    let room = Room::new();
    let daemon = room.daemon().await;
    let client = daemon.client().await;
    let start = Start::sh("exit 3 # secret-argument").env("TOKEN", "secret-variable").named("job");
    client.run(&start).await;
    let started = entry(&room.log(), "the start", request("process/start")).await;
    let expected = json!({
        "event": "request", "method": "process/start", "client": "test", "session": client.session_id(),
        "process": "job", "program": "/bin/sh", "arguments": 2, "cwd": "file:///tmp", "tty": false,
        "outcome": "done", "sandboxBackend": null, "sandboxGaps": [], "alreadyStarted": false,
        "connection": started["connection"], "peer": started["peer"], "time": started["time"],
    });
    assert_eq!(started, expected);
    assert!(started["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    let ended = entry(&room.log(), "the end", |entry| entry["event"] == "process.end").await;
    assert_eq!(
        (&ended["process"], &ended["exitCode"], &ended["reason"]),
        (&json!("job"), &json!(3), &json!("exited"))
    );
    assert_eq!(ended["session"], json!(client.session_id()));
    client.error("process/start", Start::argv(["/no/such/program"]).params()).await;
    let fits = |entry: &Value| entry["outcome"] == "refused" && entry["method"] == "process/start";
    let refused = entry(&room.log(), "the refusal", fits).await;
    assert_eq!((&refused["code"], &refused["program"]), (&json!(-32603), &json!("/no/such/program")));
    assert!(!std::fs::read_to_string(room.log()).unwrap().contains("secret"));
}

#[tokio::test]
async fn it_tells_what_was_written_and_requested_and_what_was_denied() {
    let room = Room::new();
    let daemon = room.daemon().await;
    let client = daemon.client().await;
    let file = room.directory.path().join("file");
    let path = uri(&file);
    client.ok("fs/writeFile", json!({"path": path, "dataBase64": base64(b"secret")})).await;
    client.ok("fs/readFile", json!({"path": path})).await;
    client.ok("fs/remove", json!({"path": path, "recursive": false, "force": false})).await;
    client.error("fs/readFile", json!({"path": path})).await;
    let url = "http://user:secret@127.0.0.1:1/secret?key=secret";
    let params = json!({"requestId": "r", "method": "GET", "url": url, "headers": [], "timeoutMs": 1000});
    client.error("http/request", params).await;
    let wrote = entry(&room.log(), "the write", request("fs/writeFile")).await;
    assert_eq!(
        (&wrote["path"], &wrote["base64Bytes"], &wrote["outcome"]),
        (&json!(path), &json!(8), &json!("done"))
    );
    assert_eq!(entry(&room.log(), "the removal", request("fs/remove")).await["path"], json!(path));
    let requested = entry(&room.log(), "the request", request("http/request")).await;
    assert_eq!(
        (&requested["host"], &requested["outcome"]),
        (&json!("http://127.0.0.1:1"), &json!("refused"))
    );
    let reads: Vec<Value> = entries(&room.log()).into_iter().filter(request("fs/readFile")).collect();
    assert_eq!(reads.len(), 1, "only what was refused: {reads:?}");
    assert_eq!(reads[0]["code"], json!(-32004));
    assert!(!std::fs::read_to_string(room.log()).unwrap().contains("secret"));
}

#[tokio::test]
async fn it_tells_who_came_and_who_was_turned_away() {
    let room = Room::new();
    let token = room.directory.path().join("token");
    std::fs::write(&token, "correct horse").unwrap();
    let daemon = Daemon::setup()
        .argument(&format!("--audit-log={}", room.log().display()))
        .argument("--ws-auth=capability-token")
        .argument(&format!("--ws-token-file={}", token.display()))
        .set("auth.failure_delay_ms", "0")
        .start()
        .await;
    let connect = |token: &str| {
        let mut request = upgrade(daemon.url());
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        Client::try_connect(daemon.url(), request)
    };
    assert_eq!(connect("wrong battery").await.map(drop), Err(Refused::Status(401)));
    let refused = entry(&room.log(), "the refusal", |entry| entry["event"] == "connection.refused").await;
    assert_eq!(
        (&refused["refusal"], &refused["reason"]),
        (&json!("authentication"), &json!("invalid websocket bearer token"))
    );
    let client = connect("correct horse").await.unwrap();
    client.handshake(json!({"clientName": "somebody"})).await.unwrap();
    let session = client.session_id();
    client.abort().await;
    let again = connect("correct horse").await.unwrap();
    while again.handshake(json!({"clientName": "somebody", "resumeSessionId": session})).await.is_err() {}
    let resumed = |entry: &Value| entry["resume"] == json!(session) && entry["outcome"] == "done";
    let resumed = entry(&room.log(), "the return", resumed).await;
    let label = resumed["token"].as_str().unwrap();
    assert!(label.starts_with("sha256:") && label.len() == 19, "{label}");
    entry(&room.log(), "the end of the first", |entry| {
        entry["event"] == "connection.end" && entry["client"] == "somebody"
    })
    .await;
    let text = std::fs::read_to_string(room.log()).unwrap();
    assert!(!text.contains("horse") && !text.contains("battery"));
}

#[tokio::test]
async fn who_leaves_before_the_answer_is_in_it_as_well() {
    let room = Room::new();
    let daemon = room.daemon().await;
    let client = daemon.client().await;
    let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", upstream.local_addr().unwrap());
    client.send("http/request", json!({"requestId": "r", "method": "GET", "url": url, "headers": []})).await;
    let _held = upstream.accept().await.unwrap();
    client.abort().await;
    let left = entry(&room.log(), "the request", request("http/request")).await;
    assert_eq!(left["outcome"], json!("unanswered: the connection has ended"));
}

#[tokio::test]
async fn nothing_of_the_end_is_missing() {
    let room = Room::new();
    let mut daemon = room.daemon().await;
    let client = daemon.client().await;
    client.start(&Start::sh("sleep 60").named("sleeper")).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
    let ended: Vec<Value> =
        entries(&room.log()).into_iter().filter(|entry| entry["event"] == "process.end").collect();
    assert_eq!((ended.len(), &ended[0]["reason"]), (1, &json!("terminated")));
}

#[tokio::test]
async fn a_reader_that_is_stuck_does_not_hold_up_the_end() {
    let room = Room::new();
    let made = std::process::Command::new("mkfifo").arg(room.log()).status().unwrap();
    assert!(made.success());
    // Open on both ends, and never read.
    let _pipe = std::fs::OpenOptions::new().read(true).write(true).open(room.log()).unwrap();
    let mut daemon = room.daemon().await;
    let client = daemon.client().await;
    let lost = async || {
        let answer = http::whole(daemon.address(), "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
        parse(answer.split_once("\r\n\r\n").unwrap().1).get("exec_server_audit_lost_total")
    };
    let began = Instant::now();
    while lost().await == Some(0.0) {
        assert!(began.elapsed() < LIMIT, "the queue never filled");
        for _ in 0..500 {
            client.ok("process/terminate", json!({"processId": "none"})).await;
        }
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn it_goes_among_the_log_lines_or_stops_the_start() {
    let daemon = Daemon::setup().argument("--audit-log=stderr").start().await;
    let client = daemon.client().await;
    client.run(&Start::sh("true")).await;
    eventually("the end is told", LIMIT, || daemon.log().contains(r#""event":"process.end""#)).await;
    let (code, log) = Daemon::setup().argument("--audit-log=/no/such/directory/audit").refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains("cannot open the audit log /no/such/directory/audit"), "{log}");
}
