//! The crate from outside: the client library against scripted servers and against the real one.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is wrong")]

mod support;

mod chaos;
mod client_connection;
mod client_process;
mod client_recovery;
mod discovery_client;
mod discovery_inventory;
mod discovery_roots;
mod environments;
mod environments_discovery;
mod examples;
mod files;
mod files_connection;
mod files_model;
mod files_that_bite;
mod hostile_copy;
mod http;
mod http_client;
mod inside;
mod observer;
mod outbound;
mod processes;
mod programs;
mod sandboxed;
mod seeds;
mod selected_roots;
mod snapshots;
mod watch;
