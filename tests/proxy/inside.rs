//! A run with a network of its own: what it serves to itself needs no rule.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use exec_server::network::proxy::guest::{Guest, InsideNetwork};
use exec_server::protocol::network::NetworkProtocol;
use futures_util::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};

use crate::support::{Connection, Run, Target, echo_datagrams, exchange};

/// A network in which one port is served, by what listens at an address of this machine.
#[derive(Debug)]
struct Network {
    port: u16,
    server: SocketAddr,
}

impl InsideNetwork for Network {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            if address.port() == self.port && address.is_ipv6() {
                TcpStream::connect(self.server).await
            } else {
                Err(io::ErrorKind::ConnectionRefused.into())
            }
        })
    }

    fn datagrams(&self) -> BoxFuture<'_, io::Result<UdpSocket>> {
        Box::pin(UdpSocket::bind("127.0.0.1:0"))
    }
}

/// A run whose network serves `port`, and the listeners in it.
async fn inside(run: &Run, port: u16) -> (Target, SocketAddr, SocketAddr) {
    let target = Target::ok().await;
    let network = Network { port, server: ([127, 0, 0, 1], target.port).into() };
    let guest = Guest { check: None, inside: Some(Arc::new(network)) };
    let [http, socks] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = (http.local_addr().unwrap(), socks.local_addr().unwrap());
    run.proxy.serve_http(http, &guest).unwrap();
    run.proxy.serve_socks(socks, &guest).unwrap();
    (target, addresses.0, addresses.1)
}

async fn get(http: SocketAddr, host: &str, port: u16) -> u16 {
    let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    exchange(http, request.as_bytes()).await.status
}

#[tokio::test]
async fn a_run_reaches_its_own_servers_and_nobody_is_told() {
    let mut run = Run::allowing(&[]);
    let (target, http, socks) = inside(&run, 8123).await;
    assert_eq!(get(http, "localhost", 8123).await, 200);
    assert_eq!(get(http, "[::1]", 8123).await, 200);
    let mut tunnel = Connection::to(http).await;
    tunnel.send(b"CONNECT localhost:8123 HTTP/1.1\r\n\r\n").await;
    assert_eq!(tunnel.reply_to("CONNECT").await.status, 200);
    let mut connection = Connection::to(socks).await;
    connection.talk(&[5, 1, 0], &[5, 0]).await;
    connection
        .talk(&[5, 1, 0, 3, 9, b'l', b'o', b'c', b'a', b'l', b'h', b'o', b's', b't', 31, 187], &[5, 0])
        .await;
    assert_eq!(target.seen().len(), 4);
    assert_eq!(get(http, "a.test", 8123).await, 403);
    assert_eq!(run.reports(1).await.len(), 1, "the last alone");
}

#[tokio::test]
async fn where_nothing_listens_inside_the_rules_decide() {
    let outside = Target::ok().await;
    let run = Run::allowing(&["127.0.0.1"]);
    let (_, http, _) = inside(&run, 8123).await;
    assert_eq!(get(http, "127.0.0.1", outside.port).await, 200);
    assert_eq!(get(http, "localhost", outside.port).await, 403);
    assert_eq!(get(http, "10.0.0.1", 8123).await, 403);
    assert_eq!(get(http, "x.localhost", 8123).await, 403);
}

#[tokio::test]
async fn datagrams_of_a_run_are_taken_in_its_network() {
    let (target, _) = echo_datagrams().await;
    let mut run = Run::allowing(&["127.0.0.1"]);
    let (_, _, socks) = inside(&run, 8123).await;
    let mut connection = Connection::to(socks).await;
    connection.talk(&[5, 1, 0], &[5, 0]).await;
    connection.send(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    let reply = connection.take(10).await;
    let relay = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([reply[8], reply[9]])));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let datagram = [&[0, 0, 0, 1, 127, 0, 0, 1][..], &target.port().to_be_bytes(), b"x"].concat();
    client.send_to(&datagram, relay).await.unwrap();
    let mut back = [0; 64];
    assert_eq!(client.recv(&mut back).await.unwrap(), datagram.len());
    assert_eq!(run.reports(1).await[0].protocol, NetworkProtocol::Socks5Udp);
}

#[tokio::test]
async fn a_connection_into_the_run_is_not_used_for_what_is_outside() {
    let run = Run::allowing(&["127.0.0.1"]);
    let (target, http, _) = inside(&run, 8123).await;
    let mut connection = Connection::to(http).await;
    // The second is for the very address behind which the run's server is here.
    for (host, port) in [("localhost", 8123), ("127.0.0.1", target.port)] {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.reply().await.status, 200);
    }
    assert_eq!(target.seen().len(), 2, "each on a connection of its own");
}
