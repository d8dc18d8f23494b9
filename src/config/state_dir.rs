use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// No directory for what outlives the server.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The configured one is the only one that counts.
    #[error("server.state_dir {path} cannot be written: {source}")]
    Configured {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// None of the usual places.
    #[error(
        "no state directory can be written ({}); name one with --state-dir",
        tried(.0)
    )]
    None(Vec<(PathBuf, io::Error)>),
}

fn tried(failures: &[(PathBuf, io::Error)]) -> String {
    if failures.is_empty() {
        return "STATE_DIRECTORY, XDG_STATE_HOME and HOME are not set".into();
    }
    failures.iter().map(|(path, error)| format!("{}: {error}", path.display())).collect::<Vec<_>>().join("; ")
}

/// The state directory, created with mode 0700 if need be: the configured one, or else the first usual place that can
/// be written.
pub fn state_dir(
    configured: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, StateDirError> {
    if let Some(path) = configured {
        return match prepare(path) {
            Ok(()) => Ok(path.into()),
            Err(source) => Err(StateDirError::Configured { path: path.into(), source }),
        };
    }
    let mut failures = Vec::new();
    for path in usual_places(variable) {
        match prepare(&path) {
            Ok(()) => return Ok(path),
            Err(error) => failures.push((path, error)),
        }
    }
    Err(StateDirError::None(failures))
}

fn usual_places(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    // A service manager that grants several directories separates them by colons.
    let granted = variable("STATE_DIRECTORY")
        .and_then(|value| std::env::split_paths(&value).next())
        .filter(|path| path.is_absolute());
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state_home = absolute("XDG_STATE_HOME").map(|path| path.join("exec-server"));
    let home = absolute("HOME").map(|path| path.join(".local/state/exec-server"));
    [granted, state_home, home].into_iter().flatten().collect()
}

fn prepare(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn among(pairs: &[(&str, PathBuf)]) -> Result<PathBuf, StateDirError> {
        state_dir(None, |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.clone().into()))
    }

    #[test]
    fn the_places_come_in_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let [granted, xdg, home] = ["granted", "xdg", "home"].map(|name| root.join(name));
        let all =
            [("STATE_DIRECTORY", granted.clone()), ("XDG_STATE_HOME", xdg.clone()), ("HOME", home.clone())];
        assert_eq!(among(&all).unwrap(), granted);
        assert_eq!(among(&all[1..]).unwrap(), xdg.join("exec-server"));
        assert_eq!(among(&all[2..]).unwrap(), home.join(".local/state/exec-server"));
        assert_eq!(granted.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let several = format!("{}:/other", granted.display());
        assert_eq!(among(&[("STATE_DIRECTORY", several.into())]).unwrap(), granted);
    }

    #[test]
    fn a_place_that_cannot_be_made_is_passed_over_unless_it_is_configured() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let pairs = [("STATE_DIRECTORY", file.join("x")), ("XDG_STATE_HOME", "relative".into())];
        let error = among(&pairs).unwrap_err().to_string();
        assert!(error.contains("file/x: ") && error.contains("--state-dir"), "{error}");
        let fallback = [pairs[0].clone(), ("HOME", root.path().into())];
        assert!(among(&fallback).unwrap().ends_with(".local/state/exec-server"));
        assert!(matches!(state_dir(Some(&file), |_| None), Err(StateDirError::Configured { .. })));
        assert!(among(&[]).unwrap_err().to_string().contains("are not set"));
    }
}
