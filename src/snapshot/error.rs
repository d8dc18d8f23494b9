//! Why a capture failed, and why a start runs without a snapshot.

use std::time::Duration;

use crate::process::StartFailure;

/// Why there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The shell could not be executed.
    #[error("the shell could not be started: {0}")]
    Spawn(String),
    /// Too many processes live already.
    #[error("the limit of {max} live processes (limits.processes) is reached")]
    Crowded {
        /// The limit.
        max: usize,
    },
    /// The start-up files took too long.
    #[error("the start-up files took more than {} ms (snapshot.capture_ms)", .0.as_millis())]
    Timeout(Duration),
    /// The start-up files ended the shell, or closed its output.
    #[error("the start-up files ended the shell or closed its output")]
    Exit,
    /// Something of the shell's state is too large.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What.
        what: &'static str,
        /// What it may have.
        limit: usize,
    },
    /// What the shell says of its state is not what was asked for.
    #[error("the shell's state cannot be carried: {0}")]
    BadRecord(&'static str),
    /// The program is another shell than the request says.
    #[error("the program is not the shell `{0}`")]
    WrongShell(&'static str),
    /// The state could not be handed to a command.
    #[error("the state cannot be handed on: {0}")]
    Transport(String),
}

impl CaptureError {
    /// One word for logs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Spawn(_) | Self::Crowded { .. } => "spawn",
            Self::Timeout(_) => "timeout",
            Self::Exit => "exit",
            Self::TooLarge { .. } => "too_large",
            Self::BadRecord(_) => "bad_record",
            Self::WrongShell(_) => "wrong_shell",
            Self::Transport(_) => "transport",
        }
    }
}

impl From<StartFailure> for CaptureError {
    fn from(failure: StartFailure) -> Self {
        Self::Spawn(failure.to_string())
    }
}

/// Why a start that asked for a snapshot runs without one. Its text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fallback {
    /// By configuration.
    #[error("shell snapshots are turned off on this server (snapshot.enabled)")]
    TurnedOff,
    /// The capture that this start waited for.
    #[error("the capture failed: {0}")]
    Failed(CaptureError),
    /// The last capture is too recent for another.
    #[error("a capture failed less than a second ago: {0}")]
    TooSoon(CaptureError),
    /// No further capture is made.
    #[error("captures that failed: {captures}; no further one is made; the last: {last}")]
    Spent {
        /// How many there were.
        captures: u32,
        /// The last failure.
        last: CaptureError,
    },
}
