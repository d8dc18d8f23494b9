//! Lets in whoever belongs to one run, to a proxy that is the run's alone.
//!
//! A listener on the loopback can be reached by every process of the machine. So the kernel is asked which socket is at
//! the other end, and `/proc` who has it open. A connection is let in only if a living process has it that certainly
//! belongs to the run; what cannot be told is not let in. What the run's own processes relay for others is theirs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::sock_diag;
use crate::spawn::Child;
use crate::spawn::kin::Kin;
use crate::spawn::mark::RunMark;
use crate::spawn::tree;

/// Looks at `/proc` at a time, for all runs: anybody may connect, and often.
static LOOKS: Semaphore = Semaphore::const_new(2);

/// See the module's description. There can be one before the run has begun.
#[derive(Debug, Clone)]
pub struct PeerCheck(watch::Receiver<Option<Kin>>);

/// Tells a [`PeerCheck`] which run it is for. Dropped before it has, nobody is ever let in.
#[derive(Debug, Clone)]
pub struct Introduction(Arc<watch::Sender<Option<Kin>>>);

impl Introduction {
    /// Names the first process of the run, which is not reaped yet, and its mark.
    pub fn led_by(&self, child: &Child, mark: RunMark) {
        self.0.send_replace(Kin::of(child.pid(), mark));
    }
}

impl PeerCheck {
    /// A check, and who is to tell it about the run.
    #[must_use]
    pub fn new() -> (Introduction, Self) {
        let (tell, hear) = watch::channel(None);
        (Introduction(Arc::new(tell)), Self(hear))
    }

    /// Whether an accepted connection comes from the run. Waits until the run is known. Cancel-safe.
    pub async fn admits(&self, peer: SocketAddr, own: SocketAddr) -> bool {
        let mut known = self.0.clone();
        let Ok(kin) = known.wait_for(Option::is_some).await.map(|kin| *kin) else { return false };
        let (Some(kin), Ok(_place)) = (kin, LOOKS.acquire().await) else { return false };
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
