//! The SOCKS5 listener: connections and, where they are wanted, datagrams.

mod udp;
pub(crate) mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::wire::{Command, Destination, LONGEST, Parsed, Reply, Request};
use super::relay::{End, relay};
use super::visit::{Visit, Way};
use crate::protocol::network::NetworkProtocol;

/// How long a connection may take to say what it wants.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Where nothing is bound.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A client, and what it has sent so far.
struct Client {
    stream: TcpStream,
    read: BytesMut,
}

/// Serves one connection until it ends.
pub(super) async fn serve(stream: TcpStream, visit: Visit, has_datagrams: bool) {
    let client = Client { stream, read: BytesMut::with_capacity(LONGEST) };
    if let Err(error) = converse(client, &visit, has_datagrams).await {
        tracing::debug!(%error, "a connection by SOCKS has failed");
    }
}

async fn converse(mut client: Client, visit: &Visit, has_datagrams: bool) -> io::Result<()> {
    let Some(request) = tokio::time::timeout(HANDSHAKE, client.greet()).await?? else { return Ok(()) };
    let Some(destination) = request.destination else {
        return client.refuse(Reply::AddressNotSupported).await;
    };
    match request.command {
        Command::Connect => connect(client, visit, &destination).await,
        Command::Associate if has_datagrams => udp::associate(client, visit).await,
        Command::Associate | Command::Other => client.refuse(Reply::CommandNotSupported).await,
    }
}

async fn connect(mut client: Client, visit: &Visit, destination: &Destination) -> io::Result<()> {
    let Destination { host, port } = destination;
    let attempt = visit.attempt(NetworkProtocol::Socks5Tcp, (host, *port), None);
    let far = match visit.way(&attempt).await {
        Err(_) => return client.refuse(Reply::NotAllowed).await,
        Ok(Way::Inside(stream)) => Ok(End::from(stream)),
        Ok(Way::Onward(route)) => visit.onward.tcp(&route).await,
    };
    match far.and_then(|far| Ok((far.local_address()?, far))) {
        Ok((bound, far)) => {
            client.reply(Reply::Succeeded, bound).await?;
            relay(client.into_end(), far).await
        }
        Err(error) => {
            tracing::debug!(%error, host, port, "a destination by SOCKS cannot be reached");
            client.refuse(Reply::Unreachable).await
        }
    }
}

impl Client {
    /// What it wants. `None`: it does not speak SOCKS5, or wants to say who it is.
    async fn greet(&mut self) -> io::Result<Option<Request>> {
        match self.message(wire::greeting).await? {
            None => return Ok(None),
            Some(false) => {
                self.stream.write_all(&wire::NOTHING_SUITS).await?;
                return Ok(None);
            }
            Some(true) => self.stream.write_all(&wire::CHOSEN).await?,
        }
        self.message(wire::request).await
    }

    async fn message<T>(&mut self, parse: fn(&[u8]) -> Parsed<T>) -> io::Result<Option<T>> {
        loop {
            match parse(&self.read) {
                Parsed::Complete(message, used) => {
                    self.read.advance(used);
                    return Ok(Some(message));
                }
                Parsed::Invalid => return Ok(None),
                Parsed::Incomplete if self.stream.read_buf(&mut self.read).await? == 0 => return Ok(None),
                Parsed::Incomplete => {}
            }
        }
    }

    async fn reply(&mut self, reply: Reply, bound: SocketAddr) -> io::Result<()> {
        self.stream.write_all(&wire::reply(reply, bound)).await
    }

    async fn refuse(mut self, reply: Reply) -> io::Result<()> {
        self.reply(reply, NOWHERE).await?;
        self.stream.shutdown().await
    }

    /// What has been read beyond the request belongs to the tunnel.
    fn into_end(self) -> End {
        End::new(self.stream, Bytes::from(self.read))
    }
}
