//! The client's side of the protocol: remote processes behind the traits of [`crate::backend`].
//!
//! [`RemoteBackend`] connects when it is first used. What it then holds is a session: it outlives its connections.
//! When one breaks, the session is resumed on a new one and the gap is read; calls that can wait or be repeated do.
//! Only when that fails for good do its processes fail, and the next use opens a new session. Open files and streamed
//! bodies belong to a connection and end with it.
//!
//! Invariants: events of a process are published once, in the order of their numbers; a write is applied once; a
//! process is never ended because its output could not be delivered; every queue is bounded.

mod address;
mod backoff;
mod bodies;
mod connection;
mod dial;
mod discovery;
mod events;
mod files;
mod gate;
mod handshake;
mod heartbeat;
mod http;
mod observer;
mod options;
mod pending;
mod process;
mod processes;
mod program;
mod recovery;
mod remote;
mod reorder;
mod server;
mod session;
mod start;

pub use files::RemoteFileSystem;
pub use http::RemoteHttpClient;
pub use observer::{ObservedSession, Observer};
pub use options::ClientOptions;
pub use program::ProgramCommand;
pub use remote::{EnvironmentConnectionState, EnvironmentObservedStatus, Readiness, RemoteBackend};
pub(crate) use server::Server;
