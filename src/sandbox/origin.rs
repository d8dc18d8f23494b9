//! Whether a connection to the server comes from inside a sandbox.
//!
//! A sandboxed program that may use the network must not use the server as its way out, so what cannot be told counts
//! as coming from inside. A connection is from outside only if it came from another machine, from another user, or if
//! a living process that is none of ours, or of a run without a sandbox, has it. That covers sockets that were passed
//! on, or are on their way in a message, and processes that ended as soon as they had connected. It is looked at only
//! while a sandboxed run with a network is alive, or was when the connection may have been made.
//!
//! What this cannot see is help from outside: a proxy or another server of this machine that connects for a sandboxed
//! program. Against those the server has authentication.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::networked::NetworkedRuns;
use super::sock_diag::{self, ESTABLISHED};
use crate::spawn::lineage::Lineage;
use crate::spawn::peer::Peer;
use crate::spawn::tree::{self, Stream};

/// How long the first process of a run may take to be known.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// An accepted connection.
#[derive(Debug)]
pub enum Connection {
    /// By its two addresses.
    Tcp {
        /// Of the other side.
        peer: SocketAddr,
        /// Of this side.
        own: SocketAddr,
    },
    /// A unix socket.
    Unix(OwnedFd),
}

/// Why a connection is refused.
#[derive(Debug, thiserror::Error)]
pub enum Inside {
    /// It comes from a sandboxed program.
    #[error("connections from inside a sandbox are refused")]
    Sandboxed,
    /// It may.
    #[error(
        "while a sandboxed program has a network, only clients whose process can be told are let in: {0}"
    )]
    Undecided(&'static str),
    /// It may: the kernel does not say.
    #[error(
        "while a sandboxed program has a network, only clients whose process can be told are let in: {0}"
    )]
    Unreadable(#[from] io::Error),
}

/// Lets a connection pass that certainly comes from outside. Reads `/proc`; for blocking threads.
///
/// # Errors
/// [`Inside`].
pub fn check(runs: &NetworkedRuns, connection: &Connection) -> Result<(), Inside> {
    match connection {
        Connection::Tcp { peer, own } => tcp(runs, *peer, *own),
        Connection::Unix(socket) => unix(runs, socket),
    }
}

/// Whether owners of TCP sockets can be found here.
///
/// # Errors
/// Why not.
pub fn can_tell() -> io::Result<()> {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
    sock_diag::find(nobody, nobody).map(drop)
}

fn tcp(runs: &NetworkedRuns, peer: SocketAddr, own: SocketAddr) -> Result<(), Inside> {
    let gone = Inside::Undecided("the other side has closed it");
    match sock_diag::find(peer, own)? {
        Some(socket) if socket.inode == 0 => Err(gone),
        // No sandboxed program can change its user.
        Some(socket) if socket.uid != rustix::process::geteuid().as_raw() => Ok(()),
        Some(socket) => has_owner_outside(runs, &tree::socket_stream(socket.inode)),
        None if peer.ip().to_canonical().is_loopback() => Err(gone),
        // Looked at last: what is open now and was not here before is on another machine.
        None => match sock_diag::find(own, peer)? {
            Some(accepted) if accepted.state == ESTABLISHED => Ok(()),
            _ => Err(gone),
        },
    }
}

fn has_owner_outside(runs: &NetworkedRuns, socket: &Stream) -> Result<(), Inside> {
    let mut found = false;
    for pid in tree::holders(socket) {
        match is_outside(runs, pid) {
            _ if !tree::is_holder(pid, socket) => {}
            Some(true) => found = true,
            Some(false) => return Err(Inside::Sandboxed),
            None => {}
        }
    }
    if found { Ok(()) } else { Err(Inside::Undecided("no process outside has it open")) }
}

fn unix(runs: &NetworkedRuns, socket: &OwnedFd) -> Result<(), Inside> {
    let gone = Inside::Undecided("the process that has connected is gone");
    let Ok(peer) = Peer::of(socket) else { return Err(gone) };
    match is_outside(runs, peer.pid) {
        _ if !peer.lives() => Err(gone),
        Some(true) => Ok(()),
        Some(false) => Err(Inside::Sandboxed),
        None => Err(Inside::Undecided("its process cannot be followed to its origin")),
    }
}

/// Whether a process is none of a sandboxed run; `None` if it ends meanwhile.
fn is_outside(runs: &NetworkedRuns, pid: i32) -> Option<bool> {
    match Lineage::of(pid) {
        Lineage::Own | Lineage::Stranger => Some(true),
        Lineage::Child(child) => leads_no_run(runs, child),
        // Of which run, nobody knows any more.
        Lineage::Orphan => Some(false),
        Lineage::Unknown => None,
    }
}

/// A run that has been announced, and whose first process is not known yet, may be led by any child.
fn leads_no_run(runs: &NetworkedRuns, child: i32) -> Option<bool> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match runs.are_led_by(child) {
            Some(leads) => return Some(!leads),
            None if Instant::now() >= deadline => return None,
            None => std::thread::sleep(PAUSE),
        }
    }
}
