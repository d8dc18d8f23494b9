//! Sockets that listen already, and go on listening while a server is replaced by the next.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The name of sockets for operators; all others are for clients.
const OPERATORS: &str = "metrics";

/// The sockets, in the manager's order.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Those for clients.
    pub clients: Vec<OwnedFd>,
    /// Those for operators.
    pub operators: Vec<OwnedFd>,
}

/// The manager's variables are wrong.
#[derive(Debug, thiserror::Error)]
#[error("cannot take the sockets of the service manager (LISTEN_FDS, LISTEN_PID)")]
pub struct SocketError(#[source] io::Error);

impl Sockets {
    /// Nothing was handed over.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.operators.is_empty()
    }
}

/// Takes what was handed over to this process; only the first call gets it. No child inherits it.
///
/// # Errors
/// The variables name what is not there.
pub fn take_sockets() -> Result<Sockets, SocketError> {
    static TAKEN: std::sync::Once = std::sync::Once::new();
    let mut sockets = Ok(Sockets::default());
    TAKEN.call_once(|| sockets = take());
    sockets.map_err(SocketError)
}

fn take() -> io::Result<Sockets> {
    let mut sockets = Sockets::default();
    for (number, name) in sd_notify::listen_fds_with_names()? {
        // SAFETY: the manager opened the descriptor for this process and for nobody else in it: they are numbered from 3,
        // LISTEN_PID is this process, it has been found open, and this runs once.
        #[expect(unsafe_code, reason = "a number from the environment becomes a descriptor")]
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let of_kind = if name == OPERATORS { &mut sockets.operators } else { &mut sockets.clients };
        of_kind.push(socket);
    }
    Ok(sockets)
}
