//! Datagrams by SOCKS. They go out by sockets of their own, so that what comes from the client and what comes from a
//! destination cannot be taken for each other, even where both have one address.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::coop::consume_budget;

use super::wire::{datagram, header};
use super::{Client, Reply};
use crate::network::proxy::gate::Route;
use crate::network::proxy::own::{OwnListener, Owner, Transport};
use crate::network::proxy::visit::Visit;
use crate::protocol::network::NetworkProtocol;

/// The largest datagram with its header.
const LARGEST: usize = 64 << 10;
/// Datagrams that wait for their decision; others wait in the system, or are lost as datagrams are.
const UNDECIDED: usize = 16;
/// Destinations whose answers are let in, the newest.
const PEERS: usize = 256;

/// A socket, and that it is one of this server's.
struct Socket {
    socket: UdpSocket,
    /// `None` in the network of a run.
    _own: Option<OwnListener>,
}

/// Datagrams of one client.
struct Association<'a> {
    visit: &'a Visit,
    client_ip: IpAddr,
    /// Where the client's first datagram has come from; no other place counts then.
    client: Option<SocketAddr>,
    near: Socket,
    far: Far,
    peers: VecDeque<SocketAddr>,
}

/// Towards destinations, of both families, made when first needed.
#[derive(Default)]
struct Far {
    v4: Option<Socket>,
    v6: Option<Socket>,
}

/// A datagram that may go, if there is a route.
type Decided = (Option<Route>, Vec<u8>);

/// Carries datagrams as long as the connection that asks for it lives.
pub(super) async fn associate(mut client: Client, visit: &Visit) -> io::Result<()> {
    let near = match near(&client.stream, visit).await {
        Ok(near) => near,
        Err(error) => {
            tracing::debug!(%error, "datagrams by SOCKS are not possible");
            return client.refuse(Reply::Failed).await;
        }
    };
    client.reply(Reply::Succeeded, near.socket.local_addr()?).await?;
    let mut association = Association {
        visit,
        client_ip: visit.peer.ip(),
        client: None,
        near,
        far: Far::default(),
        peers: VecDeque::new(),
    };
    tokio::select! {
        carried = association.carry() => carried,
        ended = end(&mut client.stream) => ended,
    }
}

/// At the address where the client has found the proxy.
async fn near(stream: &TcpStream, visit: &Visit) -> io::Result<Socket> {
    match &visit.inside {
        Some(inside) => Ok(Socket { socket: inside.datagrams().await?, _own: None }),
        None => Socket::bind(visit, stream.local_addr()?.ip()).await,
    }
}

/// Until the connection ends. What is said on it means nothing.
async fn end(stream: &mut TcpStream) -> io::Result<()> {
    let mut ignored = [0; 256];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

impl Socket {
    async fn bind(visit: &Visit, address: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((address, 0)).await?;
        let port = socket.local_addr()?.port();
        let own = visit.onward.site.own.add(Owner::Proxy, Transport::Udp, port);
        Ok(Self { socket, _own: Some(own) })
    }
}

impl Association<'_> {
    async fn carry(&mut self) -> io::Result<()> {
        let (mut out, mut back) = (vec![0; LARGEST], vec![0; LARGEST]);
        let mut undecided: FuturesUnordered<BoxFuture<'_, Decided>> = FuturesUnordered::new();
        let visit = self.visit;
        loop {
            tokio::select! {
                received = self.near.socket.recv_from(&mut out), if undecided.len() < UNDECIDED => {
                    let (length, from) = received?;
                    if self.is_client(from) {
                        undecided.push(Box::pin(decide(visit, out[..length].to_vec())));
                    }
                }
                Some((route, bytes)) = undecided.next() => {
                    if let Some(route) = route && let Err(error) = self.send(&route, &bytes).await {
                        tracing::debug!(%error, "a datagram could not be sent");
                    }
                }
                (length, from) = self.far.receive(&mut back) => self.give_back(&back[..length], from).await,
            }
        }
    }

    fn is_client(&mut self, from: SocketAddr) -> bool {
        from.ip() == self.client_ip && *self.client.get_or_insert(from) == from
    }

    async fn send(&mut self, route: &Route, bytes: &[u8]) -> io::Result<()> {
        let Some(to) = route.addresses.first().copied().map(canonical) else { return Ok(()) };
        let (socket, any) = match to {
            SocketAddr::V4(_) => (&mut self.far.v4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            SocketAddr::V6(_) => (&mut self.far.v6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        let socket = match socket {
            Some(socket) => socket,
            None => socket.insert(Socket::bind(self.visit, any).await?),
        };
        if !self.peers.contains(&to) {
            self.peers.truncate(PEERS - 1);
            self.peers.push_front(to);
        }
        socket.socket.send_to(bytes, to).await.map(drop)
    }

    async fn give_back(&self, bytes: &[u8], from: SocketAddr) {
        let from = canonical(from);
        let Some(client) = self.client.filter(|_| self.peers.contains(&from)) else { return };
        let answer = [&header(from), bytes].concat();
        if let Err(error) = self.near.socket.send_to(&answer, client).await {
            tracing::debug!(%error, "a datagram could not be given back");
        }
    }
}

impl Far {
    /// The next datagram. An error is about one that was sent before, and no reason to end.
    async fn receive(&self, buffer: &mut [u8]) -> (usize, SocketAddr) {
        loop {
            let ready = tokio::select! {
                socket = readable(self.v4.as_ref()) => socket,
                socket = readable(self.v6.as_ref()) => socket,
            };
            // What is ready at once never waits: a flood would keep the task from being ended.
            consume_budget().await;
            if let Ok(received) = ready.try_recv_from(buffer) {
                return received;
            }
        }
    }
}

async fn readable(socket: Option<&Socket>) -> &UdpSocket {
    let Some(Socket { socket, .. }) = socket else { return pending().await };
    // An error is found by whoever reads.
    let _ = socket.readable().await;
    socket
}

async fn decide(visit: &Visit, mut bytes: Vec<u8>) -> Decided {
    let Some((to, used)) = datagram(&bytes) else { return (None, bytes) };
    let attempt = visit.attempt(NetworkProtocol::Socks5Udp, (&to.host, to.port), None);
    let route = visit.gate.decide(&attempt).await.ok();
    bytes.drain(..used);
    (route, bytes)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_of_datagrams_does_not_keep_the_task() {
        let near = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = socket.local_addr().unwrap();
        (0..200).for_each(|_| assert_eq!(near.send_to(b"x", to).unwrap(), 1));
        socket.readable().await.unwrap();
        let far = Far { v4: Some(Socket { socket, _own: None }), v6: None };
        let mut count = 0;
        let mut received = Box::pin(async {
            loop {
                far.receive(&mut [0; 16]).await;
                count += 1;
            }
        });
        assert!(futures_util::poll!(&mut received).is_pending());
        drop(received);
        assert!((1..200).contains(&count), "{count} datagrams at once");
    }
}
