use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is only added to. When it has been moved away, as by a rotation of logs, a new one is made at its place.
#[derive(Debug)]
pub(super) struct AppendedFile {
    path: PathBuf,
    file: File,
}

impl AppendedFile {
    /// Opens it, or makes it for its owner only.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.into(), file: open(path)? })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_in_place() {
            self.file = open(&self.path)?;
        }
        self.file.write_all(bytes)
    }

    fn is_in_place(&self) -> bool {
        let id = |data: std::fs::Metadata| (data.dev(), data.ino());
        let at_path = std::fs::metadata(&self.path).map(id).ok();
        at_path.is_some() && at_path == self.file.metadata().map(id).ok()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
