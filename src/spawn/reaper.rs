//! Reaps orphans that this process adopted, as PID 1 or as a child subreaper.
//!
//! The danger is to reap a child of our own and lose its exit status. So every child is registered from before it
//! exists until its owner has reaped it; an orphan is whatever has ended and is not registered, looked at while no
//! start is in progress.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, set_child_subreaper, waitid};
use tokio::signal::unix::{SignalKind, signal};

use super::roster::{self, Slot};

/// Readers are starts in progress, the writer is the reaper.
static STARTS: RwLock<()> = RwLock::new(());
static OWN_CHILDREN: LazyLock<Mutex<HashMap<i32, Option<Slot>>>> = LazyLock::new(Mutex::default);

/// Orphans end in bursts, behind the child that they belonged to; one look serves a burst.
const SETTLE: Duration = Duration::from_millis(50);

fn own_children() -> MutexGuard<'static, HashMap<i32, Option<Slot>>> {
    OWN_CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A start in progress: until it is dropped nothing is reaped.
#[derive(Debug)]
pub struct Spawning(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>);

/// Announces a start.
pub(super) fn spawning() -> Spawning {
    Spawning(STARTS.read().unwrap_or_else(PoisonError::into_inner))
}

impl Spawning {
    /// Registers the child that has come of it. Takes the announcement, so that it cannot be forgotten before.
    #[expect(clippy::unused_self, reason = "dropped at the end: from then on orphans may be reaped")]
    pub(super) fn register(self, pid: i32) {
        own_children().insert(pid, roster::add(pid));
    }
}

/// Whether this process has started that one and has not reaped it.
pub(super) fn is_own_child(pid: i32) -> bool {
    own_children().contains_key(&pid)
}

/// The owner has reaped its child.
pub(super) fn reaped(pid: i32) {
    if let Some(slot) = own_children().remove(&pid).flatten() {
        roster::remove(slot);
    }
}

/// Makes this process adopt the orphans among its descendants, so that none leaves its tree.
///
/// # Errors
/// On kernels that lack it.
pub fn become_subreaper() -> std::io::Result<()> {
    Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps orphans for as long as it is polled. For the daemon, which owns all children of its process; a library
/// user's process may have children of its own.
///
/// # Errors
/// When the signal handler cannot be installed.
pub async fn reap_orphans() -> std::io::Result<()> {
    let mut child_ended = signal(SignalKind::child())?;
    loop {
        child_ended.recv().await;
        tokio::time::sleep(SETTLE).await;
        while !reap_now() {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// Reaps what can be reaped; false if it must be tried again.
fn reap_now() -> bool {
    let Ok(_no_starts) = STARTS.try_write() else { return false };
    loop {
        let Some(pid) = first_ended() else { return true };
        // The kernel shows the same child first until it is reaped, so an own one hides the others for a moment.
        if own_children().contains_key(&pid.as_raw_nonzero().get()) {
            return false;
        }
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// The first child that has ended, left as it is.
#[expect(unsafe_code, reason = "the safe interface does not show which child it saw")]
fn first_ended() -> Option<Pid> {
    // SAFETY: a zeroed siginfo_t is valid, the kernel fills it, and si_pid is set for every child that it reports.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, look) != 0 {
            return None;
        }
        Pid::from_raw(info.si_pid())
    }
}
