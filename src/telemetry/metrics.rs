//! What is counted of runs: starts, ends, snapshots, refusals.

use super::count::{Counter, Counters, Histogram, label, labels};
use crate::protocol::process::{ExitReason, ShellSnapshotState};

labels! {
    /// What a proxy decided about a destination.
    pub enum ProxyDecision {
        /// It may be reached.
        Allow = "allow",
        /// It may not.
        Deny = "deny",
    }

    /// A limit of the server that was hit, by its key.
    pub enum Limit {
        /// Connections of the server.
        Connections = "server.max_connections",
        /// Sessions of the server.
        Sessions = "server.max_sessions",
        /// Live processes of the server.
        Processes = "limits.processes",
        /// Live processes of a session.
        ProcessesPerSession = "limits.processes_per_session",
        /// Records that a session keeps of ended processes.
        Records = "records of ended processes",
        /// Bytes in all buffers of the server.
        Memory = "limits.memory_bytes",
    }
}

label!(ShellSnapshotState { Restored = "restored", Captured = "captured", Fallback = "fallback" });

label!(ExitReason { Exited = "exited", Signaled = "signaled", Terminated = "terminated", Limit = "limit" });

/// Counts of everything that an executor runs.
#[derive(Debug, Default)]
pub struct RunMetrics {
    /// From the moment that a start has all it waits for, a shell's state included, to the program's execution.
    pub start_seconds: Histogram,
    /// Starts that were refused or failed.
    pub failed_starts: Counter,
    /// Ends of processes.
    pub ended: Counters<ExitReason>,
    /// Ends whose output looks like that of a sandbox that denied something.
    pub sandbox_denials: Counter,
    /// Starts whose policy cannot be enforced.
    pub sandbox_refusals: Counter,
    /// Starts that asked for the state of a shell.
    pub snapshots: Counters<ShellSnapshotState>,
    /// Decisions of the proxies of managed networks.
    pub proxy_decisions: Counters<ProxyDecision>,
    /// Limits that were hit.
    pub limits: Counters<Limit>,
}
