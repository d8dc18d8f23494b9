//! Datagrams by SOCKS5.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exec_server::network::proxy::guest::{Guest, PeerCheck};
use exec_server::protocol::network::{NetworkProtocol, ProxySettings};
use futures_util::future::{BoxFuture, ready};
use tokio::net::UdpSocket;

use crate::support::{Connection, Names, Run, echo_datagrams, settings};

/// An association: the connection that holds it, and where its datagrams go.
async fn associate(run: &Run) -> (Connection, SocketAddr) {
    let mut connection = Connection::to(run.socks()).await;
    connection.talk(&[5, 1, 0], &[5, 0]).await;
    connection.send(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    let reply = connection.take(10).await;
    assert_eq!(reply[..4], [5, 0, 0, 1]);
    let ip: [u8; 4] = reply[4..8].try_into().unwrap();
    (connection, SocketAddr::from((ip, u16::from_be_bytes([reply[8], reply[9]]))))
}

fn to(target: SocketAddr, data: &[u8]) -> Vec<u8> {
    let SocketAddr::V4(target) = target else { panic!("IPv4") };
    [&[0, 0, 0, 1][..], &target.ip().octets(), &target.port().to_be_bytes(), data].concat()
}

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

async fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65536];
    let received = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut buffer)).await;
    buffer.truncate(received.expect("a datagram comes").unwrap());
    buffer
}

#[tokio::test]
async fn datagrams_go_and_come_back_once() {
    let (target, count) = echo_datagrams().await;
    let mut run = Run::allowing(&["127.0.0.1", "localhost"]);
    let (_connection, relay) = associate(&run).await;
    let client = socket().await;
    for number in 0..3_u8 {
        client.send_to(&to(target, &[number; 3]), relay).await.unwrap();
        assert_eq!(receive(&client).await, to(target, &[number; 3]));
    }
    let by_name = [&[0, 0, 0, 3, 9][..], b"localhost", &target.port().to_be_bytes(), b"x"].concat();
    client.send_to(&by_name, relay).await.unwrap();
    assert_eq!(receive(&client).await, to(target, b"x"));
    let large = vec![7; 60_000];
    client.send_to(&to(target, &large), relay).await.unwrap();
    assert_eq!(receive(&client).await, to(target, &large));
    // The relay would go on by itself if it took the echo for something that the client says.
    assert_eq!(*count.lock().unwrap(), 5);
    let report = run.reports(5).await.remove(0);
    assert_eq!((report.protocol, report.host.as_str()), (NetworkProtocol::Socks5Udp, "127.0.0.1"));
}

#[tokio::test]
async fn what_may_not_go_does_not() {
    let (allowed, _) = echo_datagrams().await;
    let (blocked, count) = echo_datagrams().await;
    let mut run = Run::allowing(&["127.0.0.1"]);
    let (_connection, relay) = associate(&run).await;
    let client = socket().await;
    let mut fragment = to(blocked, b"part");
    fragment[2] = 1;
    let localhost = [&[0, 0, 0, 3, 9][..], b"localhost", &blocked.port().to_be_bytes(), b"x"].concat();
    for datagram in [&localhost, &fragment, &b"\0"[..].to_vec(), &vec![0, 0, 0, 9, 9]] {
        client.send_to(datagram, relay).await.unwrap();
    }
    client.send_to(&to(allowed, b"ok"), relay).await.unwrap();
    assert_eq!(receive(&client).await, to(allowed, b"ok"));
    assert_eq!(run.reports(2).await[0].reason, "not_allowed_local");
    assert_eq!(*count.lock().unwrap(), 0);
}

#[tokio::test]
async fn only_the_first_client_and_known_destinations_are_heard() {
    let (target, count) = echo_datagrams().await;
    let run = Run::allowing(&["127.0.0.1"]);
    let (_connection, relay) = associate(&run).await;
    let (client, stranger) = (socket().await, socket().await);
    client.send_to(&to(target, b"one"), relay).await.unwrap();
    assert_eq!(receive(&client).await, to(target, b"one"));
    stranger.send_to(&to(target, b"two"), relay).await.unwrap();
    client.send_to(&to(target, b"three"), relay).await.unwrap();
    assert_eq!(receive(&client).await, to(target, b"three"));
    assert_eq!(*count.lock().unwrap(), 2, "the stranger's went nowhere");
}

#[tokio::test]
async fn an_association_ends_with_its_connection() {
    let (target, _) = echo_datagrams().await;
    let run = Run::allowing(&["127.0.0.1"]);
    let (connection, relay) = associate(&run).await;
    let client = socket().await;
    client.connect(relay).await.unwrap();
    client.send(&to(target, b"one")).await.unwrap();
    assert_eq!(receive(&client).await, to(target, b"one"));
    drop(connection);
    // Once the socket is gone, the system says so.
    let refused = async {
        loop {
            let sent = client.send(&to(target, b"two")).await;
            tokio::task::yield_now().await;
            if sent.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), refused).await.expect("the relay is gone");
}

#[tokio::test]
async fn relays_are_not_reached_through_relays() {
    let run = Run::new(ProxySettings { allow_local_binding: true, ..settings(&["*"]) }, Names::default());
    let ((_one, first), (_other, second)) = (associate(&run).await, associate(&run).await);
    let mut run = run;
    let client = socket().await;
    client.send_to(&to(second, b"x"), first).await.unwrap();
    assert_eq!(run.reports(1).await[0].reason, "own_listener");
}

#[tokio::test]
async fn no_datagrams_where_none_are_wanted() {
    let run =
        Run::new(ProxySettings { enable_socks5_udp: false, ..settings(&["127.0.0.1"]) }, Names::default());
    let mut connection = Connection::to(run.socks()).await;
    connection.talk(&[5, 1, 0], &[5, 0]).await;
    connection.talk(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0], &[5, 7]).await;
}

#[derive(Debug)]
struct Everybody;

impl PeerCheck for Everybody {
    fn is_own(&self, _: SocketAddr, _: SocketAddr) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }
}

#[tokio::test]
async fn no_datagrams_where_it_counts_who_sends_them() {
    let run = Run::allowing(&["127.0.0.1"]);
    let doors = run.proxy.bind().unwrap();
    let socks = doors.endpoints().socks.unwrap();
    run.proxy.serve(doors, &Guest { check: Some(Arc::new(Everybody)), inside: None }).unwrap();
    let mut connection = Connection::to(socks).await;
    connection.talk(&[5, 1, 0], &[5, 0]).await;
    connection.talk(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0], &[5, 7]).await;
}
