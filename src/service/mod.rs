//! The service manager that started this process, if one did: what it hands over, and what it wants to hear.
//!
//! Everything is found in the environment, by the conventions of systemd that others follow too.

mod notify;
mod sockets;

pub use notify::{Manager, State};
pub use sockets::{SocketError, Sockets, take_sockets};

/// Variables by which a manager talks to this process, and to none that it starts.
pub const VARIABLES: &[&str] =
    &["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];
