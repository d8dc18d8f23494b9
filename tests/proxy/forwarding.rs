//! Plain requests: what reaches the destination, and what comes back.

use exec_server::protocol::network::{DecisionScope, DecisionSource, NetworkProtocol, ProxyMode};
use test_case::test_case;

use crate::support::{Connection, Names, Run, Target, closed_port, exchange, settings};

const LOCAL: &[&str] = &["127.0.0.1"];

#[tokio::test]
async fn a_request_is_forwarded_without_what_is_for_one_hop() {
    let (target, mut run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let request = format!(
        "POST http://user:pass@{host}/a%20b?q=1&r HTTP/1.1\r\nHost: {host}\r\nX-First: 1\r\nProxy-Authorization: Basic eA==\r\n\
         Connection: x-drop, close\r\nX-Drop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-kEEP: yes\r\nAuthorization: Bearer t\r\n\
         Content-Length: 4\r\n\r\nbody"
    );
    let reply = exchange(run.http(), request.as_bytes()).await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"hi"[..]));
    let expected = format!(
        "POST /a%20b?q=1&r HTTP/1.1\r\nHost: {host}\r\nX-First: 1\r\nX-kEEP: yes\r\nAuthorization: Bearer t\r\n\
         Content-Length: 4\r\n\r\nbody"
    );
    assert_eq!(target.seen(), [expected]);
    let report = run.reports(1).await.remove(0);
    assert_eq!((report.protocol, report.method.as_deref()), (NetworkProtocol::Http, Some("POST")));
    assert_eq!(
        (report.host.as_str(), report.port, report.reason.as_str()),
        ("127.0.0.1", target.port, "allow")
    );
    assert!(report.client.unwrap().starts_with("127.0.0.1:"));
    assert_eq!((report.timestamp.len(), report.timestamp.ends_with('Z')), (24, true));
}

#[tokio::test]
async fn an_answer_keeps_its_form() {
    let target = Target::saying(
        b"HTTP/1.1 207 Some Reason\r\nX-oDD: a\r\nset-cookie: 1\r\nSet-Cookie: 2\r\nConnection: x-hop\r\nX-Hop: 1\r\n\
          Proxy-Authenticate: x\r\nContent-Length: 3\r\n\r\nabc",
    );
    let target = target.await;
    let reply = Run::allowing(LOCAL).get("127.0.0.1", target.port).await;
    let expected =
        "HTTP/1.1 207 Some Reason\r\nX-oDD: a\r\nset-cookie: 1\r\nSet-Cookie: 2\r\nContent-Length: 3\r\n\r\n";
    assert_eq!((reply.head.as_str(), &reply.body[..]), (expected, &b"abc"[..]));
}

#[tokio::test]
async fn every_request_of_a_connection_is_decided() {
    let (target, mut run) = (Target::ok().await, Run::allowing(LOCAL));
    let port = target.port;
    let mut connection = Connection::to(run.http()).await;
    for (host, status) in [("127.0.0.1", 200), ("127.0.0.2", 403), ("127.0.0.1", 200), ("localhost", 403)] {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.reply().await.status, status, "{host}");
    }
    assert_eq!(target.seen().len(), 1, "one connection serves both");
    let reasons: Vec<String> = run.reports(4).await.into_iter().map(|report| report.reason).collect();
    assert_eq!(reasons, ["allow", "not_allowed_local", "allow", "not_allowed_local"]);
}

#[tokio::test]
async fn pipelined_requests_are_decided_one_by_one() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let port = target.port;
    let one = |host: &str| format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    let mut connection = Connection::to(run.http()).await;
    connection.send([one("127.0.0.1"), one("127.0.0.2"), one("127.0.0.1")].concat().as_bytes()).await;
    for status in [200, 403, 200] {
        assert_eq!(connection.reply().await.status, status);
    }
}

#[tokio::test]
async fn a_destination_that_closes_between_requests_is_called_again() {
    let target = Target::saying(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi").await;
    let run = Run::allowing(LOCAL);
    let mut connection = Connection::to(run.http()).await;
    for count in 1..4 {
        let host = format!("127.0.0.1:{}", target.port);
        connection.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert_eq!(connection.reply().await.status, 200);
        assert_eq!(target.seen().len(), count);
    }
}

#[tokio::test]
async fn blocked_requests_say_why() {
    let mut run = Run::allowing(&["a.test"]);
    let reply = run.get("Other.Test.", 8080).await;
    assert_eq!(reply.header("x-proxy-error"), Some("blocked-by-allowlist"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let mut body = reply.json();
    assert!(body.as_object_mut().unwrap().remove("message").is_some());
    let expected = serde_json::json!({
        "status": "blocked", "host": "other.test", "reason": "not_allowed", "decision": "deny",
        "source": "baseline_policy", "protocol": "http", "port": 8080,
    });
    assert_eq!(body, expected);
    assert_eq!(run.reports(1).await[0].host, "other.test");
}

#[test_case("a..b"; "empty label")]
#[test_case("a_b%2f"; "percent")]
#[test_case("fe80::1"; "no brackets")]
#[tokio::test]
async fn a_host_that_is_none_reaches_nothing(host: &str) {
    let run = Run::new(
        exec_server::protocol::network::ProxySettings { allow_local_binding: true, ..settings(&["*"]) },
        Names::default(),
    );
    assert!(matches!(run.get(host, 80).await.status, 400 | 403));
    assert_eq!(run.names.asked(), [""; 0]);
}

#[test_case("GET / HTTP/1.0\r\n\r\n"; "no host")]
#[test_case("GET / HTTP/1.1\r\nHost:\r\n\r\n"; "empty host")]
#[test_case("GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"; "another host")]
#[test_case("GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"; "another port")]
#[test_case("GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: 127.0.0.1:PORT\r\n\r\n"; "two hosts")]
#[test_case("GET https://127.0.0.1:PORT/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n"; "https")]
#[test_case("GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"; "coding")]
#[test_case("CONNECT / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n"; "CONNECT to a path")]
#[test_case("GET / HTTP/1.1 x\r\nHost: 127.0.0.1:PORT\r\n\r\n"; "no request line")]
#[tokio::test]
async fn requests_that_cannot_be_understood_in_one_way_are_refused(request: &str) {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let request = request.replace("PORT", &target.port.to_string());
    assert_eq!(exchange(run.http(), request.as_bytes()).await.status, 400);
    assert_eq!(target.seen(), [""; 0]);
}

#[tokio::test]
async fn origin_form_uses_host_and_http_1_0_works() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let request = format!("GET /x HTTP/1.0\r\nHost: {host}\r\n\r\n");
    let mut connection = Connection::to(run.http()).await;
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.rest().await, b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(target.seen(), [format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")]);
}

#[tokio::test]
async fn the_server_itself_can_be_asked_for_options() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let request = format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(exchange(run.http(), request.as_bytes()).await.status, 200);
    assert_eq!(target.seen(), [format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n")]);
}

#[tokio::test]
async fn head_has_a_length_and_no_body() {
    let target = Target::saying(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await;
    let run = Run::allowing(LOCAL);
    let mut connection = Connection::to(run.http()).await;
    for _ in 0..2 {
        let host = format!("127.0.0.1:{}", target.port);
        connection.send(format!("HEAD http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        let reply = connection.reply_to("HEAD").await;
        assert_eq!((reply.status, reply.header("content-length")), (200, Some("1000")));
    }
}

#[tokio::test]
async fn a_client_that_expects_to_be_told_is_told() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let mut connection = Connection::to(run.http()).await;
    let head = format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    assert_eq!(connection.reply().await.status, 100);
    connection.send(b"body").await;
    assert_eq!(connection.reply().await.status, 200);
    target.has_seen("body").await;
}

#[tokio::test]
async fn an_unreachable_destination_is_a_bad_gateway() {
    let run = Run::allowing(LOCAL);
    let reply = run.get("127.0.0.1", closed_port()).await;
    assert_eq!(reply.status, 502);
    assert!(reply.body.starts_with(b"upstream failure"));
    let silent = Target::saying(b"").await;
    assert_eq!(run.get("127.0.0.1", silent.port).await.status, 502);
    let garbage = Target::saying(b"SSH-2.0-x\r\n\r\n").await;
    assert_eq!(run.get("127.0.0.1", garbage.port).await.status, 502);
}

#[tokio::test]
async fn unix_sockets_are_not_there() {
    let (target, mut run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX-Unix-Socket: /run/x\r\n\r\n");
    assert_eq!(exchange(run.http(), request.as_bytes()).await.status, 501);
    let report = run.reports(1).await.remove(0);
    assert_eq!((report.scope, report.source), (DecisionScope::NonDomain, DecisionSource::ProxyState));
    assert_eq!((report.reason.as_str(), target.seen().len()), ("unix_socket_unsupported", 0));
}

#[tokio::test]
async fn a_report_does_not_grow_with_the_method() {
    let mut run = Run::allowing(&[]);
    let request = format!("{} http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "X".repeat(50_000));
    assert_eq!(exchange(run.http(), request.as_bytes()).await.status, 403);
    assert_eq!(run.reports(1).await[0].method, Some("X".repeat(253)));
}

#[tokio::test]
async fn reading_only() {
    let target = Target::ok().await;
    let mut limited = settings(LOCAL);
    limited.mode = ProxyMode::Limited;
    let mut run = Run::new(limited, Names::default());
    let host = format!("127.0.0.1:{}", target.port);
    for (method, status) in [("GET", 200), ("OPTIONS", 200), ("POST", 403), ("get", 403), ("TRACE", 403)] {
        let request = format!("{method} http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let reply = exchange(run.http(), request.as_bytes()).await;
        assert_eq!(reply.status, status, "{method}");
        if status == 403 {
            assert_eq!(reply.header("x-proxy-error"), Some("blocked-by-method-policy"));
            assert_eq!(reply.json()["source"], "mode_guard");
        }
    }
    assert_eq!(target.seen().len(), 2);
    let reports = run.reports(8).await;
    assert_eq!(reports[2].scope, DecisionScope::Domain);
    assert_eq!(
        (reports[3].scope, reports[3].reason.as_str()),
        (DecisionScope::NonDomain, "method_not_allowed")
    );
    // What asks to be something else than HTTP stays HTTP, since nobody could see what is done there.
    let request = format!(
        "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_eq!(exchange(run.http(), request.as_bytes()).await.status, 200);
    assert!(!target.seen().last().unwrap().to_lowercase().contains("upgrade"));
}
