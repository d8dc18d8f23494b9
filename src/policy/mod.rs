//! What a sandbox context means: which files and whether the network. Pure: nothing here touches the file system, so
//! paths are as they were spelled, and links are the business of `sandbox::ground`.
//!
//! A context is intent from a client. [`Policy::of`] turns it into rules on absolute paths, or says what can never be
//! enforced. From then on one function decides: [`FilePolicy::access`].

pub mod egress;
mod entries;
mod error;
mod glob;
pub mod hosts;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};

pub use self::error::PolicyError;
pub use self::glob::DenyGlob;
pub use self::tree::PathTree;
use crate::protocol::sandbox::{
    FileSystemPermissions, NetworkPermission, PermissionProfile, SandboxContext, WindowsSandboxSelection,
};

/// The most rules, and the most deny globs, that one policy may have.
pub const MAX_RULES: usize = 16_384;
/// See [`MAX_RULES`].
pub const MAX_GLOBS: usize = 1024;

/// What a context allows.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Files.
    pub files: Files,
    /// Whether a process may use the network.
    pub network: NetworkPermission,
}

/// Which files a context allows.
#[derive(Debug, Clone)]
pub enum Files {
    /// All of them, as far as the operating system lets the server.
    Unlimited,
    /// What the rules say, and nothing else.
    Limited(FilePolicy),
}

/// What may be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// No rule covers it: it is as if it were not there.
    Hidden,
    /// It is there, and may be neither read nor changed.
    Deny,
    /// It may be read.
    Read,
    /// It may be read and changed.
    Write,
}

impl Access {
    /// The one that counts where two rules name the same path: deny before write before read.
    #[must_use]
    pub fn or_stronger(self, other: Self) -> Self {
        let rank = |access| match access {
            Self::Deny => 3,
            Self::Write => 2,
            Self::Read => 1,
            Self::Hidden => 0,
        };
        if rank(other) > rank(self) { other } else { self }
    }

    /// Whether it may be read.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// What a policy is made for: the parts that the context leaves to its user.
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings<'a> {
    /// What relative parts are relative to where the context names nothing. A file call has nothing.
    pub cwd: Option<&'a Path>,
    /// The directory that `TMPDIR` names in the environment that counts.
    pub temporary_directory: Option<&'a Path>,
}

/// The rules of a context that limits files.
#[derive(Debug, Clone)]
pub struct FilePolicy {
    rules: PathTree<Access>,
    globs: Vec<DenyGlob>,
    legacy_landlock: bool,
}

impl Policy {
    /// What a context allows. Hints of another platform and of why the policy was chosen change nothing.
    ///
    /// # Errors
    ///
    /// The context can never be enforced here, or needs a directory that nobody names.
    pub fn of(context: &SandboxContext, surroundings: &Surroundings<'_>) -> Result<Self, PolicyError> {
        if context.windows_sandbox_selection == WindowsSandboxSelection::Mxc {
            return Err(PolicyError::Mxc);
        }
        let base = entries::Base::of(context, surroundings)?;
        let (files, network) = match &context.permissions {
            PermissionProfile::Disabled => (Files::Unlimited, NetworkPermission::Enabled),
            PermissionProfile::External { network } => (Files::Unlimited, *network),
            PermissionProfile::Managed { file_system, network } => match file_system {
                FileSystemPermissions::Unrestricted => (Files::Unlimited, *network),
                FileSystemPermissions::Restricted { entries, glob_scan_max_depth } => {
                    let (rules, globs) = base.rules(entries, *glob_scan_max_depth)?;
                    let legacy_landlock = context.use_legacy_landlock;
                    (FilePolicy { rules, globs, legacy_landlock }.simplified(), *network)
                }
            },
        };
        Ok(Self { files, network })
    }
}

impl FilePolicy {
    /// A policy from finished rules.
    #[must_use]
    pub fn new(rules: PathTree<Access>, globs: Vec<DenyGlob>) -> Self {
        Self { rules, globs, legacy_landlock: false }
    }

    /// The policy of [`Files::Unlimited`], as rules.
    #[must_use]
    pub fn everything() -> Self {
        Self::new([(PathBuf::from("/"), Access::Write)].into_iter().collect(), Vec::new())
    }

    /// A policy that grants everything and takes nothing back limits nothing.
    fn simplified(self) -> Files {
        let all_written = self.access(Path::new("/")) == Access::Write
            && self.rules.iter().all(|(_, access)| *access == Access::Write);
        if all_written && self.globs.is_empty() { Files::Unlimited } else { Files::Limited(self) }
    }

    /// What may be done with an absolute path, if no link is on the way: the deepest rule at or above it decides. Deny
    /// globs are apart, since they are about files only: [`FilePolicy::denied_by_glob`].
    #[must_use]
    pub fn access(&self, path: &Path) -> Access {
        self.rules.covering(path).map_or(Access::Hidden, |(_, access)| *access)
    }

    /// Whether a deny glob names a file, whatever the rules say.
    #[must_use]
    pub fn denied_by_glob(&self, path: &Path) -> bool {
        self.globs.iter().any(|glob| glob.matches(path))
    }

    /// The rules, a path before those below it. No path has two.
    #[must_use]
    pub fn rules(&self) -> &PathTree<Access> {
        &self.rules
    }

    /// The deny globs.
    #[must_use]
    pub fn globs(&self) -> &[DenyGlob] {
        &self.globs
    }

    /// Whether everything may be read, so that nothing has to be hidden.
    #[must_use]
    pub fn reads_everything(&self) -> bool {
        self.globs.is_empty()
            && self.access(Path::new("/")).reads()
            && self.rules.iter().all(|(_, access)| access.reads())
    }

    /// Whether the client asks for a mechanism that cannot enforce rules like these. Only reading under a policy that
    /// [reads everything](Self::reads_everything) needs none.
    #[must_use]
    pub fn wants_legacy_landlock(&self) -> bool {
        self.legacy_landlock
    }
}

/// A path that a rule can name: absolute, without `.` and `..`.
fn is_normal(path: &Path) -> bool {
    use std::path::Component;
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Joins lexically, as the URIs of this protocol are.
fn join_lexically(base: &Path, below: &Path) -> PathBuf {
    use std::path::Component;
    let mut joined = if below.is_absolute() { PathBuf::from("/") } else { base.to_owned() };
    for part in below.components() {
        match part {
            Component::Normal(name) => joined.push(name),
            Component::ParentDir => {
                joined.pop();
            }
            _ => {}
        }
    }
    joined
}
