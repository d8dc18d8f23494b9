use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::path_uri::{ForeignPath, PathUri};

/// A path, with the URI by which it is told: spelled as the root was by whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) uri: PathUri,
    pub(super) path: PathBuf,
}

impl Place {
    pub(super) fn new(uri: PathUri) -> Result<Self, ForeignPath> {
        let path = uri.to_native_path()?;
        Ok(Self { uri, path })
    }

    /// The place of a path of this machine; none for one that has no URI.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(Self { uri: PathUri::from_native_path(path).ok()?, path: path.to_owned() })
    }

    /// An entry, by its name.
    pub(super) fn child(&self, name: impl AsRef<OsStr>) -> Self {
        let name = name.as_ref();
        Self { uri: self.uri.child(name), path: self.path.join(name) }
    }

    /// What several names lead to, one below the other.
    pub(super) fn below<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().fold(self.clone(), |place, name| place.child(name))
    }
}
