//! File calls under a sandbox context: from the context to the guard of one call.
//!
//! Nothing is kept from one call to the next, so what a call may touch is decided by the files as they are now.

#[cfg(test)]
mod tests;
mod view;

use std::path::{Path, PathBuf};

use self::view::View;
use super::Result;
use crate::fsops::{ErrorClass, FsError, Route};
use crate::policy::{FilePolicy, Files, Policy, PolicyError, Surroundings};
use crate::protocol::failure::FileErrorKind;
use crate::protocol::sandbox::SandboxContext;
use crate::sandbox::Sandboxes;
use crate::sandbox::ground::Ground;

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It changes nothing.
    Reading,
    /// It may change something.
    Changing,
}

/// What one call may touch.
#[derive(Debug)]
pub(crate) enum Scope {
    /// Whatever the operating system lets the server touch.
    Everything,
    /// What a policy allows.
    Limited(Box<View>),
}

impl Scope {
    /// The scope of a call under a context. Blocks on the file system, for a short time.
    ///
    /// # Errors
    ///
    /// The context cannot be enforced.
    pub(crate) fn of(
        context: Option<&SandboxContext>,
        purpose: Purpose,
        sandboxes: Option<&Sandboxes>,
    ) -> Result<Self> {
        let Some(context) = context else { return Ok(Self::Everything) };
        let temporary_directory = std::env::var_os("TMPDIR").map(PathBuf::from);
        let surroundings = Surroundings { cwd: None, temporary_directory: temporary_directory.as_deref() };
        match Policy::of(context, &surroundings)?.files {
            Files::Unlimited => Ok(Self::Everything),
            Files::Limited(policy) if is_legacy(&policy, purpose) => Err(FsError::sandbox(
                ErrorClass::Unconfined,
                FileErrorKind::SandboxUnavailable,
                "useLegacyLandlock: that mechanism cannot enforce the entries of this policy; leave it out",
            )),
            Files::Limited(policy) => {
                let ground = Ground::lay(&policy);
                let mut view = View::of(&ground, sandboxes.map(|sandboxes| &sandboxes.placeholders));
                for directory in sandboxes.map(|own| own.exposed_state(&ground)).unwrap_or_default() {
                    view.deny(directory);
                }
                Ok(Self::Limited(Box::new(view)))
            }
        }
    }

    /// A path within the scope.
    pub(crate) fn route<'a>(&'a self, path: &'a Path) -> Route<'a> {
        match self {
            Self::Everything => path.into(),
            Self::Limited(view) => Route::guarded(path, &**view),
        }
    }

    /// Whether a policy limits the call.
    pub(super) fn is_limited(&self) -> bool {
        matches!(self, Self::Limited(_))
    }
}

fn is_legacy(policy: &FilePolicy, purpose: Purpose) -> bool {
    policy.wants_legacy_landlock() && !(purpose == Purpose::Reading && policy.reads_everything())
}

impl From<PolicyError> for FsError {
    fn from(error: PolicyError) -> Self {
        let (class, kind) = match error {
            PolicyError::Mxc => (ErrorClass::InvalidInput, FileErrorKind::SandboxUnavailable),
            PolicyError::Foreign { .. } => (ErrorClass::InvalidInput, FileErrorKind::SandboxPreparation),
            PolicyError::NoCwd { .. } => (ErrorClass::InvalidParams, FileErrorKind::SandboxPreparation),
            PolicyError::Glob { .. } | PolicyError::TooLarge { .. } => {
                (ErrorClass::Unconfined, FileErrorKind::SandboxPreparation)
            }
        };
        Self::sandbox(class, kind, error)
    }
}
