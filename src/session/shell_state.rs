//! The state of a shell for a start that asks for it.

use std::sync::Arc;

use super::compose::{Composed, Form, compose};
use super::egress::Egress;
use super::start::wants_snapshot;
use super::{Session, StartError};
use crate::protocol::process::{ShellSnapshotReport, ShellSnapshotState, StartParams};
use crate::snapshot::{Answer, Capture, CaptureError, Fallback, Key, Shell, Snapshot};

impl Session {
    /// What a start gets of its shell's state; `None` if it asks for nothing of the kind. Waits for the capture where
    /// there is none yet. Cancel-safe: a capture that nobody waits for any more is killed.
    ///
    /// # Errors
    /// When the session ends meanwhile.
    pub(super) async fn shell_state(
        self: &Arc<Self>,
        params: &StartParams,
        egress: Option<&Arc<Egress>>,
    ) -> Result<Option<Answer>, StartError> {
        let exec = &params.exec;
        let shell = exec.shell_snapshot.as_ref().and_then(|request| Shell::named(&request.shell.name));
        let (Some(shell), Some(key), true) = (shell, Key::of(exec), wants_snapshot(exec)) else {
            return Ok(None);
        };
        let settings = &self.executor.settings().snapshots;
        if !settings.enabled {
            return Ok(Some(Answer::Fallback(Fallback::TurnedOff)));
        }
        let captured = || self.capture(shell, params.clone(), egress.cloned());
        tokio::select! {
            answer = self.snapshots.obtain(key, captured) => Ok(Some(answer)),
            () = self.ending.cancelled() => Err(StartError::SessionEnded),
        }
    }

    /// A capture under the conditions of this start.
    fn capture(
        self: &Arc<Self>,
        shell: Shell,
        params: StartParams,
        egress: Option<Arc<Egress>>,
    ) -> impl Future<Output = Result<Snapshot, CaptureError>> + Send + 'static {
        let (executor, run) = (Arc::clone(&self.executor), self.mark.run());
        async move {
            let settings = executor.settings();
            let max = settings.max_processes.get();
            let live = executor.admit().ok_or(CaptureError::Crowded { max })?;
            let exec = &params.exec;
            let limit = settings.snapshots.capture_limit;
            let mut capture = Capture::new(shell, exec.env_policy.clone(), &exec.env, limit);
            let composed = compose(&params, &executor, Form::Capture(&mut capture), egress.as_ref()).await;
            let Composed { spec, sandbox, doors } =
                composed.map_err(|error| CaptureError::Spawn(error.to_string()))?;
            capture.run(spec, run, sandbox, (live, doors)).await
        }
    }
}

impl Answer {
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Restored(snapshot) | Self::Captured(snapshot) => Some(snapshot),
            Self::Fallback(_) => None,
        }
    }

    pub(super) fn report(&self) -> ShellSnapshotReport {
        let (state, reason) = match self {
            Self::Restored(_) => (ShellSnapshotState::Restored, None),
            Self::Captured(_) => (ShellSnapshotState::Captured, None),
            Self::Fallback(fallback) => (ShellSnapshotState::Fallback, Some(fallback.to_string())),
        };
        ShellSnapshotReport { state, reason }
    }
}
