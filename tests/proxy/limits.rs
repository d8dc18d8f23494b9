//! Peers that take what they can get.

use std::time::Duration;

use exec_server::network::proxy::guest::{Guest, PeerCheck};
use exec_server::network::proxy::upstream::UpstreamSettings;
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt;

use crate::support::{Connection, Names, Run, Target, echo, exchange, launch, settings};

fn with_places(places: usize) -> Run {
    let launch = launch(settings(&["127.0.0.1"]), None);
    Run::full(launch, Names::default(), places, UpstreamSettings::default(), Box::new(|_| None))
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let (port, run) = (echo().await, with_places(2));
    let (_, mut one) = run.tunnel("127.0.0.1", port).await;
    let mut idle = Connection::to(run.socks()).await;
    idle.talk(&[5, 1, 0], &[5, 0]).await;
    let mut waiting = Connection::to(run.http()).await;
    waiting.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await;
    one.talk(b"both places are taken", b"both places are taken").await;
    let answer = tokio::time::timeout(Duration::from_millis(300), waiting.stream.read_u8()).await;
    assert!(answer.is_err(), "there is no place");
    drop(idle);
    assert_eq!(waiting.reply_to("CONNECT").await.status, 200);
}

#[tokio::test]
async fn a_head_has_a_limit() {
    let run = with_places(8);
    let long =
        format!("GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(exchange(run.http(), long.as_bytes()).await.status, 431);
    let many = format!("GET http://127.0.0.1/ HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(1000));
    assert_eq!(exchange(run.http(), many.as_bytes()).await.status, 431);
    let uri = format!("GET http://127.0.0.1/{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
    assert!(matches!(exchange(run.http(), uri.as_bytes()).await.status, 414 | 431));
}

#[tokio::test]
async fn the_head_of_an_answer_has_a_limit() {
    static LONG: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(200_000)).into_bytes()
    });
    let target = Target::saying(&LONG).await;
    assert_eq!(with_places(8).get("127.0.0.1", target.port).await.status, 502);
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_let_go() {
    let run = with_places(8);
    for address in [run.http(), run.socks()] {
        let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut read = [0; 64];
        let ended = tokio::time::timeout(Duration::from_secs(120), silent.read(&mut read)).await;
        ended.expect("the connection ends").ok();
    }
}

#[derive(Debug)]
struct Nobody;

impl PeerCheck for Nobody {
    fn is_own(&self, peer: std::net::SocketAddr, own: std::net::SocketAddr) -> BoxFuture<'_, bool> {
        assert_ne!(peer.port(), own.port());
        Box::pin(std::future::ready(false))
    }
}

#[tokio::test]
async fn strangers_are_shown_out_unheard() {
    let run = with_places(8);
    let doors = run.proxy.bind().unwrap();
    let endpoints = doors.endpoints();
    let guest = Guest { check: Some(std::sync::Arc::new(Nobody)), inside: None };
    run.proxy.serve(doors, &guest).unwrap();
    for address in [endpoints.http, endpoints.socks.unwrap()] {
        let mut stranger = Connection::to(address).await;
        assert_eq!(stranger.rest().await, b"");
    }
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_writer() {
    // A destination that would send without end.
    let endless = Target::endless().await;
    let run = with_places(8);
    let (_, mut connection) = run.tunnel("127.0.0.1", endless.port).await;
    assert_eq!(connection.take(1000).await.len(), 1000);
    let mut last = 0;
    // What is on the way is what the system's and the proxy's buffers hold, and no more.
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let sent = endless.sent();
        if sent == last {
            break;
        }
        last = sent;
        assert!(sent < 64 << 20, "{sent} bytes are on the way");
    }
}
