use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags};
use rustix::io::Result;

use super::Links;
use super::guard::{Guard, Route, Want, permits_by_names};
use super::guarded::{self, LastLink, Spot};
use super::opened::{Directory, Site};
use super::resolve::{kind, open_directory_without_links};

/// Opens a directory for paths below it.
const PASSABLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An entry of a directory: the directory as a descriptor, and the name in it.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) parent: Directory<'a>,
    pub(super) name: OsString,
    /// Other names by which it was reached; only a guard asks for them.
    names: Vec<PathBuf>,
}

impl<'a> Place<'a> {
    /// The entry that an absolute path names. The last component is not looked at; `/` is `.` in itself.
    pub(super) fn of(route: Route<'a>, links: Links) -> Result<Self> {
        if let Some(guard) = route.guard {
            let last = LastLink::Keep { links_before: links == Links::Follow };
            return guarded::follow(guard, route.path, last).map(|spot| Self::at(guard, spot));
        }
        let (Some(parent), Some(name)) = (route.path.parent(), route.path.file_name()) else {
            let root = rustix::fs::open("/", PASSABLE, Mode::empty())?;
            return Ok(Self::unguarded(root, ".".into()));
        };
        let parent = match links {
            Links::Follow => rustix::fs::open(parent, PASSABLE, Mode::empty())?,
            Links::Refuse => open_directory_without_links(parent)?,
        };
        Ok(Self::unguarded(parent, name.to_owned()))
    }

    /// An entry that nobody guards.
    pub(super) fn unguarded(parent: OwnedFd, name: OsString) -> Self {
        Self { parent: Directory::at(parent, None), name, names: Vec::new() }
    }

    /// The entry that a path leads to under a guard.
    pub(super) fn at(guard: &'a dyn Guard, spot: Spot) -> Self {
        let guarded = Some(Site { guard, path: spot.parent_path });
        Self { parent: Directory::at(spot.parent, guarded), name: spot.name, names: spot.names }
    }

    /// Asks the guard about the entry as one of this kind, by all names by which it was reached.
    pub(super) fn check(&self, kind: FileType, want: Want) -> Result<()> {
        let Some(site) = &self.parent.guarded else { return Ok(()) };
        self.parent.check(&self.name, Some(kind), want)?;
        permits_by_names(site.guard, &self.names, Some(kind), want)
    }

    /// Opens the entry without following it.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        if let Some(site) = self.parent.guarded.as_ref().filter(|_| !flags.contains(OFlags::PATH)) {
            let kind = self.stat().map_or(FileType::RegularFile, |stat| kind(&stat));
            permits_by_names(site.guard, &self.names, Some(kind), Want::Read)?;
        }
        self.parent.open_entry(&self.name, flags, mode)
    }

    /// Describes the entry itself.
    pub(super) fn stat(&self) -> Result<Stat> {
        self.parent.stat(&self.name)
    }

    /// Removes the entry; a directory if the flags say so.
    pub(super) fn unlink(&self, flags: AtFlags) -> Result<()> {
        if self.parent.guarded.is_some() {
            self.check(kind(&self.stat()?), Want::Displace)?;
        }
        rustix::fs::unlinkat(&self.parent, &self.name, flags)
    }

    /// The text of the link that the entry is.
    pub(super) fn link_text(&self) -> Result<CString> {
        self.parent.link_text(&self.name)
    }

    /// The real path of the entry, where a guard needs it.
    pub(super) fn guarded_path(&self) -> Option<(&'a dyn Guard, PathBuf)> {
        self.parent.guarded.as_ref().map(|site| (site.guard, site.entry(&self.name)))
    }

    /// Whether something is mounted on the entry.
    pub(super) fn is_mount_point(&self) -> Result<bool> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let entry = rustix::fs::statx(&self.parent, &self.name, flags, StatxFlags::empty())?;
        Ok(entry.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }
}
