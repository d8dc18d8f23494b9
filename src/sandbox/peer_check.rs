//! Lets in whoever belongs to one run, to a proxy that is the run's alone.
//!
//! A listener on the loopback can be reached by every process of the machine. So the kernel is asked which socket is at
//! the other end, and `/proc` who has it open. A connection is let in only if a living process has it that certainly
//! belongs to the run; what cannot be told is not let in. What the run's own processes relay for others is theirs.

use std::io;
use std::net::SocketAddr;

use tokio::sync::Semaphore;

use super::sock_diag;
use crate::spawn::kin::Kin;
use crate::spawn::mark::RunMark;
use crate::spawn::tree;

/// Looks at `/proc` at a time, for all runs: anybody may connect, and often.
static LOOKS: Semaphore = Semaphore::const_new(2);

/// See the module's description.
#[derive(Debug, Clone, Copy)]
pub struct PeerCheck(Option<Kin>);

impl PeerCheck {
    /// For the run whose first process is this child of the server, which is not reaped yet, and that has this mark.
    /// Reads `/proc`; for a moment.
    #[must_use]
    pub fn of(leader: i32, mark: RunMark) -> Self {
        Self(Kin::of(leader, mark))
    }

    /// Whether an accepted connection comes from the run. Cancel-safe.
    pub async fn admits(&self, peer: SocketAddr, own: SocketAddr) -> bool {
        let (Some(kin), Ok(_place)) = (self.0, LOOKS.acquire().await) else { return false };
        let looked = tokio::task::spawn_blocking(move || has_it_open(&kin, peer, own)).await;
        matches!(looked, Ok(Ok(true)))
    }
}

fn has_it_open(kin: &Kin, peer: SocketAddr, own: SocketAddr) -> io::Result<bool> {
    let Some(socket) = sock_diag::find(peer, own)?.filter(|socket| socket.inode != 0) else {
        return Ok(false);
    };
    let socket = tree::socket_stream(socket.inode);
    // Looked at twice, so that it is one process that belongs to the run and has it open.
    let has = |pid: &i32| kin.includes(*pid) && tree::is_holder(*pid, &socket) && kin.includes(*pid);
    Ok(tree::holders(&socket).iter().any(has))
}
