//! Which files deny globs name now, for enforcement that cannot match names at every open.

use std::collections::BTreeSet;
use std::fs::{DirEntry, FileType};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Ground;
use crate::policy::{Access, DenyGlob};

/// The most files that may match.
const MAX_MATCHES: usize = 8192;
/// The most names that are looked at. A match costs a microsecond or two.
const MAX_NAMES: usize = 1_000_000;
/// How long the search may take.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Why the files of deny globs cannot be listed. What is not listed would not be denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// There are too many, or the search would take too long.
    #[error(
        "sandbox deny glob `{pattern}`: {limit}; begin it with a narrower directory or set glob_scan_max_depth"
    )]
    TooMuch {
        /// The pattern.
        pattern: String,
        /// Which limit was met.
        limit: &'static str,
    },
    /// A directory of this user cannot be looked into, and the confined program could open it.
    #[error("sandbox deny glob `{pattern}`: '{}' cannot be listed: {reason}", .directory.display())]
    Unreadable {
        /// The pattern.
        pattern: String,
        /// The directory.
        directory: PathBuf,
        /// The system's words.
        reason: String,
    },
}

/// The real paths of all files that the deny globs of a ground name and that could be seen. Links to directories are
/// not followed; a link that matches stands for what it leads to. Blocks, for seconds at most.
///
/// # Errors
///
/// Not everything could be looked at within the limits.
pub fn denied_files(ground: &Ground) -> Result<BTreeSet<PathBuf>, ScanError> {
    let mut scan = Scan { ground, found: BTreeSet::new(), names: 0, deadline: Instant::now() + MAX_TIME };
    for glob in ground.globs() {
        scan.glob(glob)?;
    }
    Ok(scan.found)
}

struct Scan<'a> {
    ground: &'a Ground,
    found: BTreeSet<PathBuf>,
    names: usize,
    deadline: Instant,
}

impl Scan<'_> {
    fn glob(&mut self, glob: &DenyGlob) -> Result<(), ScanError> {
        let mut pending = vec![(glob.root().to_owned(), 0)];
        while let Some((directory, depth)) = pending.pop() {
            if depth >= glob.depth() || !self.can_be_seen(&directory) {
                continue;
            }
            for entry in list(&directory, glob)? {
                self.count(glob)?;
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => pending.push((path, depth + 1)),
                    Ok(kind) if glob.matches(&path) => self.found.extend(target(path, kind)),
                    _ => {}
                }
            }
            if self.found.len() > MAX_MATCHES {
                return Err(too_much(glob, "more than 8192 files match"));
            }
        }
        Ok(())
    }

    fn can_be_seen(&self, directory: &Path) -> bool {
        self.ground.access(directory).reads()
            || self.ground.rules().below(directory).any(|(_, rule)| rule.access != Access::Deny)
    }

    fn count(&mut self, glob: &DenyGlob) -> Result<(), ScanError> {
        self.names += 1;
        if self.names > MAX_NAMES {
            return Err(too_much(glob, "there are more than a million names to look at"));
        }
        if self.names.is_multiple_of(1024) && Instant::now() > self.deadline {
            return Err(too_much(glob, "looking for matches takes more than five seconds"));
        }
        Ok(())
    }
}

/// What a match stands for; nothing if that is a directory, or nothing.
fn target(path: PathBuf, kind: FileType) -> Option<PathBuf> {
    if !kind.is_symlink() {
        return Some(path);
    }
    let target = path.canonicalize().ok()?;
    (!target.is_dir()).then_some(target)
}

fn list(directory: &Path, glob: &DenyGlob) -> Result<Vec<DirEntry>, ScanError> {
    let listed = std::fs::read_dir(directory).and_then(Iterator::collect);
    match listed {
        Ok(entries) => Ok(entries),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        // Of another user, so the confined program cannot look into it either.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !is_own(directory) => Ok(Vec::new()),
        Err(error) => Err(ScanError::Unreadable {
            pattern: glob.pattern().to_owned(),
            directory: directory.to_owned(),
            reason: error.to_string(),
        }),
    }
}

fn is_own(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    directory.symlink_metadata().is_ok_and(|metadata| metadata.uid() == own)
}

fn too_much(glob: &DenyGlob, limit: &'static str) -> ScanError {
    ScanError::TooMuch { pattern: glob.pattern().to_owned(), limit }
}
