use crate::policy::PolicyError;
use crate::protocol::sandbox::SandboxGap;

/// Why a policy is not enforced. Nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It can never be enforced as it was sent.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// This machine, or the backend that was chosen, cannot enforce it.
    #[error("{message}; the process was not started without it")]
    Unavailable {
        /// The part of the policy, what is missing, and what would help.
        message: String,
        /// What the backend would leave open.
        gaps: Vec<SandboxGap>,
    },
    /// It cannot be built from what is on this machine now.
    #[error("{0}")]
    Preparation(String),
}

impl SandboxError {
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), gaps: Vec::new() }
    }
}
