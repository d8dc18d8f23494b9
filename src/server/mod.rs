//! The network side: listeners, who may connect, and what is refused before a session exists.

pub mod auth;
pub mod host_check;
pub mod listen;
