//! Every message that crosses the wire, and nothing else: no I/O, no state, no policy.
//!
//! The types serve the server, the client library and the command line alike, so that a member exists once.
//! Each method is a marker type that implements [`Method`]; the dispatcher and the client are tables of them, and
//! [`signatures`] lists them with their schemas.

mod base64;
mod catalog;
pub mod code;
pub mod discovery;
pub mod envelope;
pub mod environment;
pub mod failure;
pub mod fs;
pub mod http;
pub mod limits;
mod method;
pub mod network;
pub mod process;
pub mod salvage;
pub mod sandbox;
mod schema;
pub mod session;
mod strict;

pub use base64::ByteChunk;
pub use catalog::signatures;
pub use method::{Failures, Method, NotificationMethod, SchemaOf, Sender, Signature};

/// The largest message that either side accepts or sends, in bytes of JSON text (64 MiB).
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The largest WebSocket frame that clients accept, in bytes of payload (16 MiB).
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// The largest output chunk of one `seq`, in decoded bytes: clients fail a process that sends more.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;
