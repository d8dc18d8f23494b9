//! The proxy of a start from outside: real sockets, a client's seat at the desk, and names of the test's own.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is wrong")]

mod support;

mod addresses;
mod client;
mod datagrams;
mod forwarding;
mod framing;
mod inside;
mod lifetime;
mod limits;
mod own;
mod socks;
mod tunnels;
mod upstream;
