use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::SETTINGS_DIR;

/// The settings directories of the project around `cwd` that the user trusts, from its root down.
pub(super) fn trusted_settings(user: &Table, cwd: &Path) -> Vec<PathBuf> {
    let root = root(user, cwd);
    let Some(Value::Table(projects)) = user.get("projects") else { return Vec::new() };
    let root_trusted = verdict(projects, root).unwrap_or(false);
    let mut directories: Vec<PathBuf> = cwd
        .ancestors()
        .take_while(|directory| directory.starts_with(root))
        .filter(|directory| verdict(projects, directory).unwrap_or(root_trusted))
        .map(|directory| directory.join(SETTINGS_DIR))
        .collect();
    directories.reverse();
    directories
}

/// The nearest directory with a marker; without one, `cwd` itself.
fn root<'a>(user: &Table, cwd: &'a Path) -> &'a Path {
    let markers = markers(user);
    let marked = |directory: &&Path| markers.iter().any(|marker| directory.join(marker).exists());
    cwd.ancestors().find(marked).unwrap_or(cwd)
}

fn markers(user: &Table) -> Vec<&str> {
    match user.get("project_root_markers") {
        Some(Value::Array(markers)) => {
            markers.iter().filter_map(Value::as_str).filter(|marker| !marker.is_empty()).collect()
        }
        _ => vec![".git"],
    }
}

/// What the user's settings say of a directory, by the path that was asked for or by the real one.
fn verdict(projects: &Table, directory: &Path) -> Option<bool> {
    let real = directory.canonicalize().ok();
    let entry = [Some(directory), real.as_deref()]
        .into_iter()
        .flatten()
        .find_map(|directory| projects.get(directory.to_str()?))?;
    Some(entry.get("trust_level").and_then(Value::as_str) == Some("trusted"))
}

/// Whether two paths name one directory, as far as that can be seen.
pub(super) fn same_directory(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}
