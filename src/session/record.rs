//! What is counted of starts and ends.

use std::time::Duration;

use super::Executor;
use super::start::StartError;
use crate::process::{Process, StartFailureKind};
use crate::protocol::process::StartResult;
use crate::telemetry::{Entry, Label, Telemetry};

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
        | StartError::SessionEnded => {}
    }
}

/// A process has closed.
pub(super) fn ended(executor: &Executor, session: &str, process: &Process) {
    let Some(exit) = process.log().status().exit else { return };
    let Telemetry { runs, audit } = executor.telemetry();
    audit.record(|| {
        Entry::new("process.end")
            .text("session", session)
            .text("process", process.id().as_str())
            .plain("pid", process.pid())
            .plain("exitCode", exit.code)
            .optional("signal", exit.signal)
            .text("reason", exit.reason.text())
            .plain("sandboxDenied", exit.sandbox_denied)
            .plain("ranMs", exit.at_ms.saturating_sub(process.started_at_ms()))
    });
    runs.ended.of(exit.reason).increment();
    if exit.sandbox_denied {
        runs.sandbox_denials.increment();
    }
}
