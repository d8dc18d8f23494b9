//! Framed messages in and out, the same for server and client: WebSocket, lines of text.
//!
//! A [`Transport`] knows no JSON-RPC: it moves whole texts, keeps to the size limits of both directions, and says
//! why it ended. Who drives it polls reading and writing together, so neither direction can stop the other.

pub mod lines;
pub(crate) mod oversize;
pub mod transport;
pub mod websocket;

pub use transport::{EndReason, Received, Transport};
