use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxAttributes, StatxFlags};
use rustix::io::{Errno, Result};

use super::Links;
use super::guard::{Guard, Route, Want, permits_by_names};
use super::guarded::{self, LastLink, Spot, again_if_changed};
use super::resolve::{self, NEVER_WAIT, kind, open_directory_without_links};

/// Opens a directory for paths below it.
const PASSABLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Opens a directory for its names too.
const LISTABLE: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// An open directory. Everything that is done to its entries is done here, and asked of the guard first, if there is one.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    fd: OwnedFd,
    guarded: Option<Site<'a>>,
}

/// Where a guarded directory is.
#[derive(Debug, Clone)]
struct Site<'a> {
    guard: &'a dyn Guard,
    path: PathBuf,
}

impl AsFd for Directory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<'a> Directory<'a> {
    /// Opens the directory that a path names, to list it.
    pub(super) fn open(route: Route<'a>) -> Result<Self> {
        let fd = resolve::open(route, Links::Follow, LISTABLE, Mode::empty())?;
        Self::of(fd, route.guard)
    }

    /// A directory that was opened to be listed. What counts is where it is now.
    fn of(fd: OwnedFd, guard: Option<&'a dyn Guard>) -> Result<Self> {
        let Some(guard) = guard else { return Ok(Self { fd, guarded: None }) };
        let path = again_if_changed(|| guarded::real_path(&fd))?;
        guard.permits(&path, Some(FileType::Directory), Want::List)?;
        Ok(Self { fd, guarded: Some(Site { guard, path }) })
    }

    /// Opens a directory in this one, to list it. A link is ENOTDIR.
    pub(super) fn enter(&self, name: &OsStr) -> Result<Self> {
        self.check(name, Some(FileType::Directory), Want::List)?;
        let fd = rustix::fs::openat(&self.fd, name, LISTABLE | OFlags::NOFOLLOW, Mode::empty())?;
        Self::of(fd, self.guarded.as_ref().map(|site| site.guard))
    }

    /// The same, but a link to a directory is followed.
    pub(super) fn enter_following(&self, name: &OsStr) -> Result<Self> {
        let fd = self.open_following(name, LISTABLE, Mode::empty())?;
        Self::of(fd, self.guarded.as_ref().map(|site| site.guard))
    }

    /// Opens a directory below this one, to list it, where no link may be on the way. An empty path is this one.
    pub(super) fn open_below(&self, below: &Path) -> Result<Self> {
        if self.guarded.is_some() {
            return self.open_below_following(below);
        }
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let opened = rustix::fs::openat2(&self.fd, below, LISTABLE, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let fd = match opened {
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::openat(&self.fd, below, LISTABLE | OFlags::NOFOLLOW, Mode::empty())?
            }
            result => result?,
        };
        Ok(Self { fd, guarded: None })
    }

    /// The same, but links are followed.
    pub(super) fn open_below_following(&self, below: &Path) -> Result<Self> {
        if let Some(site) = &self.guarded {
            let path = site.path.join(below);
            let fd =
                resolve::open(Route::guarded(&path, site.guard), Links::Follow, LISTABLE, Mode::empty())?;
            return Self::of(fd, Some(site.guard));
        }
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let fd = rustix::fs::openat(&self.fd, below, LISTABLE, Mode::empty())?;
        Ok(Self { fd, guarded: None })
    }

    /// Opens the directory above this one, to list it.
    pub(super) fn above(&self) -> Result<Self> {
        let fd = rustix::fs::openat(&self.fd, "..", LISTABLE, Mode::empty())?;
        Self::of(fd, self.guarded.as_ref().map(|site| site.guard))
    }

    /// The names in this directory that may be seen, and their kinds, as far as the listing tells them.
    pub(super) fn names(&self) -> Result<Vec<(OsString, FileType)>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && self.shows(name) {
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok(names)
    }

    fn shows(&self, name: &OsStr) -> bool {
        self.guarded.as_ref().is_none_or(|site| site.guard.shows(&site.path.join(name)))
    }

    /// Asks the guard about an entry.
    pub(super) fn check(&self, name: &OsStr, kind: Option<FileType>, want: Want) -> Result<()> {
        let Some(site) = &self.guarded else { return Ok(()) };
        site.guard.permits(&site.entry(name), kind, want)
    }

    /// Describes an entry itself.
    pub(super) fn stat(&self, name: &OsStr) -> Result<Stat> {
        self.check(name, None, Want::Approach)?;
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Describes what an entry leads to.
    pub(super) fn target_stat(&self, name: &OsStr) -> Result<Stat> {
        let Some(site) = &self.guarded else {
            return rustix::fs::statat(&self.fd, name, AtFlags::empty());
        };
        let spot = guarded::follow(site.guard, &site.entry(name), LastLink::Follow)?;
        rustix::fs::fstat(spot.object.ok_or(Errno::NOENT)?)
    }

    /// Opens an entry without following it, and without ever waiting.
    pub(super) fn open_entry(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let Some(site) = &self.guarded else {
            return rustix::fs::openat(&self.fd, name, flags | OFlags::NOFOLLOW | NEVER_WAIT, mode);
        };
        if flags.contains(OFlags::CREATE | OFlags::EXCL) {
            return site.create(&self.fd, name, flags, mode);
        }
        self.check(name, None, Want::Approach)?;
        let entry = rustix::fs::openat(
            &self.fd,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if flags.contains(OFlags::PATH) {
            return Ok(entry);
        }
        if kind(&rustix::fs::fstat(&entry)?) == FileType::Symlink {
            return Err(Errno::LOOP);
        }
        guarded::reopen(site.guard, &entry, &[], flags)
    }

    /// Opens what an entry leads to, or creates it, without ever waiting.
    pub(super) fn open_following(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        match &self.guarded {
            None => rustix::fs::openat(&self.fd, name, flags | NEVER_WAIT, mode),
            Some(site) => {
                resolve::open(Route::guarded(&site.entry(name), site.guard), Links::Follow, flags, mode)
            }
        }
    }

    pub(super) fn make_directory(&self, name: &OsStr, mode: Mode) -> Result<()> {
        self.check_new(name, FileType::Directory)?;
        rustix::fs::mkdirat(&self.fd, name, mode)
    }

    pub(super) fn make_link(&self, name: &OsStr, target: impl rustix::path::Arg) -> Result<()> {
        self.check_new(name, FileType::Symlink)?;
        rustix::fs::symlinkat(target, &self.fd, name)
    }

    /// An entry that is there already is EEXIST, as of the kernel, before anything is asked about writing.
    fn check_new(&self, name: &OsStr, kind: FileType) -> Result<()> {
        if self.guarded.is_some() && self.stat(name).is_ok() {
            return Err(Errno::EXIST);
        }
        self.check(name, Some(kind), Want::Write)
    }

    /// Removes an entry; a directory if the flags say so.
    pub(super) fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<()> {
        if self.guarded.is_some() {
            self.check(name, Some(kind(&self.stat(name)?)), Want::Displace)?;
        }
        rustix::fs::unlinkat(&self.fd, name, flags)
    }

    /// The text of a link.
    pub(super) fn link_text(&self, name: &OsStr) -> Result<std::ffi::CString> {
        self.check(name, None, Want::Approach)?;
        rustix::fs::readlinkat(&self.fd, name, Vec::new())
    }
}

impl Site<'_> {
    fn entry(&self, name: &OsStr) -> PathBuf {
        if name == "." { self.path.clone() } else { self.path.join(name) }
    }

    /// Creates a file, and looks where it has come to be.
    fn create(&self, parent: &OwnedFd, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let file = Some(FileType::RegularFile);
        self.guard.permits(&self.entry(name), file, Want::Write)?;
        let created = rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW | NEVER_WAIT, mode)?;
        let checked =
            guarded::real_path(&created).and_then(|path| self.guard.permits(&path, file, Want::Write));
        match checked {
            Ok(()) => Ok(created),
            Err(errno) => {
                remove_if_same(parent, name, &created);
                Err(errno)
            }
        }
    }
}

/// Takes back a file that was created.
pub(super) fn remove_if_same(parent: impl AsFd, name: &OsStr, file: impl AsFd) {
    if let (Ok(entry), Ok(own)) =
        (rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW), rustix::fs::fstat(file))
        && resolve::same_file(&entry, &own)
    {
        let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
    }
}

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
        Self { parent: Directory { fd: parent, guarded: None }, name, names: Vec::new() }
    }

    /// The entry that a path leads to under a guard.
    pub(super) fn at(guard: &'a dyn Guard, spot: Spot) -> Self {
        let guarded = Some(Site { guard, path: spot.parent_path });
        Self { parent: Directory { fd: spot.parent, guarded }, name: spot.name, names: spot.names }
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
    pub(super) fn link_text(&self) -> Result<std::ffi::CString> {
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
