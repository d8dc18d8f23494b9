//! The hands of coding agents: run processes, keep them across lost connections, read and change files.

pub mod environment_config;
pub mod fs;
pub mod fsops;
pub mod path_uri;
pub mod protocol;
