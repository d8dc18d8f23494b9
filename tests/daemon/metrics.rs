//! `/metrics`, `/healthz`, `/readyz` and `exec-server health`: what they say, to whom, and when.

use std::collections::BTreeMap;
use std::process::Output;

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;
use test_case::test_case;
use tokio::process::Command;

use super::support::exposition::{Samples, parse};
use super::support::http::{self, status};
use super::support::tls::Authority;
use super::support::{Client, Daemon, LIMIT, Refused, Start, eventually, work_dir};

async fn get(address: &str, path: &str, lines: &str) -> (u16, String) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n");
    let answer = http::whole(address, &head).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (status(head), body.to_owned())
}

async fn scrape(daemon: &Daemon) -> Samples {
    let (status, text) = get(daemon.address(), "/metrics", "").await;
    assert_eq!(status, 200);
    parse(&text)
}

/// Where `metrics.listen` is served, as the log says.
async fn metrics_address(daemon: &Daemon) -> String {
    let find = |log: String| Some(log.split("url=http://").nth(1)?.split_whitespace().next()?.to_owned());
    eventually("the address is logged", LIMIT, || find(daemon.log()).is_some()).await;
    find(daemon.log()).unwrap()
}

async fn health(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
    command.env_clear().arg("health").args(words).output().await.expect("it runs")
}

#[tokio::test]
async fn the_counts_are_those_of_what_was_done() {
    let daemon = Daemon::start().await;
    let before = scrape(&daemon).await;
    assert_eq!(before.sum("exec_server_request_seconds_count"), 0.0);
    let client = daemon.client().await;
    client.run(&Start::sh("printf 12345; printf 678 >&2")).await;
    client.run(&Start::sh("kill -9 $$")).await;
    let large = Start::sh("head -c 1000000 /dev/zero");
    client.run(&large).await;
    client.ok("process/read", json!({"processId": large.id(), "afterSeq": 0})).await;
    let sleeper = Start::sh("sleep 60").named("sleeper");
    client.start(&sleeper).await;
    client.error("process/start", Start::argv(["/no/such/program"]).params()).await;
    client.error("process/start", sleeper.params()).await;
    client.error("no/such", json!({})).await;
    client.text("no message").await;
    client.round_trip().await;
    let observer = Client::observe(daemon.url(), &client.session_id()).await;
    let mut refused = super::support::client::upgrade(daemon.url());
    refused.headers_mut().insert("origin", "http://evil.test".parse().unwrap());
    assert_eq!(Client::try_connect(daemon.url(), refused).await.map(drop), Err(Refused::Status(403)));

    let now = scrape(&daemon).await;
    let mut counts = BTreeMap::new();
    for name in [
        r#"processes{state="running"}"#,
        r#"processes{state="closed"}"#,
        r#"processes_ended_total{reason="exited"}"#,
        r#"processes_ended_total{reason="signaled"}"#,
        "process_start_seconds_count",
        "process_starts_failed_total",
        "output_bytes_total",
        "output_lost_bytes_total",
        "connections",
        "connections_opened_total",
        r#"connections_refused_total{reason="origin"}"#,
        r#"sessions{state="attached"}"#,
        r#"sessions{state="detached"}"#,
        r#"sessions_taken_total{how="created"}"#,
        r#"sessions_taken_total{how="observed"}"#,
        r#"request_seconds_count{method="process/start",result="ok"}"#,
        r#"request_seconds_count{method="process/start",result="error"}"#,
        r#"request_seconds_count{method="process/read",result="ok"}"#,
        r#"request_seconds_count{method="initialize",result="ok"}"#,
        r#"request_seconds_count{method="environment/status",result="ok"}"#,
        r#"request_seconds_count{method="unknown",result="error"}"#,
        r#"request_seconds_count{method="unreadable",result="error"}"#,
    ] {
        counts.insert(name, now.get(&format!("exec_server_{name}")).unwrap_or(f64::NAN));
    }
    let expected = BTreeMap::from([
        (r#"processes{state="running"}"#, 1.0),
        (r#"processes{state="closed"}"#, 3.0),
        (r#"processes_ended_total{reason="exited"}"#, 2.0),
        (r#"processes_ended_total{reason="signaled"}"#, 1.0),
        ("process_start_seconds_count", 4.0),
        ("process_starts_failed_total", 2.0),
        ("output_bytes_total", 1_000_008.0),
        ("output_lost_bytes_total", 0.0),
        ("connections", 2.0),
        ("connections_opened_total", 2.0),
        (r#"connections_refused_total{reason="origin"}"#, 1.0),
        (r#"sessions{state="attached"}"#, 1.0),
        (r#"sessions{state="detached"}"#, 0.0),
        (r#"sessions_taken_total{how="created"}"#, 1.0),
        (r#"sessions_taken_total{how="observed"}"#, 1.0),
        (r#"request_seconds_count{method="process/start",result="ok"}"#, 4.0),
        (r#"request_seconds_count{method="process/start",result="error"}"#, 2.0),
        (r#"request_seconds_count{method="process/read",result="ok"}"#, 1.0),
        (r#"request_seconds_count{method="initialize",result="ok"}"#, 2.0),
        (r#"request_seconds_count{method="environment/status",result="ok"}"#, 1.0),
        (r#"request_seconds_count{method="unknown",result="error"}"#, 1.0),
        (r#"request_seconds_count{method="unreadable",result="error"}"#, 1.0),
    ]);
    assert_eq!(counts, expected);
    assert_eq!(now.get(r#"exec_server_request_seconds_count{method="process/read",result="error"}"#), None);
    assert!(
        now.sum("exec_server_received_bytes_total") > 500.0
            && now.sum("exec_server_sent_bytes_total") > 500.0
    );
    assert!(now.get("exec_server_output_retained_bytes") >= Some(8.0), "with what each piece weighs itself");
    drop((client, observer));
    let mut later = scrape(&daemon).await;
    while later.get("exec_server_connections") != Some(0.0) {
        later = scrape(&daemon).await;
    }
    assert_eq!(later.get(r#"exec_server_sessions{state="detached"}"#), Some(1.0));
}

#[tokio::test]
async fn lost_output_and_limits_are_counted() {
    let daemon = Daemon::setup()
        .set("process.spool_bytes", "0")
        .set("limits.processes_per_session", "1")
        .set("server.max_sessions", "1")
        .start()
        .await;
    let client = daemon.client().await;
    let session = client.session_id();
    client.start(&Start::sh("read x; head -c 3145728 /dev/zero").stdin().named("p")).await;
    client.error("process/start", Start::sh("true").params()).await;
    let second = Client::connect(daemon.url()).await;
    second.handshake(json!({"clientName": "x"})).await.expect_err("there is one session");
    client.write("p", "w", b"\n").await;
    client.abort().await;
    let gone =
        || async { scrape(&daemon).await.get(r#"exec_server_processes{state="closed"}"#) == Some(1.0) };
    while !gone().await {}
    let samples = scrape(&daemon).await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    let read = client.ok("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    let lost = read["lost"]["bytes"].as_f64().unwrap();
    assert!(lost >= 2_000_000.0, "{lost}");
    assert_eq!(samples.get("exec_server_output_lost_bytes_total"), Some(lost));
    for limit in ["limits.processes_per_session", "server.max_sessions"] {
        let name = format!("exec_server_limit_hits_total{{limit=\"{limit}\"}}");
        assert_eq!(samples.get(&name), Some(1.0), "{limit}");
    }
}

#[tokio::test]
async fn methods_that_clients_make_up_make_no_series() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for index in 0..50 {
        client.error(&format!("made/up{index}"), json!({})).await;
    }
    let samples = scrape(&daemon).await;
    let name = r#"exec_server_request_seconds_count{method="unknown",result="error"}"#;
    assert_eq!(samples.get(name), Some(50.0));
    assert!(!samples.names().any(|name| name.contains("made")));
}

#[tokio::test]
async fn the_build_is_named() {
    let daemon = Daemon::start().await;
    let samples = scrape(&daemon).await;
    let build = samples.names().find(|name| name.starts_with("exec_server_build_info{")).unwrap();
    let version = Command::new(env!("CARGO_BIN_EXE_exec-server")).arg("--version").output().await.unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let commit = version.trim().strip_suffix(')').and_then(|text| text.split_once('(')).unwrap().1.to_owned();
    assert!(build.contains(&format!("commit=\"{commit}\"")), "{build} {version}");
    assert!(commit == "unknown" || commit.len() == 12, "{commit}");
}

#[tokio::test]
async fn an_address_of_its_own_serves_operators_only() {
    let daemon = Daemon::setup().set("metrics.listen", "127.0.0.1:0").start().await;
    let address = metrics_address(&daemon).await;
    for (path, expected) in [("/metrics", 200), ("/readyz", 200), ("/healthz", 200), ("/", 404), ("/x", 404)]
    {
        assert_eq!(get(&address, path, "").await.0, expected, "{path}");
    }
    for (path, expected) in [("/metrics", 404), ("/readyz", 200), ("/healthz", 200)] {
        assert_eq!(get(daemon.address(), path, "").await.0, expected, "{path} for clients");
    }
    assert_eq!(get(&address, "/metrics", "Origin: http://evil.test\r\n").await.0, 403, "no page reads it");
}

#[test_case("auth.token_file", "0.0.0.0:0", Some("client"); "the tokens of clients")]
#[test_case("metrics.token_file", "0.0.0.0:0", Some("reader"); "tokens of its own")]
#[test_case("metrics.token_file", "127.0.0.1:0", None; "none on this machine")]
#[tokio::test]
async fn who_may_read(key: &str, listen: &str, token: Option<&str>) {
    let directory = work_dir();
    let file = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, name).unwrap();
        path.display().to_string()
    };
    let mut setup = Daemon::setup()
        .set("metrics.listen", listen)
        .set("auth.mode", "capability-token")
        .set("auth.token_file", &file("client"))
        .set("auth.failure_delay_ms", "0");
    if key == "metrics.token_file" {
        setup = setup.set(key, &file("reader"));
    }
    let daemon = setup.start().await;
    let address = metrics_address(&daemon).await.replace("0.0.0.0", "127.0.0.1");
    for candidate in [None, Some("client"), Some("reader"), Some("other")] {
        let lines = candidate.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let expected = if token.is_none() || token == candidate { 200 } else { 401 };
        assert_eq!(get(&address, "/metrics", &lines).await.0, expected, "{candidate:?}");
        assert_eq!(get(&address, "/readyz", "").await.0, 200);
    }
}

#[tokio::test]
async fn health_is_that_of_the_first_address() {
    let directory = work_dir();
    let unix = format!("unix:{}", directory.path().join("socket").display());
    let daemon = Daemon::setup().listen(&unix).start().await;
    assert_eq!(health(&["--listen", &unix]).await.status.code(), Some(0));
    assert_eq!(health(&["--url", &unix]).await.status.code(), Some(0));
    daemon.signal(Signal::KILL);
    let gone = health(&["--listen", &unix]).await;
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("does not answer"), "{gone:?}");
}

#[tokio::test]
async fn health_over_tls_needs_no_certificate_of_this_name() {
    let directory = work_dir();
    let (certificate, key) = (directory.path().join("c"), directory.path().join("k"));
    let clients = directory.path().join("a");
    let authority = Authority::new();
    authority.identity(&["elsewhere.test"]).write(&certificate, &key);
    std::fs::write(&clients, authority.pem()).unwrap();
    let words = |flag: &str, path: &std::path::Path| format!("--{flag}={}", path.display());
    let flags = [words("tls-cert", &certificate), words("tls-key", &key), words("tls-client-ca", &clients)];
    let setup = flags.iter().fold(Daemon::setup(), |setup, flag| setup.argument(flag));
    let daemon = setup.start().await;
    let listen = daemon.url().to_owned();
    let mut arguments = vec!["--listen", &listen];
    arguments.extend(flags.iter().map(String::as_str));
    let answer = health(&arguments).await;
    assert_eq!(answer.status.code(), Some(0), "{answer:?}");
    assert_eq!(health(&["--url", &listen]).await.status.code(), Some(0));
    assert_eq!(health(&["--url", &listen.replace("wss", "ws")]).await.status.code(), Some(1));
}

#[test_case(&["--listen", "127.0.0.1:0"], "name the real one with --url"; "a port of the kernel")]
#[test_case(&["--listen", "stdio"], "stdio has no address"; "stdio")]
#[test_case(&["--url", "nowhere"], "bad value for --url"; "no address")]
#[tokio::test]
async fn health_says_what_it_cannot_ask(words: &[&str], message: &str) {
    let answer = health(words).await;
    assert_eq!(answer.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&answer.stderr).contains(message), "{answer:?}");
}

#[tokio::test]
async fn who_never_answers_is_not_healthy() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let answer = health(&["--url", &url]).await;
    assert_eq!(answer.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&answer.stderr).contains("within 2 s"), "{answer:?}");
}

#[tokio::test]
async fn a_server_that_drains_is_alive_but_not_ready() {
    let mut daemon =
        Daemon::setup().set("process.grace_ms", "20000").set("server.drain_ms", "20000").start().await;
    let client = daemon.client().await;
    let start = Start::sh("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    client.start(&start).await;
    client.wait_output(&start.id(), "ready").await;
    assert_eq!(get(daemon.address(), "/readyz", "").await.0, 200);
    daemon.signal(Signal::TERM);
    assert_eq!(client.end().await, super::support::End::Closed(1001));
    assert_eq!(get(daemon.address(), "/readyz", "").await.0, 503);
    assert_eq!(get(daemon.address(), "/healthz", "").await.0, 200);
    let upgrade = super::support::client::upgrade(daemon.url());
    assert_eq!(Client::try_connect(daemon.url(), upgrade).await.map(drop), Err(Refused::Status(503)));
    assert_eq!(health(&["--url", daemon.url()]).await.status.code(), Some(1));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
}
