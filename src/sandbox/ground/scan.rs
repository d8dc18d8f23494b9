//! Which files deny globs name now, for enforcement that cannot match names at every open.

use std::collections::{BTreeMap, BTreeSet};
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
/// The most bytes of paths that wait to be looked into.
const MAX_WAITING: usize = 64 << 20;
/// The kernel takes no longer path.
const PATH_MAX: usize = 4096;
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
    let mut by_root = BTreeMap::<&Path, Vec<&DenyGlob>>::new();
    for glob in ground.globs() {
        by_root.entry(glob.root()).or_default().push(glob);
    }
    let mut scan = Scan { ground, found: BTreeSet::new(), names: 0, deadline: Instant::now() + MAX_TIME };
    for (root, globs) in by_root {
        scan.tree(root, &globs)?;
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
    fn tree(&mut self, root: &Path, globs: &[&DenyGlob]) -> Result<(), ScanError> {
        let depth_of = |glob: &&&DenyGlob| glob.depth();
        let Some(deepest) = globs.iter().max_by_key(depth_of) else { return Ok(()) };
        let mut pending = vec![(root.to_owned(), 0)];
        let mut waiting = root.as_os_str().len();
        while let Some((directory, depth)) = pending.pop() {
            waiting -= directory.as_os_str().len();
            if depth >= deepest.depth() || !self.can_be_seen(&directory) {
                continue;
            }
            for entry in list(&directory, deepest)? {
                self.count(deepest)?;
                let Ok(entry) = entry else {
                    return Err(too_much(deepest, "a directory changes while it is read"));
                };
                let path = entry.path();
                let Ok(kind) = entry.file_type() else { continue };
                if !kind.is_dir() {
                    self.file(path, kind, globs)?;
                    continue;
                }
                // A program can go deeper than it can name, and so could not be kept from what is there.
                if path.as_os_str().len() >= PATH_MAX {
                    return Err(too_much(deepest, "a directory lies too deep"));
                }
                waiting += path.as_os_str().len();
                pending.push((path, depth + 1));
            }
            if waiting > MAX_WAITING {
                return Err(too_much(deepest, "there are too many directories"));
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, kind: FileType, globs: &[&DenyGlob]) -> Result<(), ScanError> {
        if let Some(glob) = globs.iter().find(|glob| glob.matches(&path)) {
            self.found.extend(target(path, kind));
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

fn list(
    directory: &Path,
    glob: &DenyGlob,
) -> Result<impl Iterator<Item = std::io::Result<DirEntry>>, ScanError> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None.into_iter().flatten())
        }
        // Of another user, so the confined program cannot look into it either.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !is_own(directory) => {
            Ok(None.into_iter().flatten())
        }
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
