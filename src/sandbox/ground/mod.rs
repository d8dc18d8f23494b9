//! A file policy on the ground: its rules at real paths, with what protects the metadata of writable roots.
//!
//! A link that could lead a rule elsewhere, and that the confined program could change, has a rule of its own, so that
//! it cannot be changed. What is missing and must not come into being has one too, see [`Presence::Missing`].

mod protect;
mod scan;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use self::protect::Layout;
pub use self::protect::METADATA;
pub use self::scan::{ScanError, denied_files};
use crate::policy::{Access, DenyGlob, FilePolicy, PathTree};

/// The rules of a policy at real paths.
#[derive(Debug, Clone)]
pub struct Ground {
    rules: PathTree<Rule>,
    globs: Vec<DenyGlob>,
}

/// What holds at a real path and below it, up to the next rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What may be done there; never [`Access::Hidden`].
    pub access: Access,
    /// Why the rule is there.
    pub origin: Origin,
    /// What was found at the path.
    pub presence: Presence,
}

/// Why a rule is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An entry of the policy names it.
    Entry,
    /// It keeps metadata of a writable root, or a link on the way to another rule, from being changed.
    Protected,
}

/// What was found at the path of a rule. The path of a rule has no links, but for the last name of [`Presence::Link`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// A directory.
    Directory,
    /// Something else that is no link.
    File,
    /// A link; the rule is about the link itself.
    Link,
    /// Nothing, or what cannot be looked at.
    Missing {
        /// The nearest name on the way that is missing or in the way: while it stays as it is, the path cannot come into
        /// being.
        first: PathBuf,
    },
}

/// The links that a path leads over, and what they name: as they are now, each without links on the way to it.
#[must_use]
pub fn links_on_the_way(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let links = trace::trace(path).links.into_iter();
    links.filter_map(|link| Some((link.clone(), std::fs::read_link(link).ok()?))).collect()
}

/// Where an absolute path leads, without links; none if there is no directory.
#[must_use]
pub fn real_directory(path: &Path) -> Option<PathBuf> {
    let traced = trace::trace(path);
    (traced.presence == Presence::Directory).then_some(traced.real)
}

impl Ground {
    /// Looks up where the rules of a policy really are. Blocks on the file system, for a short time.
    ///
    /// A writable root that is missing is left out. Nothing is opened but the `.git` files of writable roots.
    #[must_use]
    pub fn lay(policy: &FilePolicy) -> Self {
        Layout::of(policy).finish()
    }

    /// Where everything may be written, and nothing is protected.
    #[must_use]
    pub fn everything() -> Self {
        let rule = Rule { access: Access::Write, origin: Origin::Entry, presence: Presence::Directory };
        Self { rules: [(PathBuf::from("/"), rule)].into_iter().collect(), globs: Vec::new() }
    }

    /// What may be done with a real path: the deepest rule at or above it decides.
    #[must_use]
    pub fn access(&self, path: &Path) -> Access {
        self.rules.covering(path).map_or(Access::Hidden, |(_, rule)| rule.access)
    }

    /// Whether a deny glob names a real path. It is for the caller to ask for files only.
    #[must_use]
    pub fn denied_by_glob(&self, path: &Path) -> bool {
        self.globs.iter().any(|glob| glob.matches(path))
    }

    /// The rules, a path before those below it.
    #[must_use]
    pub fn rules(&self) -> &PathTree<Rule> {
        &self.rules
    }

    /// The deny globs, below the real paths of their roots too.
    #[must_use]
    pub fn globs(&self) -> &[DenyGlob] {
        &self.globs
    }

    /// Directories that can be written in, but that must stay where they are: a rule that forbids writing lies below
    /// them, and would lie elsewhere if they were moved.
    #[must_use]
    pub fn pinned(&self) -> BTreeSet<PathBuf> {
        let closed = self.rules.iter().filter(|(_, rule)| rule.access != Access::Write);
        let above = closed.flat_map(|(path, _)| path.ancestors().skip(1));
        above
            .filter(|path| self.access(path) == Access::Write && self.rules.at(path).is_none())
            .map(Path::to_owned)
            .collect()
    }
}
