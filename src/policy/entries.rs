//! From the entries of a context to rules: special places get their paths, relative ones their base.

use std::num::NonZeroU64;
use std::path::{Component, Path, PathBuf};

use super::{Access, DenyGlob, MAX_GLOBS, MAX_RULES, PathTree, PolicyError, Surroundings, is_normal};
use crate::path_uri::PathUri;
use crate::protocol::sandbox::{SandboxAccess, SandboxContext, SandboxEntry, SandboxPath, SpecialPath};

/// What programs need of the system.
const MINIMAL: [&str; 8] =
    ["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"];

impl From<SandboxAccess> for Access {
    fn from(access: SandboxAccess) -> Self {
        match access {
            SandboxAccess::Read => Self::Read,
            SandboxAccess::Write => Self::Write,
            SandboxAccess::Deny => Self::Deny,
        }
    }
}

/// What the relative parts of a context are relative to.
pub(super) struct Base {
    cwd: Option<PathBuf>,
    workspace_roots: Vec<PathBuf>,
    temporary_directory: Option<PathBuf>,
}

impl Base {
    /// The newer form of a context wins over the flat one completely. Roots are never invented.
    pub(super) fn of(context: &SandboxContext, around: &Surroundings<'_>) -> Result<Self, PolicyError> {
        let (prefix, cwd, roots) = match &context.policy_context {
            Some(newer) => ("policyContext.", &newer.cwd, &newer.workspace_roots),
            None => ("", &context.cwd, &context.workspace_roots),
        };
        let cwd = cwd.as_ref().map(|cwd| native(cwd, || format!("{prefix}cwd"))).transpose()?;
        let roots = roots.iter().map(|root| native(root, || format!("{prefix}workspaceRoots")));
        Ok(Self {
            cwd: cwd.or_else(|| around.cwd.map(Path::to_owned)),
            workspace_roots: roots.collect::<Result<_, _>>()?,
            temporary_directory: around
                .temporary_directory
                .filter(|path| is_normal(path))
                .map(Path::to_owned),
        })
    }

    /// The rules and the deny globs of entries.
    pub(super) fn rules(
        &self,
        entries: &[SandboxEntry],
        max_depth: Option<NonZeroU64>,
    ) -> Result<(PathTree<Access>, Vec<DenyGlob>), PolicyError> {
        let (mut rules, mut globs) = (PathTree::default(), Vec::new());
        // What the entries name, before those of the same path are joined: the work is bounded, not only its result.
        let mut named = 0;
        for (index, entry) in entries.iter().enumerate() {
            if let SandboxPath::GlobPattern { pattern } = &entry.path {
                globs.extend(self.glob(pattern, entry.access, max_depth)?);
                if globs.len() > MAX_GLOBS {
                    return Err(PolicyError::TooLarge { what: "deny globs", most: MAX_GLOBS });
                }
                continue;
            }
            let (paths, access) = self.paths(index, entry)?;
            named += paths.len();
            if named > MAX_RULES {
                return Err(PolicyError::TooLarge { what: "paths", most: MAX_RULES });
            }
            for path in paths {
                rules
                    .entry(path)
                    .and_modify(|old: &mut Access| *old = old.or_stronger(access))
                    .or_insert(access);
            }
        }
        Ok((rules, globs))
    }

    /// Only deny is enforced on globs; the others are accepted, and need their base all the same.
    fn glob(
        &self,
        pattern: &str,
        access: SandboxAccess,
        max_depth: Option<NonZeroU64>,
    ) -> Result<Option<DenyGlob>, PolicyError> {
        if access == SandboxAccess::Deny {
            return DenyGlob::new(pattern, self.cwd.as_deref(), max_depth).map(Some);
        }
        if self.cwd.is_none() && !Path::new(pattern).is_absolute() {
            return Err(PolicyError::NoCwd { entry: "glob_pattern".to_owned() });
        }
        Ok(None)
    }

    /// The paths of an entry that is no glob, and what they get.
    fn paths(&self, index: usize, entry: &SandboxEntry) -> Result<(Vec<PathBuf>, Access), PolicyError> {
        let access = Access::from(entry.access);
        let special = match &entry.path {
            SandboxPath::Path { path } => {
                return Ok((vec![native(path, || format!("entries[{index}].path"))?], access));
            }
            SandboxPath::GlobPattern { .. } => return Ok((Vec::new(), access)),
            SandboxPath::Special { value } => value,
        };
        Ok(match special {
            SpecialPath::Root => (vec![PathBuf::from("/")], access),
            // It is made for reading: a write entry gives no more.
            SpecialPath::Minimal => {
                let access = if access == Access::Write { Access::Read } else { access };
                (MINIMAL.map(PathBuf::from).to_vec(), access)
            }
            SpecialPath::ProjectRoots { subpath } => self.project_roots(subpath.as_deref(), access)?,
            SpecialPath::SlashTmp => (vec![PathBuf::from("/tmp")], access),
            SpecialPath::Tmpdir => (self.temporary_directory.iter().cloned().collect(), access),
            SpecialPath::Unknown { .. } => (Vec::new(), access),
        })
    }

    fn project_roots(
        &self,
        subpath: Option<&str>,
        access: Access,
    ) -> Result<(Vec<PathBuf>, Access), PolicyError> {
        if self.cwd.is_none() {
            return Err(PolicyError::NoCwd { entry: "project_roots".to_owned() });
        }
        let roots = &self.workspace_roots;
        Ok(match subpath.map(below_root) {
            None => (roots.clone(), access),
            Some(Some(below)) => (roots.iter().map(|root| root.join(&below)).collect(), access),
            // A part that cannot be told grants nothing; what it was to protect is all hidden.
            Some(None) if access == Access::Write => (Vec::new(), access),
            Some(None) => (roots.clone(), Access::Deny),
        })
    }
}

/// A subpath that stays below its root, without `.`.
fn below_root(subpath: &str) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for part in Path::new(subpath).components() {
        match part {
            Component::Normal(name) => below.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!below.as_os_str().is_empty() && !subpath.contains('\0')).then_some(below)
}

fn native(uri: &PathUri, member: impl FnOnce() -> String) -> Result<PathBuf, PolicyError> {
    uri.to_native_path().map_err(|error| PolicyError::Foreign { member: member(), error })
}
