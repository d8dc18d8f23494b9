//! What is counted of starts and ends.

use std::time::Duration;

use super::Executor;
use super::start::StartError;
use crate::process::{Process, StartFailureKind};
use crate::protocol::process::StartResult;

/// A program runs, so long after its start had begun to be put together.
pub(super) fn started(executor: &Executor, result: &StartResult, took: Duration) {
    let runs = &executor.telemetry().runs;
    runs.start_seconds.observe(took);
    if let Some(snapshot) = &result.shell_snapshot {
        runs.snapshots.of(snapshot.state).increment();
    }
}

/// A start was refused or has failed.
pub(super) fn not_started(executor: &Executor, error: &StartError) {
    let runs = &executor.telemetry().runs;
    runs.failed_starts.increment();
    match error {
        StartError::Sandbox(_) => runs.sandbox_refusals.increment(),
        StartError::Failed(failure) if failure.kind == StartFailureKind::SandboxUnavailable => {
            runs.sandbox_refusals.increment();
        }
        StartError::Limit { limit, .. } => runs.limits.of(*limit).increment(),
        StartError::InvalidParams(_)
        | StartError::Duplicate(_)
        | StartError::Failed(_)
        | StartError::NotAvailable(_)
        | StartError::SessionEnded => {}
    }
}

/// A process has closed.
pub(super) fn ended(executor: &Executor, process: &Process) {
    let Some(exit) = process.log().status().exit else { return };
    let runs = &executor.telemetry().runs;
    runs.ended.of(exit.reason).increment();
    if exit.sandbox_denied {
        runs.sandbox_denials.increment();
    }
}
