//! The daemon from outside: real processes, real sockets, the real program.

#![expect(clippy::unwrap_used, reason = "in a test a failed unwrap is a failed test")]

mod audit;
mod command_line;
mod confined;
mod connection;
mod control;
mod copying;
mod doctor;
mod ending;
mod endurance;
mod inside;
mod jailed;
mod large_files;
mod leftovers;
mod limits;
mod listeners;
mod managed;
mod metrics;
mod networking;
mod operating_example;
mod output;
mod schema;
mod sessions;
mod snapshot_profiles;
mod snapshot_state;
mod snapshots;
mod standard_io;
mod starting;
mod support;
mod terminal;
mod tls;
