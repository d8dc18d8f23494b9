//! Tunnels by CONNECT, and what `Upgrade` makes of a connection.

use exec_server::protocol::network::{NetworkProtocol, ProxyMode};
use tokio::io::AsyncWriteExt;

use crate::support::{Connection, Names, Run, Target, closed_port, echo, settings};

const LOCAL: &[&str] = &["127.0.0.1"];

#[tokio::test]
async fn a_tunnel_carries_bytes_and_half_ends() {
    let (port, mut run) = (echo().await, Run::allowing(LOCAL));
    let (reply, mut connection) = run.tunnel("127.0.0.1", port).await;
    assert_eq!(reply.head, "HTTP/1.1 200 OK\r\n\r\n");
    connection.talk(b"\x16\x03\x01", b"\x16\x03\x01").await;
    connection.stream.shutdown().await.unwrap();
    assert_eq!(connection.rest().await, b"end");
    let report = run.reports(1).await.remove(0);
    assert_eq!((report.protocol, report.method.as_deref()), (NetworkProtocol::HttpsConnect, Some("CONNECT")));
}

#[tokio::test]
async fn what_comes_with_the_request_is_kept() {
    let (port, run) = (echo().await, Run::allowing(LOCAL));
    let mut connection = Connection::to(run.http()).await;
    connection.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly\r\n\r\n").as_bytes()).await;
    assert_eq!(connection.reply_to("CONNECT").await.status, 200);
    connection.talk(b"late", b"early\r\n\r\nlate").await;
}

#[tokio::test]
async fn a_destination_may_speak_first_and_end_first() {
    let target = Target::saying_first(b"220 hello\r\n").await;
    let run = Run::allowing(LOCAL);
    let (reply, mut connection) = run.tunnel("127.0.0.1", target).await;
    assert_eq!(reply.status, 200);
    assert_eq!(connection.rest().await, b"220 hello\r\n");
}

#[tokio::test]
async fn a_tunnel_is_announced_when_it_is_there() {
    let run = Run::allowing(LOCAL);
    let (reply, mut connection) = run.tunnel("127.0.0.1", closed_port()).await;
    assert_eq!(reply.status, 502);
    assert_eq!(connection.rest().await, b"", "nothing else is read as HTTP");
}

#[tokio::test]
async fn blocked_tunnels_are_text() {
    let mut settings = settings(LOCAL);
    settings
        .domains
        .as_mut()
        .unwrap()
        .insert("denied.test".to_owned(), exec_server::protocol::network::DomainAccess::Deny);
    let run = Run::new(settings, Names::default());
    for (host, kind) in [("denied.test", "blocked-by-denylist"), ("localhost", "blocked-by-allowlist")] {
        let (reply, _) = run.tunnel(host, 443).await;
        assert_eq!((reply.status, reply.header("x-proxy-error")), (403, Some(kind)));
        assert!(reply.header("content-type").unwrap().starts_with("text/plain"));
        assert!(String::from_utf8(reply.body).unwrap().contains(host));
    }
}

#[tokio::test]
async fn a_blocked_tunnel_smuggles_nothing() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let mut connection = Connection::to(run.http()).await;
    let inner = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    connection
        .send(format!("CONNECT blocked.test:443 HTTP/1.1\r\nHost: localhost\r\n\r\n{inner}").as_bytes())
        .await;
    assert_eq!(connection.reply().await.status, 403);
    assert_eq!(connection.rest().await, b"");
    assert_eq!(target.seen(), [""; 0]);
}

#[tokio::test]
async fn a_tunnel_without_a_port_means_80() {
    let mut run = Run::allowing(LOCAL);
    let mut connection = Connection::to(run.http()).await;
    connection.send(b"CONNECT 127.0.0.2 HTTP/1.1\r\n\r\n").await;
    assert_eq!(connection.reply().await.status, 403);
    assert_eq!(run.reports(1).await[0].port, 80);
}

#[tokio::test]
async fn no_tunnels_where_only_reading_is_allowed() {
    let mut limited = settings(LOCAL);
    limited.mode = ProxyMode::Limited;
    let (run, port) = (Run::new(limited, Names::default()), echo().await);
    let (reply, _) = run.tunnel("127.0.0.1", port).await;
    assert_eq!((reply.status, reply.header("x-proxy-error")), (403, Some("blocked-by-mitm-required")));
}

#[tokio::test]
async fn a_connection_can_become_a_web_socket() {
    let target = Target::saying(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nfirst",
    );
    let (target, run) = (target.await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let mut connection = Connection::to(run.http()).await;
    let request = format!(
        "GET http://{host}/ws HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    connection.send(request.as_bytes()).await;
    let reply = connection.reply().await;
    assert_eq!((reply.status, reply.header("upgrade")), (101, Some("websocket")));
    assert_eq!(reply.header("sec-websocket-accept"), Some("x"));
    assert_eq!(connection.take(5).await, b"first");
    connection.send(b"GET /frame").await;
    target.has_seen("GET /frame").await;
    assert!(target.seen()[0].to_lowercase().contains("connection: upgrade\r\nupgrade: websocket\r\n"));
}

#[tokio::test]
async fn a_connection_that_could_not_change_ends() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let mut connection = Connection::to(run.http()).await;
    let request =
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.reply().await.status, 200);
    assert_eq!(connection.rest().await, b"");
}

#[tokio::test]
async fn nobody_switches_unasked_or_to_what_cannot_be_seen() {
    let switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let (target, run) = (Target::saying(switching).await, Run::allowing(LOCAL));
    assert_eq!(run.get("127.0.0.1", target.port).await.status, 502);
    let host = format!("127.0.0.1:{}", target.port);
    let request = format!(
        "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
    );
    assert_eq!(crate::support::exchange(run.http(), request.as_bytes()).await.status, 502);
    assert!(!target.seen().concat().to_lowercase().contains("h2c"));
}
