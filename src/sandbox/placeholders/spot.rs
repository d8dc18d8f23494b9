//! The place of one placeholder in the file system, reached without following a link.
//!
//! A placeholder is a directory with the sticky bit that nobody but its owner may write: a mode that directories do
//! not have otherwise, that every program may still fill (`git init` in it works), and that is there from `mkdir` on.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, mkdirat, statat, unlinkat,
};
use rustix::io::Errno;

const ON_THE_WAY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const MODE: u32 = 0o1755;
/// Sticky, and not writable by group or others, as `/tmp` is.
const MARK: (u32, u32) = (0o1022, 0o1000);

/// What a directory is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Of the file system.
    pub device: u64,
    /// In the file system.
    pub inode: u64,
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A directory, and a name in it.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) path: PathBuf,
    parent: OwnedFd,
    name: OsString,
}

/// What stands at a spot.
pub(super) enum Found {
    Missing,
    /// Of this server or another, perhaps filled by now.
    Placeholder(OwnedFd, Identity),
    Other,
}

pub(super) enum Cleared {
    /// No placeholder is there any more.
    Done,
    /// Somebody uses it, or it cannot be removed now.
    NotYet,
}

impl Spot {
    /// The path itself, or the first directory on the way to it that is missing or is a placeholder.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        Self::walk(path, true)
    }

    fn walk(path: &Path, stop_early: bool) -> io::Result<Self> {
        let (Some(above), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
            return Err(not_real(path));
        };
        let mut parent = rustix::fs::open("/", ON_THE_WAY, Mode::empty())?;
        let mut walked = PathBuf::from("/");
        for component in above.components().skip(1) {
            let Component::Normal(name) = component else { return Err(not_real(path)) };
            let spot = Self { path: walked.join(name), parent, name: name.to_owned() };
            match rustix::fs::openat(&spot.parent, name, ON_THE_WAY, Mode::empty()) {
                Ok(next) if !(stop_early && is_marked(&fstat(&next)?)) => {
                    (walked, parent) = (spot.path, next)
                }
                Ok(_) => return Ok(spot),
                Err(Errno::NOENT) if stop_early => return Ok(spot),
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(not_real(&spot.path)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { path: path.to_owned(), parent, name: name.to_owned() })
    }

    pub(super) fn look(&self) -> io::Result<Found> {
        let directory = match rustix::fs::openat(&self.parent, &self.name, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(Found::Missing),
            // A file, a link, or a directory that even its owner cannot read, as no placeholder is.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(Found::Other),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&directory)?;
        Ok(if is_marked(&stat) { Found::Placeholder(directory, Identity::of(&stat)) } else { Found::Other })
    }

    /// Makes the directory; false if something is there by now.
    pub(super) fn make(&self) -> io::Result<bool> {
        match mkdirat(&self.parent, &self.name, Mode::from_raw_mode(MODE)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the directory, if it is empty.
    pub(super) fn remove(&self) -> Result<(), Errno> {
        unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR)
    }

    /// Whether the name means this very directory.
    pub(super) fn names(&self, identity: Identity) -> bool {
        statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| Identity::of(&stat) == identity)
    }
}

pub(super) fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if ![&b"."[..], b".."].contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Not absolute, or a link or a file where a directory has to be.
fn not_real(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, format!("{} is no real directory", path.display()))
}

fn is_marked(stat: &Stat) -> bool {
    stat.st_mode & MARK.0 == MARK.1
}

/// Takes the lock of a user; false while the placeholder is being removed. Where the file system has no locks, there
/// is no other server to be told.
pub(super) fn lock_shared(directory: &impl AsFd) -> bool {
    flock(directory, FlockOperation::NonBlockingLockShared) != Err(Errno::WOULDBLOCK)
}

/// Gives the lock up, also where a child that has not executed yet has a copy of the descriptor.
pub(super) fn unlock(directory: &impl AsFd) {
    let _ = flock(directory, FlockOperation::Unlock);
}

/// Removes the placeholder at a path if it is one, is empty and nobody uses it. One that the host has filled becomes
/// an ordinary directory.
pub(super) fn clear(path: &Path) -> Cleared {
    match try_clear(path) {
        Ok(cleared) => cleared,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Cleared::Done
        }
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "a placeholder cannot be removed yet");
            Cleared::NotYet
        }
    }
}

fn try_clear(path: &Path) -> io::Result<Cleared> {
    let spot = Spot::walk(path, false)?;
    let Found::Placeholder(directory, identity) = spot.look()? else { return Ok(Cleared::Done) };
    if flock(&directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(Cleared::NotYet);
    }
    if !spot.names(identity) {
        return Ok(Cleared::NotYet);
    }
    match spot.remove() {
        Ok(()) => Ok(Cleared::Done),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let mode = Mode::from_raw_mode(fstat(&directory)?.st_mode).difference(Mode::SVTX);
            fchmod(&directory, mode)?;
            Ok(Cleared::Done)
        }
        Err(error) => Err(error.into()),
    }
}

/// Where a directory is now; `None` if it is gone.
pub(super) fn current_path(directory: &OwnedFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    let gone = path.as_bytes().ends_with(b" (deleted)");
    (!gone).then(|| PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}
