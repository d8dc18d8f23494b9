//! The daemon from outside: real processes, real sockets, the real program.

#![expect(clippy::unwrap_used, reason = "in a test a failed unwrap is a failed test")]

mod connection;
mod control;
mod copying;
mod ending;
mod endurance;
mod listeners;
mod output;
mod sessions;
mod snapshot_profiles;
mod snapshot_state;
mod snapshots;
mod standard_io;
mod starting;
mod support;
mod terminal;
