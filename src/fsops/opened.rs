use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

use super::Links;
use super::guard::{Guard, Route, Want};
use super::guarded::{self, LastLink, again_if_changed};
use super::resolve::{self, NEVER_WAIT, kind};

/// Opens a directory for its names too.
const LISTABLE: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The longest path that the system takes, with the NUL behind it.
const PATH_BYTES: usize = 4096;
/// So many names, of 255 bytes each, are shorter.
const STEP_NAMES: usize = 15;

/// An open directory. Everything that is done to its entries is done here, and asked of the guard first, if there is one.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    fd: OwnedFd,
    pub(super) guarded: Option<Site<'a>>,
}

/// Where a guarded directory is.
#[derive(Debug, Clone)]
pub(super) struct Site<'a> {
    pub(super) guard: &'a dyn Guard,
    pub(super) path: PathBuf,
}

impl AsFd for Directory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<'a> Directory<'a> {
    /// One that was opened and judged, for its entries.
    pub(super) fn at(fd: OwnedFd, guarded: Option<Site<'a>>) -> Self {
        Self { fd, guarded }
    }

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
        guarded::check_file_system(&fd, &path)?;
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

    /// Opens a directory below this one, to list it. An empty path is this one; one that is longer than the system takes
    /// is followed in several steps. Where links are refused, any on the way is an error.
    pub(super) fn open_below(&self, below: &Path, links: Links) -> Result<Self> {
        if let Some(site) = &self.guarded {
            let path = site.path.join(below);
            let fd =
                resolve::open(Route::guarded(&path, site.guard), Links::Follow, LISTABLE, Mode::empty())?;
            return Self::of(fd, Some(site.guard));
        }
        if below.as_os_str().len() < PATH_BYTES {
            return Ok(Self::at(open_step(&self.fd, below, links)?, None));
        }
        let names: Vec<&OsStr> = below.iter().collect();
        let (first, rest) = names.split_at(STEP_NAMES.min(names.len()));
        let first = open_step(&self.fd, &first.iter().collect::<PathBuf>(), links)?;
        let mut steps = rest.chunks(STEP_NAMES).map(|step| step.iter().collect::<PathBuf>());
        let fd = steps.try_fold(first, |directory, step| open_step(&directory, &step, links))?;
        Ok(Self::at(fd, None))
    }

    /// Opens the directory above this one, to list it.
    pub(super) fn above(&self) -> Result<Self> {
        let fd = rustix::fs::openat(&self.fd, "..", LISTABLE, Mode::empty())?;
        Self::of(fd, self.guarded.as_ref().map(|site| site.guard))
    }

    /// The names in this directory that may be seen, and their kinds, as far as the listing tells them.
    pub(super) fn names(&self) -> Result<Vec<(OsString, FileType)>> {
        self.some_names(usize::MAX).map(|(names, _)| names)
    }

    /// The same, of so many names at most. Says whether there are more.
    pub(super) fn some_names(&self, limit: usize) -> Result<(Vec<(OsString, FileType)>, bool)> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && self.shows(name) {
                if names.len() == limit {
                    return Ok((names, true));
                }
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok((names, false))
    }

    /// Where the directory really is, at this moment.
    pub(super) fn real_path(&self) -> Result<PathBuf> {
        match &self.guarded {
            Some(site) => Ok(site.path.clone()),
            None => again_if_changed(|| guarded::real_path(&self.fd)),
        }
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

fn open_step(directory: &OwnedFd, below: &Path, links: Links) -> Result<OwnedFd> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    if links == Links::Follow {
        return rustix::fs::openat(directory, below, LISTABLE, Mode::empty());
    }
    match rustix::fs::openat2(directory, below, LISTABLE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => {
            rustix::fs::openat(directory, below, LISTABLE | OFlags::NOFOLLOW, Mode::empty())
        }
        result => result,
    }
}

impl Site<'_> {
    /// The real path of an entry.
    pub(super) fn entry(&self, name: &OsStr) -> PathBuf {
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
