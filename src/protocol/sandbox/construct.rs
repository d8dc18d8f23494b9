//! Contexts as clients make them.

use super::{
    FileSystemPermissions, NetworkPermission, PermissionProfile, SandboxAccess, SandboxContext, SandboxEntry,
    SandboxOverride, SandboxPath, SpecialPath, WindowsSandboxSelection,
};
use crate::path_uri::PathUri;

/// The name by which clients know a [`SandboxContext`].
pub type FileSystemSandboxContext = SandboxContext;
/// The name by which clients know [`FileSystemPermissions`].
pub type FileSystemSandboxPolicy = FileSystemPermissions;
/// The name by which clients know a [`SandboxEntry`].
pub type FileSystemSandboxEntry = SandboxEntry;
/// The name by which clients know a [`SandboxAccess`].
pub type FileSystemAccessMode = SandboxAccess;
/// The name by which clients know a [`SandboxPath`].
pub type FileSystemPath = SandboxPath;
/// The name by which clients know a [`SpecialPath`].
pub type FileSystemSpecialPath = SpecialPath;
/// The name by which clients know a [`NetworkPermission`].
pub type NetworkSandboxPolicy = NetworkPermission;

impl SandboxContext {
    /// A context whose only workspace root is `cwd`. Clear `workspace_roots` for one that has none.
    #[must_use]
    pub fn from_permission_profile(permissions: PermissionProfile, cwd: PathUri) -> Self {
        Self {
            permissions,
            sandbox_override: SandboxOverride::NoOverride,
            workspace_roots: vec![cwd.clone()],
            cwd: Some(cwd),
            policy_context: None,
            user_home_dir: None,
            temporary_directories: None,
            windows_sandbox_selection: WindowsSandboxSelection::Disabled,
            windows_sandbox_proxy_settings_mode: None,
            use_legacy_landlock: false,
        }
    }

    /// The same as [`SandboxContext::from_permission_profile`], by another name that clients know.
    #[must_use]
    pub fn from_permission_profile_with_cwd(permissions: PermissionProfile, cwd: PathUri) -> Self {
        Self::from_permission_profile(permissions, cwd)
    }
}

impl PermissionProfile {
    /// Everything may be read, nothing written, and the network is closed.
    #[must_use]
    pub fn read_only() -> Self {
        Self::from_runtime_permissions(&FileSystemPermissions::read_only(), NetworkPermission::Restricted)
    }

    /// As [`PermissionProfile::read_only`], but the workspace and the temporary directories may be written.
    #[must_use]
    pub fn workspace_write() -> Self {
        let written = [SpecialPath::project_roots(None), SpecialPath::SlashTmp, SpecialPath::Tmpdir];
        let written = written.map(|place| SandboxEntry::new(place.into(), SandboxAccess::Write));
        let read = SandboxEntry::new(SpecialPath::Root.into(), SandboxAccess::Read);
        let files = FileSystemPermissions::restricted([vec![read], written.into()].concat());
        Self::from_runtime_permissions(&files, NetworkPermission::Restricted)
    }

    /// What this executor is to enforce.
    #[must_use]
    pub fn from_runtime_permissions(files: &FileSystemPermissions, network: NetworkPermission) -> Self {
        Self::Managed { file_system: files.clone(), network }
    }
}

impl FileSystemPermissions {
    /// What the entries say, nothing else.
    #[must_use]
    pub fn restricted(entries: Vec<SandboxEntry>) -> Self {
        Self::Restricted { entries, glob_scan_max_depth: None }
    }

    /// Everything may be read, nothing written.
    #[must_use]
    pub fn read_only() -> Self {
        Self::restricted(vec![SandboxEntry::new(SpecialPath::Root.into(), SandboxAccess::Read)])
    }
}

impl SandboxEntry {
    /// A rule.
    #[must_use]
    pub fn new(path: SandboxPath, access: SandboxAccess) -> Self {
        Self { path, access, missing_path_behavior: None }
    }
}

impl SpecialPath {
    /// Every workspace root, or a part of each.
    #[must_use]
    pub fn project_roots(subpath: Option<String>) -> Self {
        Self::ProjectRoots { subpath }
    }
}

impl From<SpecialPath> for SandboxPath {
    fn from(value: SpecialPath) -> Self {
        Self::Special { value }
    }
}

impl From<PathUri> for SandboxPath {
    fn from(path: PathUri) -> Self {
        Self::Path { path }
    }
}
