//! The hands of coding agents: run processes, keep them across lost connections, read and change files.

pub mod backend;
#[doc(hidden)]
pub mod benchmarking;
pub mod cli;
pub mod client;
pub mod config;
pub mod discovery;
pub mod doctor;
pub mod environment;
pub mod environment_config;
pub mod environment_info;
pub mod error_map;
pub mod fs;
pub mod fsops;
#[doc(hidden)]
pub mod fuzzing;
pub mod helper;
pub mod http_request;
pub mod local;
pub mod memory;
pub mod network;
pub mod openrpc;
pub mod outbound;
pub mod path_uri;
pub mod policy;
pub mod process;
pub mod protocol;
pub mod rpc;
pub mod sandbox;
pub mod server;
pub mod service;
pub mod session;
pub mod snapshot;
pub mod spawn;
pub mod telemetry;
