//! The server's ways into a private network: listeners in it, and connections to what listens there.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;

use super::plan::{PrivateNetwork, SocketKind};
use crate::spawn::watched::watched;

/// What the server holds of a private network while its run lasts. Dropped, nothing leads in or out any more.
#[derive(Debug)]
pub struct Entrance {
    /// In the order of the ports that were wanted. They do not block; what has connected before they are used waits in
    /// their backlog.
    pub listeners: Vec<TcpListener>,
    /// The way to what listens inside.
    pub inside: Inside,
    /// Of a transparent network: one of IPv4 and, if the machine has it, one of IPv6.
    pub intercepted: Vec<Intercepted>,
}

/// What comes to the server without the program's doing. The sockets do not block.
#[derive(Debug)]
pub struct Intercepted {
    /// TCP connections to other networks; the kernel tells the destination of each that is accepted.
    pub flows: TcpListener,
    /// Messages for a DNS server, wherever it was meant to be.
    pub dns_messages: UdpSocket,
    /// The same on connections.
    pub dns_connections: TcpListener,
}

/// The descriptors of an [`Entrance`], as they come from the helper.
#[derive(Debug)]
pub(super) struct Handed {
    broker: OwnedFd,
    listeners: Vec<OwnedFd>,
    ports: Vec<u16>,
    intercepted: Vec<[OwnedFd; 3]>,
}

impl Handed {
    /// Sorts what came with a report; none if it is not what was asked for.
    pub(super) fn of(
        network: &PrivateNetwork,
        descriptors: &mut dyn Iterator<Item = OwnedFd>,
    ) -> Option<Self> {
        let broker = descriptors.next()?;
        let listeners: Vec<_> = descriptors.take(network.ports.len()).collect();
        let ports = network.ports.clone();
        let mut intercepted = Vec::new();
        while let Some(flows) = descriptors.next() {
            intercepted.push([flows, descriptors.next()?, descriptors.next()?]);
        }
        let is_whole = listeners.len() == ports.len() && intercepted.is_empty() != network.transparent;
        is_whole.then_some(Self { broker, listeners, ports, intercepted })
    }
}

impl Entrance {
    /// Must be called in a runtime.
    ///
    /// # Errors
    /// When the system's watch list is full.
    pub(super) fn open(handed: Handed) -> io::Result<Self> {
        let Handed { broker, listeners, mut ports, intercepted } = handed;
        let listeners = listeners.into_iter().map(listener).collect::<io::Result<_>>()?;
        let intercepted = intercepted.into_iter().map(Intercepted::of).collect::<io::Result<Vec<_>>>()?;
        for one in &intercepted {
            ports.extend([one.flows.local_addr()?.port(), one.dns_connections.local_addr()?.port()]);
        }
        let socket = watched(broker, Interest::READABLE | Interest::WRITABLE)?;
        let inside = Inside { broker: Mutex::new(Broker { socket, owes: false }), ports };
        Ok(Self { listeners, inside, intercepted })
    }
}

impl Intercepted {
    fn of([flows, messages, connections]: [OwnedFd; 3]) -> io::Result<Self> {
        let dns_messages = UdpSocket::from(messages);
        dns_messages.set_nonblocking(true)?;
        Ok(Self { flows: listener(flows)?, dns_messages, dns_connections: listener(connections)? })
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Opens connections to what listens on the loopback of a private network.
#[derive(Debug)]
pub struct Inside {
    broker: Mutex<Broker>,
    /// At which the server itself listens there.
    ports: Vec<u16>,
}

impl Inside {
    /// Connects inside the network. Waits as long as a listener that accepts nobody lets it. Cancel-safe: a connection
    /// that nobody waits for any more is closed.
    ///
    /// # Errors
    /// `InvalidInput` for an address that is not of the loopback; `ConnectionRefused` where nothing listens, or only
    /// the server; that of the connection; `UnexpectedEof` when the run has ended.
    pub async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        if !to.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an address of the loopback"));
        }
        if self.ports.contains(&to.port()) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let kind = if to.is_ipv4() { SocketKind::Stream4 } else { SocketKind::Stream6 };
        let socket = self.broker.lock().await.socket(kind).await?;
        let stream = TcpSocket::from_std_stream(socket.into()).connect(to).await?;
        stream.set_nodelay(true)?;
        // The kernel may choose the very port that is asked for, and connect the socket to itself.
        if stream.local_addr()? == to {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(stream)
    }

    /// A socket for datagrams inside the network, on a free port of its loopback. Cancel-safe.
    ///
    /// # Errors
    /// `UnexpectedEof` when the run has ended.
    pub async fn datagrams(&self) -> io::Result<tokio::net::UdpSocket> {
        let socket = self.broker.lock().await.socket(SocketKind::Datagram4).await?;
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        tokio::net::UdpSocket::from_std(socket.into())
    }
}

/// The init of the run, as the one who gives out sockets of its network.
#[derive(Debug)]
struct Broker {
    socket: AsyncFd<OwnedFd>,
    /// A request has been sent, and its answer has not been taken.
    owes: bool,
}

impl Broker {
    /// At most one request is under way; what is left of one that was dropped is taken before the next.
    async fn socket(&mut self, kind: SocketKind) -> io::Result<OwnedFd> {
        if self.owes {
            drop(self.answer().await);
        }
        let ask = |socket: &OwnedFd| Ok(send(socket, &kind.request(), SendFlags::NOSIGNAL)?);
        self.socket.async_io(Interest::WRITABLE, ask).await?;
        self.owes = true;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<OwnedFd> {
        let answer = self.socket.async_io(Interest::READABLE, |socket| Ok(receive(socket)?)).await?;
        self.owes = false;
        answer
    }
}

fn receive(broker: &OwnedFd) -> Result<io::Result<OwnedFd>, Errno> {
    let mut bytes = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(broker, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let socket = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(match (message.bytes, i32::from_ne_bytes(bytes), socket) {
        (4, 0, Some(socket)) => Ok(socket),
        (4, errno, None) if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
        (0, _, None) => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    })
}
