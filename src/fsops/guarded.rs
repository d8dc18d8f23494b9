//! Following a path under a [`Guard`]: name by name on descriptors, links by hand, so that the kernel never goes where
//! the guard was not asked.
//!
//! Why this is safe is written in `docs/design/confined-files.md`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::{Errno, Result};

use super::guard::{Guard, Want, permits_by_names};
use super::resolve::{NEVER_WAIT, kind, same_file};

/// As many links as the kernel follows.
const MAX_LINKS: u32 = 40;

/// The kernel takes no longer path.
const PATH_MAX: usize = 4096;

/// How often a path that changes under the call is followed again.
const ATTEMPTS: u32 = 8;

const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What to do with a link that is the last name of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    /// Follow it, and those behind it.
    Follow,
    /// It is what the path names. Any other link on the way is ENOTDIR if none may be.
    Keep { links_before: bool },
}

/// Where a path leads.
pub(super) struct Spot {
    /// The directory.
    pub(super) parent: OwnedFd,
    /// Its real path.
    pub(super) parent_path: PathBuf,
    /// The name in it; `.` for the root directory.
    pub(super) name: OsString,
    /// What has the name, if the guard lets it be touched. Not looked up where links are kept.
    pub(super) object: Option<OwnedFd>,
    /// Other names by which the entry was reached.
    pub(super) names: Vec<PathBuf>,
}

/// Follows a path from the root directory.
pub(super) fn follow(guard: &dyn Guard, path: &Path, last: LastLink) -> Result<Spot> {
    if path.as_os_str().len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    again_if_changed(|| {
        let root = rustix::fs::open("/", ENTRY | OFlags::DIRECTORY, Mode::empty())?;
        Walk {
            guard,
            directory: root,
            path: "/".into(),
            pending: names(path),
            links: 0,
            names: vec![path.into()],
        }
        .run(last)
    })
}

/// Repeats what failed because an entry was taken away in the middle of it.
pub(super) fn again_if_changed<T>(mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..ATTEMPTS {
        match operation() {
            Err(Errno::STALE) => {}
            result => return result,
        }
    }
    Err(Errno::NOENT)
}

struct Walk<'a> {
    guard: &'a dyn Guard,
    directory: OwnedFd,
    path: PathBuf,
    /// The names that are still to be followed, the next one last.
    pending: Vec<OsString>,
    links: u32,
    names: Vec<PathBuf>,
}

impl Walk<'_> {
    fn run(mut self, last: LastLink) -> Result<Spot> {
        self.guard.permits(&self.path, Some(FileType::Directory), Want::Pass)?;
        while let Some(name) = self.pending.pop() {
            let is_last = self.pending.is_empty();
            if name == ".." {
                self.go_up()?;
            } else if is_last && last != LastLink::Follow {
                return self.end(name, None);
            } else if let Some(spot) = self.step(name, is_last, last)? {
                return self.end(spot.0, spot.1);
            }
        }
        let object = rustix::io::dup(&self.directory)?;
        self.end(".".into(), Some(object))
    }

    fn go_up(&mut self) -> Result<()> {
        self.directory = rustix::fs::openat(&self.directory, "..", ENTRY | OFlags::DIRECTORY, Mode::empty())?;
        self.path.pop();
        self.guard.permits(&self.path, Some(FileType::Directory), Want::Pass)
    }

    /// Goes one name further. Something if that was the last one and no link.
    fn step(
        &mut self,
        name: OsString,
        is_last: bool,
        last: LastLink,
    ) -> Result<Option<(OsString, Option<OwnedFd>)>> {
        let path = self.path.join(&name);
        match self.guard.permits(&path, None, Want::Approach) {
            Err(Errno::NOENT) if is_last => return Ok(Some((name, None))),
            result => result?,
        }
        let entry = match rustix::fs::openat(&self.directory, &name, ENTRY, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return Ok(Some((name, None))),
            result => result?,
        };
        let stat = rustix::fs::fstat(&entry)?;
        match kind(&stat) {
            FileType::Symlink if last == (LastLink::Keep { links_before: false }) => Err(Errno::NOTDIR),
            FileType::Symlink => self.follow_link(&entry, &stat, is_last).map(|()| None),
            _ if is_last => Ok(Some((name, Some(entry)))),
            FileType::Directory => {
                self.guard.permits(&path, Some(FileType::Directory), Want::Pass)?;
                (self.directory, self.path) = (entry, path);
                Ok(None)
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    fn follow_link(&mut self, link: &OwnedFd, stat: &Stat, is_last: bool) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        self.check_link(link, stat)?;
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.directory = rustix::fs::open("/", ENTRY | OFlags::DIRECTORY, Mode::empty())?;
            self.path = "/".into();
        }
        if is_last {
            self.names.push(lexical(&self.path, &target));
        }
        self.pending.extend(names(&target));
        Ok(())
    }

    /// Refuses the links of a `proc` file system, and what the kernel calls protected links: those that another user put
    /// into a directory like `/tmp`.
    fn check_link(&self, link: &OwnedFd, stat: &Stat) -> Result<()> {
        if is_procfs(link)? {
            return Err(Errno::NOENT);
        }
        let above = rustix::fs::fstat(&self.directory)?;
        let shared = Mode::from_raw_mode(above.st_mode).contains(Mode::SVTX | Mode::WOTH);
        let own = rustix::process::geteuid().as_raw();
        if shared && stat.st_uid != own && stat.st_uid != above.st_uid {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// The directory may have been moved meanwhile; its path now is the one that counts.
    fn end(self, name: OsString, object: Option<OwnedFd>) -> Result<Spot> {
        let parent_path = real_path(&self.directory)?;
        self.guard.permits(&parent_path, Some(FileType::Directory), Want::Pass)?;
        check_file_system(&self.directory, &parent_path)?;
        Ok(Spot { parent: self.directory, parent_path, name, object, names: self.names })
    }
}

/// Opens an entry that was found, for real, if the guard allows that use of it. Its path is looked up once more: it is
/// what the descriptor stands for that counts, however it was reached.
pub(super) fn reopen(
    guard: &dyn Guard,
    entry: &OwnedFd,
    names: &[PathBuf],
    flags: OFlags,
) -> Result<OwnedFd> {
    let stat = rustix::fs::fstat(entry)?;
    let kind = kind(&stat);
    check(guard, entry, names, kind, want(flags))?;
    let flags = flags.difference(OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW) | NEVER_WAIT;
    let file = rustix::fs::openat(CWD, link_to(entry), flags, Mode::empty())?;
    if want(flags) == Want::Write && kind == FileType::RegularFile {
        drop_set_id(&file, &stat)?;
    }
    Ok(file)
}

/// Asks the guard about what a descriptor stands for.
pub(super) fn check(
    guard: &dyn Guard,
    entry: &OwnedFd,
    names: &[PathBuf],
    kind: FileType,
    want: Want,
) -> Result<()> {
    let path = real_path(entry)?;
    guard.permits(&path, Some(kind), want)?;
    check_file_system(entry, &path)?;
    permits_by_names(guard, names, Some(kind), want)?;
    let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
    // In a sandbox, mounts have no devices.
    if is_device && !path.starts_with("/dev") { Err(Errno::ACCESS) } else { Ok(()) }
}

/// What opening with these flags is for.
fn want(flags: OFlags) -> Want {
    if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        Want::Write
    } else if flags.contains(OFlags::DIRECTORY) {
        Want::List
    } else {
        Want::Read
    }
}

/// A program that runs as its owner is not written by one that is confined: the kernel clears these bits for anyone but
/// the superuser.
fn drop_set_id(file: &OwnedFd, stat: &Stat) -> Result<()> {
    let mode = Mode::from_raw_mode(stat.st_mode);
    let set_id = Mode::SUID | Mode::SGID;
    if mode.intersects(set_id) { rustix::fs::fchmod(file, mode.difference(set_id)) } else { Ok(()) }
}

/// The path of an open entry at this moment; ESTALE if it has none any more.
pub(super) fn real_path(entry: impl AsFd) -> Result<PathBuf> {
    let path = rustix::fs::readlinkat(CWD, link_to(&entry), Vec::new())?;
    let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
    if !path.is_absolute() {
        return Err(Errno::NOENT);
    }
    if path.as_os_str().as_bytes().ends_with(b" (deleted)") && !is_at(&path, &entry)? {
        return Err(Errno::STALE);
    }
    Ok(path)
}

/// The kernel's link to an open entry: the only path by which one is used again.
pub(super) fn link_to(entry: impl AsFd) -> String {
    format!("/proc/self/fd/{}", entry.as_fd().as_raw_fd())
}

fn is_at(path: &Path, entry: impl AsFd) -> Result<bool> {
    let own = rustix::fs::fstat(entry)?;
    let there = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    Ok(there.is_ok_and(|there| same_file(&there, &own)))
}

/// Of `/proc` the guard knows what may be seen; the same file system elsewhere is as if it were not there.
pub(super) fn check_file_system(entry: &OwnedFd, path: &Path) -> Result<()> {
    if !path.starts_with("/proc") && is_procfs(entry)? { Err(Errno::NOENT) } else { Ok(()) }
}

fn is_procfs(entry: &OwnedFd) -> Result<bool> {
    Ok(rustix::fs::fstatfs(entry)?.f_type == PROC_SUPER_MAGIC)
}

/// The names of a path, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

/// A path as it is spelled behind a directory, without `..`.
fn lexical(directory: &Path, path: &Path) -> PathBuf {
    let mut joined = directory.to_owned();
    for name in names(path).into_iter().rev() {
        if name == ".." {
            joined.pop();
        } else {
            joined.push(name);
        }
    }
    joined
}
