//! Sandbox contexts of the tests.

use std::path::Path;

use exec_server::path_uri::PathUri;
use exec_server::protocol::sandbox::{
    FileSystemPermissions, NetworkPermission, PermissionProfile, SandboxAccess, SandboxContext, SandboxEntry,
    SandboxPath, WindowsSandboxSelection,
};

fn at(path: &Path, access: SandboxAccess) -> SandboxEntry {
    SandboxEntry::new(PathUri::from_native_path(path).unwrap().into(), access)
}

fn context(entries: Vec<SandboxEntry>, cwd: &Path) -> SandboxContext {
    let files = FileSystemPermissions::restricted(entries);
    SandboxContext::from_permission_profile(
        PermissionProfile::from_runtime_permissions(&files, NetworkPermission::Restricted),
        PathUri::from_native_path(cwd).unwrap(),
    )
}

/// A context that lets some paths be read, except for others.
pub(crate) fn reading(paths: &[&Path], denied: &[&Path]) -> SandboxContext {
    let read = paths.iter().map(|path| at(path, SandboxAccess::Read));
    let denied = denied.iter().map(|path| at(path, SandboxAccess::Deny));
    context(read.chain(denied).collect(), paths[0])
}

/// A context that lets a path be read, except for the files that a pattern names.
pub(crate) fn reading_without(path: &Path, pattern: &str) -> SandboxContext {
    let glob = SandboxPath::GlobPattern { pattern: pattern.to_owned() };
    context(vec![at(path, SandboxAccess::Read), SandboxEntry::new(glob, SandboxAccess::Deny)], path)
}

/// A context that lets everything be read.
pub(crate) fn reading_everything(cwd: &Path) -> SandboxContext {
    SandboxContext::from_permission_profile(
        PermissionProfile::read_only(),
        PathUri::from_native_path(cwd).unwrap(),
    )
}

/// A context that confines nothing.
pub(crate) fn disabled(cwd: &Path) -> SandboxContext {
    SandboxContext::from_permission_profile(
        PermissionProfile::Disabled,
        PathUri::from_native_path(cwd).unwrap(),
    )
}

/// The same for a mechanism of another platform.
pub(crate) fn mxc(context: SandboxContext) -> SandboxContext {
    SandboxContext { windows_sandbox_selection: WindowsSandboxSelection::Mxc, ..context }
}
