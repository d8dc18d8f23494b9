//! Puts watches on all that a set of paths depends on.
//!
//! From the root down, a directory is watched before the next name is looked up in it. So what is found missing cannot
//! appear unseen, and what is found cannot be replaced unseen, whenever that happens. Directories are watched by their
//! descriptors: what was looked at is what is watched.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FileType, FsWord, IFlags, Mode, OFlags, fstatfs, ioctl_getflags, openat};
use rustix::io::Errno;

use super::route::{Route, Step};
use super::{Names, Unwatchable};

/// Its own end or new name, also where the directory that holds it may not be watched.
const ENDS: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF).union(WatchFlags::MASK_ADD);

/// The comings and goings in a directory.
const ENTRIES: WatchFlags = ENDS
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// File systems that only this kernel changes, and only as it is told. Others change without a word, such as those of a
/// network, or have many names for one entry, such as vfat.
const LOCAL: [u32; 17] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlay
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x3153_464a, // jfs
    0x5265_4973, // reiserfs
    0x3434,      // nilfs
    0x2405_1905, // ubifs
    0xf15f,      // ecryptfs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x9660,      // iso9660
];

/// Set on a directory where names are the same in upper and lower case.
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);

/// Watches that are in place.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) inotify: OwnedFd,
    /// Reports changes since before the first look.
    pub(super) mount_table: OwnedFd,
    pub(super) names: Names,
    pub(super) routes: Vec<Route>,
}

impl Registration {
    /// Watches paths that must be missing, and one that must be present. Blocks.
    ///
    /// # Errors
    /// When it is not so, or not all of it can be watched.
    pub(super) fn of(missing: Vec<PathBuf>, present: Option<PathBuf>) -> Result<Self, Unwatchable> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut registration = Self {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            mount_table: rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?,
            names: Names::new(),
            routes: Vec::new(),
        };
        for path in missing {
            registration.add_missing(path)?;
        }
        if let Some(path) = present {
            registration.add_present(path)?;
        }
        Ok(registration)
    }

    fn add_missing(&mut self, path: PathBuf) -> Result<(), Unwatchable> {
        let mut is_covered = true;
        let route = Route::follow(path, |step, name| {
            is_covered = self.watch_name(step, name.ok_or(Unwatchable::Exists)?, is_covered)?;
            Ok(())
        })?;
        self.routes.push(route);
        if is_covered { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    fn add_present(&mut self, path: PathBuf) -> Result<(), Unwatchable> {
        let (mut is_covered, mut exists) = (true, false);
        let route = Route::follow(path, |step, name| {
            match name {
                Some(name) => is_covered = self.watch_name(step, name, is_covered)?,
                None => {
                    exists = true;
                    self.watch_itself(step)?;
                }
            }
            Ok(())
        })?;
        self.routes.push(route);
        if exists { Ok(()) } else { Err(Unwatchable::Missing) }
    }

    /// Watches what becomes of a name in a directory: whether that can be seen. A directory that may be passed but not
    /// read cannot be watched; then what the name stands for must be, by itself.
    fn watch_name(&mut self, step: &Step, name: &OsStr, is_covered: bool) -> Result<bool, Unwatchable> {
        if step.kind != FileType::Directory {
            // Its own name is watched.
            return if is_covered { Ok(true) } else { Err(Errno::ACCESS.into()) };
        }
        match self.watch(step, ENTRIES) {
            Ok(_) if folds_case(step) => Err(Unwatchable::FileSystem),
            Ok(watch) => {
                self.names.entry(watch).or_default().insert(name.to_owned());
                Ok(true)
            }
            Err(Unwatchable::System(Errno::ACCESS)) if is_covered => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Watches content and attributes of a file, or the attributes of a directory.
    fn watch_itself(&mut self, step: &Step) -> Result<(), Unwatchable> {
        let content = match step.kind {
            FileType::Directory => WatchFlags::empty(),
            _ => WatchFlags::MODIFY,
        };
        let watch = self.watch(step, ENDS | WatchFlags::ATTRIB | content)?;
        self.names.entry(watch).or_default();
        Ok(())
    }

    fn watch(&self, step: &Step, what: WatchFlags) -> Result<i32, Unwatchable> {
        let file_system = fstatfs(&step.at)?.f_type;
        if !LOCAL.iter().any(|local| *local as FsWord == file_system) {
            return Err(Unwatchable::FileSystem);
        }
        let path = format!("/proc/self/fd/{}", step.at.as_raw_fd());
        Ok(inotify::add_watch(&self.inotify, path, what)?)
    }
}

/// Whether an event may spell the name of an entry differently.
fn folds_case(directory: &Step) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // File systems without such flags have no such directories either.
    openat(&directory.at, ".", flags, Mode::empty())
        .and_then(ioctl_getflags)
        .is_ok_and(|flags| flags.contains(CASEFOLD))
}
