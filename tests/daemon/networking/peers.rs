//! Who may use the proxy of a run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use test_case::test_case;

use super::launch;
use super::target::Target;
use crate::support::{Daemon, LIMIT, Start, sandbox};

/// What the proxy at a port says to this process; empty if it closes the connection.
fn asked(port: u16, target: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!(
        "GET http://127.0.0.1:{target}/ HTTP/1.1\r\nHost: 127.0.0.1:{target}\r\nConnection: close\r\n\r\n"
    );
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A run without a sandbox shares its proxy by default; with `network.check_peer`, and in a sandbox, it does not.
#[test_case(false, false, true; "open")]
#[test_case(true, false, false; "checked")]
#[test_case(false, true, false; "sandboxed")]
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_serves_its_run(checks: bool, sandboxed: bool, strangers: bool) {
    let setup = Daemon::setup().set("network.check_peer", if checks { "true" } else { "false" });
    let (daemon, target) = (setup.start().await, Target::at("127.0.0.1").await);
    let client = daemon.client().await;
    let fetch = format!("curl -s http://127.0.0.1:{}/", target.port);
    // By itself, by a child, by one that has left it, and again after the stranger.
    let left = format!("x=$( (setsid bash -c '{fetch}; exit' &) ); echo $x");
    let script = format!("{fetch}; {left}; echo $HTTP_PROXY; read line; {fetch}");
    let mut start = Start::bash(&script).stdin().with("networkProxy", launch(&json!({"127.0.0.1": "allow"})));
    if sandboxed {
        start = start.with("sandbox", sandbox::read_only("enabled"));
    }
    client.start(&start).await;
    client.wait_output(&start.id(), "http://").await;
    let text = client.so_far(&start.id()).text();
    assert!(text.starts_with("HITHIT\n"), "{text}");
    let port = text.trim().rsplit(':').next().unwrap().parse().unwrap();
    let goal = target.port;
    let answer = tokio::task::spawn_blocking(move || asked(port, goal)).await.unwrap();
    assert_eq!(answer.contains("HIT"), strangers, "{answer}");
    assert_eq!(target.hits(), 2 + usize::from(strangers));
    client.write(&start.id(), "1", b"\n").await;
    let run = tokio::time::timeout(Duration::from_secs(60), client.finish(&start.id())).await.unwrap();
    assert!(run.text().ends_with("HIT"), "{}", run.text());
}
