//! What benchmarks of files share.

use std::path::{Path, PathBuf};

use exec_server::path_uri::PathUri;
use exec_server::protocol::sandbox::{PermissionProfile, SandboxContext};
use tempfile::TempDir;

/// A context that makes a directory its workspace.
pub(crate) fn workspace(directory: &Path) -> SandboxContext {
    let uri = PathUri::from_native_path(directory).unwrap();
    SandboxContext::from_permission_profile(PermissionProfile::workspace_write(), uri)
}

/// A tree of this many directories with ten files each, a level below its root, and the real path of that.
pub(crate) fn tree(directories: usize) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    for directory in 0..directories {
        let directory = root.join(format!("directory-{directory}"));
        std::fs::create_dir(&directory).unwrap();
        for file in 0..10 {
            std::fs::write(directory.join(format!("file-{file}")), "").unwrap();
        }
    }
    (place, root)
}
