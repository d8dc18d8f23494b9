//! The hands of coding agents: run processes, keep them across lost connections, read and change files.

pub mod cli;
pub mod config;
pub mod path_uri;
pub mod protocol;
pub mod server;
pub mod telemetry;
