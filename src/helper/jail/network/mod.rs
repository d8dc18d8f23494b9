//! The run's own network: its loopback, and the ways in that the server has to it.

mod broker;
mod intercept;
mod links;
mod netlink;
mod redirect;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

pub(super) use self::broker::Broker;
use self::intercept::Intercept;
use super::{Done, facility};
use crate::sandbox::plan::PrivateNetwork;

/// Connections of a run that wait for the server.
const BACKLOG: i32 = 1024;

/// What has been made of a network.
pub(super) struct Made {
    listeners: Vec<TcpListener>,
    broker: Broker,
    /// Where the server asks it.
    requests: OwnedFd,
    intercept: Option<Intercept>,
}

/// Makes the network of this namespace what the plan says. Needs the capabilities that are given up later.
pub(super) fn make(wanted: &PrivateNetwork) -> Done<Made> {
    links::loopback_up().map_err(facility("the loopback of a private network"))?;
    let listeners = wanted.ports.iter().map(|port| door(*port)).collect::<Done<_>>()?;
    let (broker, requests) = Broker::new().map_err(facility("socketpair"))?;
    let intercept = wanted.transparent.then(Intercept::new).transpose();
    let intercept = intercept.map_err(facility("the redirection of connections (nf_tables)"))?;
    Ok(Made { listeners, broker, requests, intercept })
}

fn door(port: u16) -> Done<TcpListener> {
    listener(Ipv4Addr::LOCALHOST.into(), port).map_err(facility(&format!("port {port} of a private network")))
}

fn listener(address: IpAddr, port: u16) -> Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &SocketAddr::new(address, port))?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl Made {
    /// What the server is given, in the order in which it expects it.
    pub(super) fn handed_over(&self) -> Vec<BorrowedFd<'_>> {
        let listeners = self.listeners.iter().map(AsFd::as_fd);
        let intercept = self.intercept.iter().flat_map(Intercept::handed_over);
        std::iter::once(self.requests.as_fd()).chain(listeners).chain(intercept).collect()
    }

    /// Keeps what is needed here; the rest is the server's alone.
    pub(super) fn into_broker(self) -> Broker {
        self.broker
    }
}
