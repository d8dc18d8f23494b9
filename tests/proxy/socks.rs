//! Connections by SOCKS5.

use exec_server::protocol::network::{NetworkProtocol, ProxyMode, ProxySettings};
use test_case::test_case;
use tokio::io::AsyncWriteExt;

use crate::support::{Connection, Names, Run, closed_port, echo, settings};

/// A request for a name or an address.
fn request(command: u8, host: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, command, 0];
    match host.parse() {
        Ok(std::net::IpAddr::V4(address)) => bytes.extend([&[1][..], &address.octets()].concat()),
        Ok(std::net::IpAddr::V6(address)) => bytes.extend([&[4][..], &address.octets()].concat()),
        Err(_) => bytes.extend([&[3, u8::try_from(host.len()).unwrap()], host.as_bytes()].concat()),
    }
    bytes.extend(port.to_be_bytes());
    bytes
}

/// What the proxy answers, and the connection.
async fn ask(run: &Run, command: u8, host: &str, port: u16) -> (u8, Connection) {
    let mut connection = Connection::to(run.socks()).await;
    connection.talk(&[5, 1, 0], &[5, 0]).await;
    connection.send(&request(command, host, port)).await;
    let reply = connection.take(10).await;
    assert_eq!((reply.len(), reply[0], reply[3]), (10, 5, 1));
    (reply[1], connection)
}

#[tokio::test]
async fn connections_by_address_and_by_name() {
    let port = echo().await;
    let names = Names::default().with("a.test", &[&["127.0.0.1"]]);
    let mut run = Run::new(ProxySettings { allow_local_binding: true, ..settings(&["*"]) }, names);
    for host in ["127.0.0.1", "::ffff:127.0.0.1", "localhost", "A.test."] {
        let (reply, mut connection) = ask(&run, 1, host, port).await;
        assert_eq!(reply, 0, "{host}");
        connection.talk(b"ping", b"ping").await;
        connection.stream.shutdown().await.unwrap();
        assert_eq!(connection.rest().await, b"end");
    }
    let report = run.reports(4).await.remove(3);
    assert_eq!(
        (report.protocol, report.method, report.host.as_str()),
        (NetworkProtocol::Socks5Tcp, None, "a.test")
    );
}

#[tokio::test]
async fn refusals() {
    let port = echo().await;
    let run = Run::new(settings(&["127.0.0.1", "*.test"]), Names::default());
    for (command, host, port, reply) in [
        (1, "127.0.0.2", port, 2),
        (1, "localhost", port, 2),
        (1, "other.invalid", port, 2),
        (1, "nowhere.test", port, 2),
        (1, "a b", port, 2),
        (1, "", port, 2),
        (1, "127.0.0.1", closed_port(), 5),
        (2, "127.0.0.1", port, 7),
        (9, "127.0.0.1", port, 7),
    ] {
        let (found, mut connection) = ask(&run, command, host, port).await;
        assert_eq!(found, reply, "{command} {host}");
        assert_eq!(connection.rest().await, b"");
    }
}

#[test_case(&[5, 1, 2], &[5, 0xff]; "only a password")]
#[test_case(&[5, 0], &[5, 0xff]; "no method")]
#[test_case(&[4, 1, 0, 80, 127, 0, 0, 1, 0], &[]; "version 4")]
#[test_case(b"GET / HTTP/1.1\r\n\r\n", &[]; "HTTP")]
#[test_case(&[5, 1, 0, 5, 1, 0, 9, 9], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]; "unknown kind of address")]
#[test_case(&[5, 1, 0, 4, 1, 0, 1], &[5, 0]; "another version later")]
#[tokio::test]
async fn what_is_not_spoken(bytes: &[u8], answer: &[u8]) {
    let run = Run::allowing(&["127.0.0.1"]);
    let mut connection = Connection::to(run.socks()).await;
    connection.send(bytes).await;
    assert_eq!(connection.rest().await, answer);
}

#[tokio::test]
async fn everything_may_come_at_once_or_byte_by_byte() {
    let port = echo().await;
    let run = Run::allowing(&["127.0.0.1"]);
    let all = [&[5, 2, 2, 0][..], &request(1, "127.0.0.1", port), b"early"].concat();
    let mut at_once = Connection::to(run.socks()).await;
    at_once.send(&all).await;
    assert_eq!(at_once.take(17).await[12..], *b"early");
    let mut slowly = Connection::to(run.socks()).await;
    for byte in &all {
        slowly.send(&[*byte]).await;
    }
    assert_eq!(slowly.take(17).await[12..], *b"early");
}

#[tokio::test]
async fn nothing_where_only_reading_is_allowed() {
    let mut limited = settings(&["127.0.0.1"]);
    limited.mode = ProxyMode::Limited;
    let mut run = Run::new(limited, Names::default());
    assert_eq!(ask(&run, 1, "127.0.0.1", 443).await.0, 2);
    assert_eq!(ask(&run, 1, "127.0.0.1", 80).await.0, 2);
    let reasons: Vec<String> = run.reports(4).await.into_iter().map(|report| report.reason).collect();
    assert_eq!(reasons, ["allow", "mitm_required", "allow", "method_not_allowed"]);
}

#[tokio::test]
async fn there_is_no_listener_where_none_is_wanted() {
    let run = Run::new(ProxySettings { enable_socks5: false, ..settings(&[]) }, Names::default());
    assert_eq!(run.endpoints.socks, None);
}
