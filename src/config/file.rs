use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that is read when it exists and no other is named.
pub const DEFAULT_PATH: &str = "/etc/exec-server/config.toml";

/// A configuration file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it was.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// A configuration file that exists, or was asked for, and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration file {path}")]
pub struct FileError {
    path: PathBuf,
    source: std::io::Error,
}

impl ConfigFile {
    /// Reads the named file, which must exist, or else the default one if it does.
    pub fn read(named: Option<&Path>) -> Result<Option<Self>, FileError> {
        let path = named.unwrap_or(Path::new(DEFAULT_PATH));
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(Self { path: path.into(), text })),
            Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError { path: path.into(), source }),
        }
    }
}
