//! What a name leads to: looked up once, looked at, and dialled as it was looked at.

use std::time::Duration;

use exec_server::protocol::network::{DomainAccess, ProxySettings};
use futures_util::future::join_all;
use test_case::test_case;

use crate::support::{Names, Run, Target, settings};

fn local(allow: &[&str]) -> ProxySettings {
    ProxySettings { allow_local_binding: true, ..settings(allow) }
}

#[test_case("127.0.0.1"; "address")]
#[test_case("127.0.0.1."; "with a dot")]
#[test_case("127.0.0.2"; "of the loopback")]
#[test_case("0.0.0.0"; "unspecified")]
#[test_case("[::]"; "unspecified of IPv6")]
#[test_case("[::1]"; "IPv6")]
#[test_case("[0:0:0:0:0:0:0:1]"; "IPv6 in full")]
#[test_case("[::ffff:127.0.0.1]"; "mapped")]
#[test_case("[::ffff:7f00:1]"; "mapped in hex")]
#[test_case("[::127.0.0.1]"; "compatible")]
#[test_case("[64:ff9b::127.0.0.1]"; "translated")]
#[test_case("[2002:7f00:1::]"; "tunnelled")]
#[test_case("localhost"; "localhost")]
#[test_case("LOCALHOST"; "in capitals")]
#[test_case("localhost."; "localhost with a dot")]
#[test_case("x.localhost"; "below localhost")]
#[test_case("127.1"; "short")]
#[test_case("127.0.1"; "three parts")]
#[test_case("2130706433"; "decimal")]
#[test_case("0x7f000001"; "hex")]
#[test_case("0x7f.0.0.1"; "hex part")]
#[test_case("017700000001"; "octal")]
#[test_case("0177.0.0.1"; "octal part")]
#[test_case("169.254.169.254"; "metadata")]
#[test_case("10.0.0.1"; "private")]
#[test_case("192.168.0.1"; "private too")]
#[test_case("[fe80::1]"; "link")]
#[test_case("[fc00::1]"; "unique local")]
#[test_case("224.0.0.1"; "group")]
#[test_case("255.255.255.255"; "everybody")]
#[test_case("loopback.test"; "name for the loopback")]
#[test_case("mixed.test"; "name with one private address")]
#[test_case("mapped.test"; "name for a mapped address")]
#[test_case("nowhere.test"; "unknown name")]
#[tokio::test]
async fn everything_allowed_is_not_local(host: &str) {
    let target = Target::ok().await;
    let numbers =
        ["127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "017700000001", "0177.0.0.1"];
    let names = Names::default()
        .with("loopback.test", &[&["127.0.0.1"]])
        .with("x.localhost", &[&["127.0.0.1"]])
        .with("mapped.test", &[&["::ffff:127.0.0.1"]])
        .with("mixed.test", &[&["93.184.216.34", "127.0.0.1"]]);
    // As a resolver that takes numbers for addresses.
    let names = numbers.iter().fold(names, |names, number| names.with(number, &[&["127.0.0.1"]]));
    let mut run = Run::new(settings(&["*"]), names);
    assert_eq!(run.get(host, target.port).await.reason(), "not_allowed_local");
    let (tunnel, _) = run.tunnel(host, target.port).await;
    assert_eq!(tunnel.status, 403);
    assert_eq!(target.seen(), [""; 0]);
    assert_eq!(run.reports(2).await.len(), 2);
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_its_address_dialled() {
    let target = Target::ok().await;
    let names = Names::default().with("rebinding.test", &[&["127.0.0.1"], &["192.0.2.1"]]);
    let run = Run::new(local(&["rebinding.test"]), names);
    assert_eq!(run.get("rebinding.test", target.port).await.status, 200);
    assert_eq!(run.names.asked(), ["rebinding.test"]);
    assert_eq!(
        target.seen()[0].lines().nth(1),
        Some(format!("Host: rebinding.test:{}", target.port).as_str())
    );
}

#[tokio::test]
async fn a_name_that_becomes_local_is_blocked_from_then_on() {
    let target = Target::ok().await;
    let names = Names::default().with("rebinding.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let mut rules = local(&["*"]);
    rules.domains.as_mut().unwrap().insert("127.0.0.2".to_owned(), DomainAccess::Deny);
    let run = Run::new(rules, names);
    let host = format!("rebinding.test:{}", target.port);
    let mut connection = crate::support::Connection::to(run.http()).await;
    for status in [200, 403] {
        // The first connection is kept, and must not be used any more.
        connection.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert_eq!(connection.reply().await.status, status);
    }
    assert_eq!(target.seen().len(), 1);
}

#[tokio::test]
async fn a_kept_connection_is_not_used_for_another_address() {
    let target = Target::ok().await;
    let names = Names::default().with("moving.test", &[&["127.0.0.1"], &["127.0.0.3"]]);
    let run = Run::new(local(&["*"]), names);
    let host = format!("moving.test:{}", target.port);
    let mut connection = crate::support::Connection::to(run.http()).await;
    for status in [200, 502] {
        connection.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert_eq!(connection.reply().await.status, status);
    }
}

#[tokio::test]
async fn a_denied_address_is_denied_under_every_name() {
    let target = Target::ok().await;
    let names = Names::default().with("a.test", &[&["127.0.0.1"]]);
    let mut rules = local(&["*"]);
    rules.domains.as_mut().unwrap().insert("127.0.0.1".to_owned(), DomainAccess::Deny);
    let run = Run::new(rules, names);
    for host in ["a.test", "127.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
        assert_eq!(run.get(host, target.port).await.reason(), "denied", "{host}");
    }
    assert_eq!(target.seen(), [""; 0]);
}

#[tokio::test]
async fn a_lookup_that_takes_too_long_is_a_failed_one() {
    let run = Run::new(settings(&["*"]), Names::default());
    let began = std::time::Instant::now();
    assert_eq!(run.get("slow.test", 80).await.reason(), "not_allowed_local");
    assert!((1.5..4.0).contains(&began.elapsed().as_secs_f64()));
}

#[tokio::test]
async fn a_lookup_has_its_turn_for_as_long_as_the_resolver_works_on_it() {
    let target = Target::ok().await;
    let run = Run::new(local(&["*"]), Names::default().with("quick.test", &[&["127.0.0.1"]]));
    // Nobody waits any longer for any of them, and the resolver has not ended one.
    join_all((0..20).map(|_| run.get("slow.test", target.port))).await;
    assert_eq!(run.names.asked(), ["slow.test"; 16]);
    assert_eq!(run.get("quick.test", target.port).await.status, 502);
    assert_eq!(run.names.asked().len(), 16, "there is no turn");
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(run.get(host, target.port).await.status, 200, "{host} needs none");
    }
    run.proxy.close();
    let closed = tokio::time::timeout(Duration::from_secs(10), run.proxy.closed()).await;
    closed.expect("a lookup ends with its proxy");
}

#[tokio::test]
async fn a_lookup_that_has_ended_gives_its_turn_back() {
    let target = Target::ok().await;
    let run = Run::new(local(&["*"]), Names::default().with("quick.test", &[&["127.0.0.1"]]));
    for _ in 0..20 {
        assert_eq!(run.get("quick.test", target.port).await.status, 200);
    }
}

#[tokio::test]
async fn where_local_is_allowed_an_unknown_name_is_unreachable() {
    let run = Run::new(local(&["*"]), Names::default());
    assert_eq!(run.get("nowhere.test", 80).await.status, 502);
}

#[tokio::test]
async fn localhost_is_this_machine_whatever_the_resolver_says() {
    let target = Target::ok().await;
    let run = Run::new(settings(&["localhost"]), Names::default().with("localhost", &[&["192.0.2.1"]]));
    assert_eq!(run.get("LocalHost", target.port).await.status, 200);
    assert_eq!(run.names.asked(), [""; 0]);
}

#[tokio::test]
async fn all_addresses_are_tried() {
    let target = Target::ok().await;
    let names = Names::default().with("many.test", &[&["::1", "127.0.0.9", "127.0.0.1"]]);
    let run = Run::new(local(&["*"]), names);
    assert_eq!(run.get("many.test", target.port).await.status, 200);
}
