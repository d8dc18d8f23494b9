//! The working directory as a run finds it.

use std::path::PathBuf;

use super::Wanted;
use crate::protocol::sandbox::SandboxContext;
use crate::sandbox::SandboxError;
use crate::sandbox::ground::{self, Ground};

/// See the module's description.
pub(super) struct Cwd {
    /// Without links. One that does not exist is the start's to report.
    pub(super) path: PathBuf,
    /// The program sees an empty directory there.
    pub(super) hidden: bool,
}

impl Cwd {
    /// A directory that the policy hides is no place to run, unless the policy is about that very directory: clients
    /// name it as the policy's own and may grant nothing in it.
    pub(super) fn of(ground: &Ground, wanted: &Wanted) -> Result<Self, SandboxError> {
        let Some(path) = ground::real_directory(&wanted.cwd) else {
            return Ok(Self { path: wanted.cwd.clone(), hidden: false });
        };
        let hidden = !ground.access(&path).reads();
        if hidden && own_cwd(&wanted.context).is_none_or(|own| own != path) {
            return Err(SandboxError::Preparation(format!(
                "the working directory {} is hidden by the sandbox policy: give it a read entry",
                wanted.cwd.display()
            )));
        }
        Ok(Self { path, hidden })
    }
}

/// The directory that a context names as its own, without links.
fn own_cwd(context: &SandboxContext) -> Option<PathBuf> {
    let own = context.policy_context.as_ref().map_or(&context.cwd, |context| &context.cwd);
    ground::real_directory(&own.as_ref()?.to_native_path().ok()?)
}
