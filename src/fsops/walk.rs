use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::error::text;
use super::opened::Directory;
use super::place::Place;
use super::{FsError, Links, Route, resolve};
use crate::path_uri::PathUri;
use crate::protocol::failure::FileErrorKind;

/// What the answer may weigh: the bytes of paths and messages, and 64 for each item.
const BUDGET: usize = 4 << 20;
const ITEM_WEIGHT: usize = 64;

/// Where a walk stops, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkLimits {
    /// Levels below the entries of the root, 0 to 64.
    pub max_depth: u64,
    /// Directories to enter, the root among them, 1 to 10,000.
    pub max_directories: u64,
    /// Entries to see, 1 to 50,000.
    pub max_entries: u64,
    /// List and enter directories behind links.
    pub follow_directory_symlinks: bool,
    /// List directories whose name begins with a dot, but do not enter them.
    pub prune_hidden_directories: bool,
}

impl WalkLimits {
    fn check(&self) -> Result<(), FsError> {
        for (name, value, range) in [
            ("maxDepth", self.max_depth, 0..=64),
            ("maxDirectories", self.max_directories, 1..=10_000),
            ("maxEntries", self.max_entries, 1..=50_000),
        ] {
            if !range.contains(&value) {
                let (low, high) = range.into_inner();
                return Err(FsError::invalid(
                    FileErrorKind::Limit,
                    format_args!("{name} is {value}: it must be {low} to {high}"),
                ));
            }
        }
        Ok(())
    }
}

/// What a walk found, level by level, sorted by the bytes of the names within a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WalkOutcome {
    /// Regular files and directories.
    pub found: Vec<Found>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
    /// A limit other than the depth left something out.
    pub truncated: bool,
}

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path.
    pub path: PathUri,
    /// A directory; else a regular file.
    pub is_directory: bool,
}

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its path.
    pub path: PathUri,
    /// Why.
    pub message: String,
}

/// Lists a tree. A root that is no directory, or a link that is not to be followed, has no entries.
///
/// # Errors
///
/// The root does not exist or cannot be read, or a limit is out of range.
pub fn walk<'a>(root: impl Into<Route<'a>>, limits: &WalkLimits) -> Result<WalkOutcome, FsError> {
    limits.check()?;
    let root = root.into();
    let failed = |errno| FsError::os("walk", root.path, errno);
    let place = Place::of(root, Links::Follow).map_err(failed)?;
    let follow = limits.follow_directory_symlinks;
    let stat = if follow { place.parent.target_stat(&place.name) } else { place.stat() }.map_err(failed)?;
    if resolve::kind(&stat) != FileType::Directory {
        return Ok(WalkOutcome::default());
    }
    let directory = Directory::open(root).map_err(failed)?;
    let mut walker = Walker {
        root: root.path.to_owned(),
        limits,
        outcome: WalkOutcome::default(),
        weight: 0,
        seen: 0,
        entered: 1,
        visited: HashSet::from([identity(&stat)]),
        pending: VecDeque::from([(PathBuf::new(), 0)]),
    };
    // A limit that stops the walk is told by the outcome.
    let _ = walker.run(&directory);
    Ok(walker.outcome)
}

/// A limit was reached and nothing more can be told.
struct Full;

struct Walker<'a> {
    root: PathBuf,
    limits: &'a WalkLimits,
    outcome: WalkOutcome,
    weight: usize,
    seen: u64,
    entered: u64,
    /// Directories that were or will be entered; kept only where links are followed.
    visited: HashSet<(u64, u64)>,
    /// Paths below the root, and their depth.
    pending: VecDeque<(PathBuf, u64)>,
}

impl Walker<'_> {
    fn run(&mut self, root: &Directory<'_>) -> Result<(), Full> {
        while let Some((below, depth)) = self.pending.pop_front() {
            let follow = self.limits.follow_directory_symlinks;
            let links = if follow { Links::Follow } else { Links::Refuse };
            let directory = root.open_below(&below, links);
            self.list(directory, &below, depth)?;
        }
        Ok(())
    }

    fn list(
        &mut self,
        directory: rustix::io::Result<Directory<'_>>,
        below: &Path,
        depth: u64,
    ) -> Result<(), Full> {
        let listed = directory.and_then(|directory| Ok((directory.names()?, directory)));
        match listed {
            Ok((mut names, directory)) => {
                names.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
                for (name, listed) in names {
                    self.entry(&directory, &below.join(&name), &name, listed, depth)?;
                }
                Ok(())
            }
            Err(errno) => self.unreadable(below, errno),
        }
    }

    fn entry(
        &mut self,
        directory: &Directory<'_>,
        below: &Path,
        name: &OsStr,
        listed: FileType,
        depth: u64,
    ) -> Result<(), Full> {
        let follow = self.limits.follow_directory_symlinks;
        // The identity is needed where one directory can be met twice, the target where a link counts.
        let needs_stat = matches!(listed, FileType::Unknown | FileType::Symlink)
            || (follow && listed == FileType::Directory);
        let stat = if needs_stat {
            match directory.target_stat(name) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(()),
                Err(errno) => return self.unreadable(below, errno),
            }
        } else {
            None
        };
        if self.seen == self.limits.max_entries {
            return self.stop();
        }
        self.seen += 1;
        let is_link =
            listed == FileType::Symlink || (listed == FileType::Unknown && is_link(directory, name));
        match stat.as_ref().map_or(listed, resolve::kind) {
            FileType::Directory if follow || !is_link => {
                self.found(below, true)?;
                self.enqueue(below, name, stat.as_ref(), depth);
                Ok(())
            }
            FileType::RegularFile if !is_link => self.found(below, false),
            _ => Ok(()),
        }
    }

    fn enqueue(&mut self, below: &Path, name: &OsStr, stat: Option<&Stat>, depth: u64) {
        let hidden = self.limits.prune_hidden_directories && name.as_bytes().starts_with(b".");
        if depth == self.limits.max_depth || hidden {
            return;
        }
        if let Some(stat) = stat.filter(|_| self.limits.follow_directory_symlinks)
            && self.visited.contains(&identity(stat))
        {
            return;
        }
        if self.entered == self.limits.max_directories {
            self.outcome.truncated = true;
            return;
        }
        self.entered += 1;
        self.visited.extend(stat.map(identity));
        self.pending.push_back((below.to_owned(), depth + 1));
    }

    fn found(&mut self, below: &Path, is_directory: bool) -> Result<(), Full> {
        if let Some(path) = self.weigh(below, 0)? {
            self.outcome.found.push(Found { path, is_directory });
        }
        Ok(())
    }

    fn unreadable(&mut self, below: &Path, errno: Errno) -> Result<(), Full> {
        let message = text(errno);
        if let Some(path) = self.weigh(below, message.len())? {
            self.outcome.unreadable.push(Unreadable { path, message });
        }
        Ok(())
    }

    /// The path of an item that still fits.
    fn weigh(&mut self, below: &Path, more: usize) -> Result<Option<PathUri>, Full> {
        let path = if below.as_os_str().is_empty() { self.root.clone() } else { self.root.join(below) };
        let Ok(path) = PathUri::from_native_path(&path) else { return Ok(None) };
        self.weight += path.as_str().len() + more + ITEM_WEIGHT;
        if self.weight > BUDGET { self.stop().map(|()| None) } else { Ok(Some(path)) }
    }

    fn stop(&mut self) -> Result<(), Full> {
        self.outcome.truncated = true;
        Err(Full)
    }
}

fn is_link(directory: &Directory<'_>, name: &OsStr) -> bool {
    directory.stat(name).is_ok_and(|stat| resolve::kind(&stat) == FileType::Symlink)
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::os::unix::fs::symlink;

    const WIDE: WalkLimits = WalkLimits {
        max_depth: 16,
        max_directories: 1000,
        max_entries: 10_000,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for directory in ["b/c/d", ".hid/x", "a"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in ["z", ".dotfile", "b/1", "b/c/2", "b/c/d/3", ".hid/h", ".hid/x/y"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        for (target, link) in [("b", "lb"), ("z", "lz"), ("..", "b/up"), ("nowhere", "dangling")] {
            symlink(target, root.join(link)).unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
        (dir, root)
    }

    fn names(root: &Path, limits: WalkLimits) -> (Vec<String>, bool) {
        let outcome = walk(root, &limits).unwrap();
        assert_eq!(outcome.unreadable, []);
        let prefix = PathUri::from_native_path(root).unwrap().to_string() + "/";
        let names =
            outcome.found.iter().map(|found| found.path.as_str().strip_prefix(&prefix).unwrap().to_owned());
        (names.collect(), outcome.truncated)
    }

    #[test]
    fn breadth_first_and_sorted() {
        let (_dir, root) = tree();
        let expected = [
            ".dotfile", ".hid", "a", "b", "z", ".hid/h", ".hid/x", "b/1", "b/c", ".hid/x/y", "b/c/2",
            "b/c/d", "b/c/d/3",
        ];
        assert_eq!(names(&root, WIDE), (expected.map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn limits() {
        let (_dir, root) = tree();
        let count = |limits| {
            let (names, truncated) = names(&root, limits);
            (names.len(), truncated)
        };
        assert_eq!(count(WalkLimits { max_depth: 0, ..WIDE }), (5, false));
        assert_eq!(count(WalkLimits { max_depth: 1, ..WIDE }), (9, false));
        assert_eq!(count(WalkLimits { max_directories: 1, ..WIDE }), (5, true));
        assert_eq!(count(WalkLimits { max_directories: 1, max_depth: 0, ..WIDE }), (5, false));
        assert_eq!(count(WalkLimits { max_entries: 3, ..WIDE }), (3, true));
        // Seventeen entries can be looked at: thirteen are listed, the pipe and three links are not.
        assert_eq!(count(WalkLimits { max_entries: 17, ..WIDE }), (13, false));
        assert_eq!(count(WalkLimits { max_entries: 16, ..WIDE }), (12, true));
        assert_eq!(count(WalkLimits { max_directories: 7, ..WIDE }), (13, false));
        assert_eq!(count(WalkLimits { max_directories: 6, ..WIDE }), (12, true));
        assert_eq!(count(WalkLimits { prune_hidden_directories: true, ..WIDE }), (10, false));
        for bad in [
            WalkLimits { max_depth: 65, ..WIDE },
            WalkLimits { max_directories: 0, ..WIDE },
            WalkLimits { max_entries: 50_001, ..WIDE },
        ] {
            assert_eq!(walk(&root, &bad).unwrap_err().class(), ErrorClass::InvalidInput);
        }
    }

    #[test]
    fn linked_directories_are_entered_once() {
        let (_dir, root) = tree();
        let following = WalkLimits { follow_directory_symlinks: true, ..WIDE };
        let (found, truncated) = names(&root, following);
        assert_eq!((found.len(), truncated), (15, false), "{found:?}");
        assert!(found.contains(&"lb".to_owned()) && found.contains(&"b/up".to_owned()));
        assert!(names(&root.join("lb"), following).0.contains(&"c/d/3".to_owned()));
    }

    #[test]
    fn roots_without_entries() {
        let (_dir, root) = tree();
        for name in ["z", "lb", "fifo", "dangling"] {
            assert_eq!(walk(&root.join(name), &WIDE).unwrap(), WalkOutcome::default());
        }
        assert_eq!(walk(&root.join("none"), &WIDE).unwrap_err().class(), ErrorClass::NotFound);
    }

    #[test]
    fn any_name_is_spelled() {
        let dir = tempfile::tempdir().unwrap();
        for name in [&b"\xff\xfe"[..], b"new\nline"] {
            std::fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        assert_eq!(names(dir.path(), WIDE).0, ["new%0Aline", "%FF%FE"]);
    }
}
