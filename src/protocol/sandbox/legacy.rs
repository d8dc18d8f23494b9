//! The policies that clients had before profiles. They are not on the wire: clients translate them.

use std::path::PathBuf;

use super::{
    FileSystemPermissions, NetworkPermission, PermissionProfile, SandboxAccess, SandboxContext, SandboxEntry,
    SandboxPath, SpecialPath,
};
use crate::path_uri::{PathUri, PathUriError};

/// What older clients choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxPolicy {
    /// Nothing is confined.
    DangerFullAccess,
    /// Everything may be read, nothing written.
    ReadOnly {
        /// Whether there is a network.
        network_access: bool,
    },
    /// Someone else confines files.
    ExternalSandbox {
        /// Whether there is a network.
        network_access: bool,
    },
    /// As `ReadOnly`, but the workspace and some places may be written.
    WorkspaceWrite {
        /// Absolute paths that may be written besides.
        writable_roots: Vec<PathBuf>,
        /// Whether there is a network.
        network_access: bool,
        /// Whether what TMPDIR names may not be written.
        exclude_tmpdir_env_var: bool,
        /// Whether `/tmp` may not be written.
        exclude_slash_tmp: bool,
    },
}

impl SandboxPolicy {
    /// Everything may be read, nothing written, and there is no network.
    #[must_use]
    pub fn new_read_only_policy() -> Self {
        Self::ReadOnly { network_access: false }
    }

    /// The workspace and the temporary directories may be written, and there is no network.
    #[must_use]
    pub fn new_workspace_write_policy() -> Self {
        Self::WorkspaceWrite {
            writable_roots: Vec::new(),
            network_access: false,
            exclude_tmpdir_env_var: false,
            exclude_slash_tmp: false,
        }
    }

    /// The same as a profile.
    ///
    /// # Errors
    /// A writable root that is not absolute.
    pub fn into_profile(self) -> Result<PermissionProfile, PathUriError> {
        let managed = |entries, access| {
            PermissionProfile::from_runtime_permissions(
                &FileSystemPermissions::restricted(entries),
                network(access),
            )
        };
        let read = SandboxEntry::new(SpecialPath::Root.into(), SandboxAccess::Read);
        Ok(match self {
            Self::DangerFullAccess => PermissionProfile::Disabled,
            Self::ReadOnly { network_access } => managed(vec![read], network_access),
            Self::ExternalSandbox { network_access } => {
                PermissionProfile::External { network: network(network_access) }
            }
            Self::WorkspaceWrite {
                writable_roots,
                network_access,
                exclude_tmpdir_env_var,
                exclude_slash_tmp,
            } => {
                let mut written: Vec<SandboxPath> = vec![SpecialPath::project_roots(None).into()];
                written.extend((!exclude_slash_tmp).then(|| SpecialPath::SlashTmp.into()));
                written.extend((!exclude_tmpdir_env_var).then(|| SpecialPath::Tmpdir.into()));
                for root in writable_roots {
                    written.push(PathUri::from_abs_path(root)?.into());
                }
                let written = written.into_iter().map(|path| SandboxEntry::new(path, SandboxAccess::Write));
                managed(std::iter::once(read).chain(written).collect(), network_access)
            }
        })
    }
}

fn network(access: bool) -> NetworkPermission {
    if access { NetworkPermission::Enabled } else { NetworkPermission::Restricted }
}

impl SandboxContext {
    /// The context of an older policy; its only workspace root is `cwd`.
    ///
    /// # Errors
    /// A writable root that is not absolute.
    pub fn from_legacy_sandbox_policy(policy: SandboxPolicy, cwd: PathUri) -> Result<Self, PathUriError> {
        Ok(Self::from_permission_profile(policy.into_profile()?, cwd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;
    use test_case::test_case;

    fn cwd() -> PathUri {
        PathUri::parse("file:///work").unwrap()
    }

    #[test]
    fn the_plain_ones_are_the_profiles_of_that_name() {
        let profile = |policy: SandboxPolicy| policy.into_profile().unwrap();
        assert_eq!(profile(SandboxPolicy::new_read_only_policy()), PermissionProfile::read_only());
        assert_eq!(
            profile(SandboxPolicy::new_workspace_write_policy()),
            PermissionProfile::workspace_write()
        );
        assert_eq!(profile(SandboxPolicy::DangerFullAccess), PermissionProfile::Disabled);
        let external = profile(SandboxPolicy::ExternalSandbox { network_access: true });
        assert_eq!(external, PermissionProfile::External { network: NetworkPermission::Enabled });
    }

    fn write(root: &str) -> SandboxPolicy {
        SandboxPolicy::WorkspaceWrite {
            writable_roots: vec![root.into()],
            network_access: true,
            exclude_tmpdir_env_var: true,
            exclude_slash_tmp: true,
        }
    }

    #[test]
    fn what_is_excluded_is_not_written_and_roots_are() {
        let context = SandboxContext::from_legacy_sandbox_policy(write("/data"), cwd()).unwrap();
        let wire = serde_json::to_value(context).unwrap();
        let entries = json!([
            {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
            {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"},
            {"path": {"type": "path", "path": "file:///data"}, "access": "write"},
        ]);
        assert_eq!(wire["permissions"]["file_system"]["entries"], entries);
        assert_eq!(wire["permissions"]["network"], "enabled");
        assert_eq!(wire["workspaceRoots"], json!(["file:///work"]));
        assert_eq!(wire["windowsSandboxLevel"], "disabled");
    }

    #[test_case("data")]
    #[test_case("")]
    fn roots_are_absolute(root: &str) {
        assert!(SandboxContext::from_legacy_sandbox_policy(write(root), cwd()).is_err());
    }
}
