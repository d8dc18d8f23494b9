//! The one place where errors of the services become JSON-RPC codes.
//!
//! Every match is exhaustive, so that a new error cannot slip through with a code that nobody chose.

use serde_json::json;

use crate::discovery::DiscoveryError;
use crate::environment_config::ConfigReadError;
use crate::fs::{ErrorClass, FsError};
use crate::http_request::HttpError;
use crate::policy::PolicyError;
use crate::process::{ProcessError, StartFailureKind};
use crate::protocol::code;
use crate::protocol::envelope::ErrorObject;
use crate::protocol::failure::{
    FileErrorData, HttpErrorData, StartErrorData, StartErrorKind, WriteErrorData, WriteErrorKind,
};
use crate::protocol::process::ProcessId;
use crate::sandbox::SandboxError;
use crate::session::{SessionError, StartError};

/// Errors that become an answer.
pub trait IntoErrorObject {
    /// The `error` member of the answer.
    fn into_error_object(self) -> ErrorObject;
}

impl IntoErrorObject for StartError {
    fn into_error_object(self) -> ErrorObject {
        let message = self.to_string();
        match self {
            Self::InvalidParams(_) => ErrorObject::new(code::INVALID_PARAMS, message),
            Self::Duplicate(_) | Self::SessionEnded => ErrorObject::new(code::INVALID_REQUEST, message),
            Self::Failed(failure) => {
                let kind = match failure.kind {
                    StartFailureKind::NotFound => StartErrorKind::SpawnNotFound,
                    StartFailureKind::PermissionDenied => StartErrorKind::SpawnPermissionDenied,
                    StartFailureKind::SandboxUnavailable => StartErrorKind::SandboxUnavailable,
                    StartFailureKind::SandboxPreparation => StartErrorKind::SandboxPreparation,
                    StartFailureKind::Other => StartErrorKind::SpawnFailed,
                };
                ErrorObject::new(code::INTERNAL, message).with_data(json!(StartErrorData::from(kind)))
            }
            Self::Sandbox(error) => {
                let (code, data) = sandbox(&error);
                ErrorObject::new(code, message).with_data(json!(data))
            }
            Self::Limit { .. } => ErrorObject::new(code::INTERNAL, message),
        }
    }
}

/// What can be seen from the policy alone is the client's to mend; the rest is about this machine.
fn sandbox(error: &SandboxError) -> (i64, StartErrorData) {
    let unavailable = |gaps| StartErrorData { kind: StartErrorKind::SandboxUnavailable, gaps: Some(gaps) };
    let preparation = StartErrorData::from(StartErrorKind::SandboxPreparation);
    match error {
        SandboxError::Policy(PolicyError::Mxc) => (code::INVALID_PARAMS, unavailable(Vec::new())),
        SandboxError::Policy(PolicyError::Foreign { .. } | PolicyError::NoCwd { .. }) => {
            (code::INVALID_PARAMS, preparation)
        }
        SandboxError::Policy(PolicyError::Glob { .. } | PolicyError::TooLarge { .. })
        | SandboxError::Preparation(_) => (code::INTERNAL, preparation),
        SandboxError::Unavailable { gaps, .. } => (code::INTERNAL, unavailable(gaps.clone())),
    }
}

impl IntoErrorObject for SessionError {
    fn into_error_object(self) -> ErrorObject {
        let code = match self {
            Self::Unknown(_) => code::INVALID_REQUEST,
            Self::Attached(_) => code::SESSION_ATTACHED,
            Self::TooMany(_) => code::INTERNAL,
        };
        ErrorObject::new(code, self.to_string())
    }
}

impl IntoErrorObject for FsError {
    fn into_error_object(self) -> ErrorObject {
        let code = match self.class() {
            ErrorClass::NotFound => code::NOT_FOUND,
            ErrorClass::InvalidInput => code::INVALID_REQUEST,
            ErrorClass::InvalidParams => code::INVALID_PARAMS,
            ErrorClass::Io | ErrorClass::Unconfined => code::INTERNAL,
        };
        let data = FileErrorData { kind: self.kind(), errno: self.errno() };
        ErrorObject::new(code, self.to_string()).with_data(json!(data))
    }
}

impl IntoErrorObject for ConfigReadError {
    fn into_error_object(self) -> ErrorObject {
        let code = if self.is_invalid_params() { code::INVALID_PARAMS } else { code::INTERNAL };
        ErrorObject::new(code, self.to_string())
    }
}

impl IntoErrorObject for DiscoveryError {
    fn into_error_object(self) -> ErrorObject {
        match self {
            Self::TooManyRoots(_) => ErrorObject::new(code::INVALID_REQUEST, self.to_string()),
            Self::Sandbox(error) => error.into_error_object(),
            Self::Interrupted(_) => ErrorObject::new(code::INTERNAL, self.to_string()),
        }
    }
}

impl IntoErrorObject for HttpError {
    fn into_error_object(self) -> ErrorObject {
        let message = self.to_string();
        match self {
            Self::Invalid(_) => ErrorObject::new(code::INVALID_PARAMS, message),
            Self::TooMany(_) => ErrorObject::new(code::INTERNAL, message),
            Self::Failed { kind, .. } | Self::Body { kind, .. } => {
                ErrorObject::new(code::INTERNAL, message).with_data(json!(HttpErrorData { kind }))
            }
        }
    }
}

/// A call on one process that was refused.
#[derive(Debug)]
pub enum ProcessCallError {
    /// No such process.
    Unknown(ProcessId),
    /// Its start is not finished.
    Starting(ProcessId),
    /// It is not of the kind that the call needs.
    Refused(ProcessId, ProcessError),
    /// Its input is full; nothing was written.
    StdinFull(ProcessId),
    /// The call's own values can never be right.
    InvalidParams(String),
}

impl IntoErrorObject for ProcessCallError {
    fn into_error_object(self) -> ErrorObject {
        match self {
            Self::Unknown(id) => {
                ErrorObject::new(code::INVALID_REQUEST, format!("unknown process id {}", id.shown()))
            }
            Self::Starting(id) => {
                ErrorObject::new(code::INVALID_REQUEST, format!("process id {} is starting", id.shown()))
            }
            Self::Refused(id, error) => {
                ErrorObject::new(code::INVALID_REQUEST, format!("process {}: {error}", id.shown()))
            }
            Self::StdinFull(id) => {
                let message = format!(
                    "process {} does not read its input and no more of it is held; write it again later",
                    id.shown()
                );
                ErrorObject::new(code::INTERNAL, message)
                    .with_data(json!(WriteErrorData { kind: WriteErrorKind::StdinFull }))
            }
            Self::InvalidParams(message) => ErrorObject::new(code::INVALID_PARAMS, message),
        }
    }
}
