//! The proxies that the server itself is told to use.

use std::ffi::OsString;

use exec_server::network::proxy::upstream::UpstreamSettings;
use exec_server::protocol::network::ProxySettings;

use crate::support::{Connection, Names, Run, Target, launch, settings};

/// A proxy behind a server with this environment.
fn behind(variables: &[(&str, String)], names: Names, change: impl FnOnce(&mut ProxySettings)) -> Run {
    let mut settings =
        ProxySettings { allow_local_binding: true, allow_upstream_proxy: true, ..settings(&["*"]) };
    change(&mut settings);
    let variable = |name: &str| -> Option<OsString> {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    };
    let upstream = UpstreamSettings { variable: Some(&variable), ..UpstreamSettings::default() };
    Run::full(launch(settings, None), names, 64, upstream, Box::new(|_| None))
}

fn url(target: &Target) -> String {
    format!("http://us%40er:pass@127.0.0.1:{}", target.port)
}

const TUNNEL: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\nhello";

#[tokio::test]
async fn plain_requests_go_whole() {
    let upstream = Target::ok().await;
    let run = behind(&[("HTTP_PROXY", url(&upstream))], Names::default(), |_| {});
    let mut connection = Connection::to(run.http()).await;
    for (host, path) in [("far.test:8080", "/x"), ("other.test", "/y")] {
        connection.send(format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic own\r\n\r\n").as_bytes()).await;
        assert_eq!(connection.reply().await.status, 200);
    }
    let seen = upstream.seen().concat();
    assert!(seen.starts_with("GET http://far.test:8080/x HTTP/1.1\r\nHost: far.test:8080\r\n"), "{seen}");
    assert!(seen.contains("GET http://other.test/y HTTP/1.1\r\nHost: other.test\r\n"), "{seen}");
    // us@er:pass
    assert_eq!(seen.matches("Basic dXNAZXI6cGFzcw==").count(), 2, "{seen}");
    assert!(!seen.contains("Basic own"));
}

#[tokio::test]
async fn tunnels_go_through_tunnels() {
    let upstream = Target::saying(TUNNEL).await;
    let run = behind(&[("https_proxy", url(&upstream))], Names::default(), |_| {});
    let (reply, mut connection) = run.tunnel("far.test", 443).await;
    assert_eq!(reply.status, 200);
    assert_eq!(connection.take(5).await, b"hello", "what came with the answer is kept");
    connection.send(b"more").await;
    upstream.has_seen("more").await;
    let seen = upstream.seen().concat();
    assert!(seen.starts_with("CONNECT far.test:443 HTTP/1.1\r\nhost: far.test:443\r\n"), "{seen}");
    assert!(seen.contains("Basic dXNAZXI6cGFzcw=="), "{seen}");
}

#[tokio::test]
async fn an_upgrade_goes_through_a_tunnel() {
    let upstream = Target::saying(b"HTTP/1.1 200 OK\r\n\r\n").await;
    let run = behind(&[("HTTP_PROXY", url(&upstream))], Names::default(), |_| {});
    let mut connection = Connection::to(run.http()).await;
    let request = "GET http://far.test/ws HTTP/1.1\r\nHost: far.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    connection.send(request.as_bytes()).await;
    upstream.has_seen("Upgrade: websocket\r\n\r\n").await;
    let seen = upstream.seen().concat();
    assert!(
        seen.starts_with("CONNECT far.test:80 HTTP/1.1\r\n") && seen.contains("\r\n\r\nGET /ws HTTP/1.1"),
        "{seen}"
    );
}

#[tokio::test]
async fn all_proxy_is_for_what_has_none_and_no_proxy_for_what_wants_none() {
    let (upstream, target) = (Target::ok().await, Target::ok().await);
    let names = Names::default().with("direct.test", &[&["127.0.0.1"]]);
    let variables = [("ALL_PROXY", url(&upstream)), ("NO_PROXY", "x.test, .direct.test".to_owned())];
    let run = behind(&variables, names, |_| {});
    assert_eq!(run.get("far.test", 80).await.status, 200);
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(run.get("x.test", target.port).await.status, 502, "it is not known here");
    assert_eq!(run.get("127.0.0.1", target.port).await.status, 200);
    assert_eq!(run.get("direct.test", target.port).await.status, 200);
    assert_eq!((upstream.seen().len(), target.seen().len()), (1, 2));
}

#[tokio::test]
async fn it_is_used_only_if_the_start_says_so() {
    let upstream = Target::ok().await;
    let run = behind(&[("HTTP_PROXY", url(&upstream))], Names::default(), |settings| {
        settings.allow_upstream_proxy = false
    });
    assert_eq!(run.get("far.test", 80).await.status, 502);
    assert_eq!(upstream.seen(), [""; 0]);
}

#[tokio::test]
async fn rules_come_first() {
    let upstream = Target::ok().await;
    let names =
        Names::default().with("public.test", &[&["93.184.216.34"]]).with("inner.test", &[&["10.0.0.1"]]);
    let run =
        behind(&[("HTTP_PROXY", url(&upstream))], names, |settings| settings.allow_local_binding = false);
    assert_eq!(run.get("unknown.test", 80).await.reason(), "not_allowed_local");
    assert_eq!(run.get("inner.test", 80).await.reason(), "not_allowed_local");
    assert_eq!(run.get("public.test", 80).await.status, 200);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn private_addresses_go_there_only_if_the_operator_says_so() {
    let upstream = Target::ok().await;
    let value = url(&upstream);
    let variable = |name: &str| (name == "HTTP_PROXY").then(|| OsString::from(&value));
    let settings =
        ProxySettings { allow_local_binding: true, allow_upstream_proxy: true, ..settings(&["*"]) };
    for (private_ips, host, count) in [(true, "127.0.0.1", 0), (true, "10.255.255.1", 1)] {
        let upstream_settings = UpstreamSettings { private_ips, variable: Some(&variable), tcp: None };
        let launch = launch(settings.clone(), None);
        let run = Run::full(launch, Names::default(), 64, upstream_settings, Box::new(|_| None));
        run.get(host, 9).await;
        assert_eq!(upstream.seen().len(), count, "{host}");
    }
}

#[tokio::test]
async fn what_an_upstream_proxy_refuses_is_its_failure() {
    let refusing = Target::saying(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n").await;
    let variables = [("HTTP_PROXY", url(&refusing)), ("HTTPS_PROXY", url(&refusing))];
    let run = behind(&variables, Names::default(), |_| {});
    assert_eq!(run.get("far.test", 80).await.status, 502);
    assert_eq!(run.tunnel("far.test", 443).await.0.status, 502);
    let run = behind(&[("ALL_PROXY", "socks5://127.0.0.1:1".to_owned())], Names::default(), |_| {});
    let reply = run.get("far.test", 80).await;
    assert_eq!(reply.status, 502);
    assert!(String::from_utf8(reply.body).unwrap().contains("socks5"));
}

#[tokio::test]
async fn socks_goes_direct_unless_it_has_a_proxy_of_its_own() {
    let (upstream, for_tcp) = (Target::ok().await, Target::saying(TUNNEL).await);
    let value = url(&upstream);
    let variable = |name: &str| (name == "ALL_PROXY").then(|| OsString::from(&value));
    let settings =
        ProxySettings { allow_local_binding: true, allow_upstream_proxy: true, ..settings(&["*"]) };
    for (tcp, reply) in [(None, 5), (Some(format!("127.0.0.1:{}", for_tcp.port).parse().unwrap()), 0)] {
        let upstream = UpstreamSettings { tcp, private_ips: false, variable: Some(&variable) };
        let launch = launch(settings.clone(), None);
        let run = Run::full(launch, Names::default(), 64, upstream, Box::new(|_| None));
        let mut connection = Connection::to(run.socks()).await;
        connection.talk(&[5, 1, 0], &[5, 0]).await;
        connection.talk(b"\x05\x01\x00\x03\x08far.test\x00\x16", &[5, reply]).await;
    }
    assert!(for_tcp.seen().concat().starts_with("CONNECT far.test:22 HTTP/1.1\r\n"));
    assert_eq!(upstream.seen(), [""; 0]);
}
