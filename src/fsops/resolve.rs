//! From a path to a descriptor, with or without links on the way.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

use super::Links;
use super::guard::{Guard, Route};
use super::guarded::{self, LastLink, again_if_changed};
use super::place::Place;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What every open adds: never wait for another party, never become a controlling terminal.
pub(super) const NEVER_WAIT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a file without ever waiting. A link as the last component is ELOOP where links are refused, one before it
/// ENOTDIR.
pub(super) fn open(route: Route<'_>, links: Links, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    match (links, route.guard) {
        (Links::Refuse, _) => Place::of(route, links)?.open(flags, mode),
        (Links::Follow, None) => rustix::fs::open(route.path, flags | NEVER_WAIT, mode),
        (Links::Follow, Some(guard)) => again_if_changed(|| open_guarded(guard, route.path, flags, mode)),
    }
}

/// Finds what a path leads to, without opening it for anything.
pub(super) fn find(route: Route<'_>) -> Result<OwnedFd> {
    match route.guard {
        None => rustix::fs::open(route.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
        Some(guard) => guarded::follow(guard, route.path, LastLink::Follow)?.object.ok_or(Errno::NOENT),
    }
}

fn open_guarded(guard: &dyn Guard, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let spot = guarded::follow(guard, path, LastLink::Follow)?;
    if let Some(entry) = &spot.object {
        return guarded::reopen(guard, entry, &spot.names, flags);
    }
    if !flags.contains(OFlags::CREATE) {
        return Err(Errno::NOENT);
    }
    match Place::at(guard, spot).open(flags | OFlags::EXCL, mode) {
        // Someone else was faster.
        Err(Errno::EXIST) => Err(Errno::STALE),
        result => result,
    }
}

/// Opens a directory for paths below it; a link anywhere is ENOTDIR.
pub(super) fn open_directory_without_links(path: &Path) -> Result<OwnedFd> {
    match rustix::fs::openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => Err(Errno::NOTDIR),
        // Kernels and sandboxes that do not have the call.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(path),
        result => result,
    }
}

fn step_by_step(path: &Path) -> Result<OwnedFd> {
    let mut directory = rustix::fs::open("/", DIRECTORY, Mode::empty())?;
    for component in path.components() {
        if let Component::Normal(name) = component {
            directory = open_subdirectory(&directory, name)?;
        }
    }
    Ok(directory)
}

/// Opens a directory in a directory for paths below it; a link is ENOTDIR.
pub(super) fn open_subdirectory(parent: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// The entry that a path names after its final links: those of the last component are read here, the kernel follows
/// the others.
pub(super) fn follow_final_links(route: Route<'_>) -> Result<Place<'_>> {
    if let Some(guard) = route.guard {
        return guarded::follow(guard, route.path, LastLink::Follow).map(|spot| Place::at(guard, spot));
    }
    let mut place = Place::of(route, Links::Follow)?;
    for _ in 0..40 {
        let target = match rustix::fs::readlinkat(&place.parent, &place.name, Vec::new()) {
            Ok(target) => target,
            Err(Errno::INVAL) => return Ok(place),
            Err(errno) => return Err(errno),
        };
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        let (Some(directory), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Errno::ISDIR);
        };
        if directory.as_os_str().is_empty() {
            place.name = name.to_owned();
        } else {
            let parent = rustix::fs::openat(&place.parent, directory, DIRECTORY, Mode::empty())?;
            place = Place::unguarded(parent, name.to_owned());
        }
    }
    Err(Errno::LOOP)
}

/// Gives an entry another name, unless that is taken: EEXIST.
pub(super) fn rename_to_new(from: (impl AsFd, &OsStr), to: (impl AsFd, &OsStr)) -> Result<()> {
    match rustix::fs::renameat_with(&from.0, from.1, &to.0, to.1, RenameFlags::NOREPLACE) {
        Err(errno @ (Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => link_to_new(from, to, errno),
        result => result,
    }
}

/// The same for file systems that cannot rename without replacing. A directory cannot be linked: that is `otherwise`.
fn link_to_new(from: (impl AsFd, &OsStr), to: (impl AsFd, &OsStr), otherwise: Errno) -> Result<()> {
    match rustix::fs::linkat(&from.0, from.1, &to.0, to.1, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(&from.0, from.1, AtFlags::empty()),
        Err(errno @ (Errno::EXIST | Errno::NOENT)) => Err(errno),
        Err(_) => Err(otherwise),
    }
}

/// Whether two descriptions are of the same file.
pub(super) fn same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// The kind of file that a description is of.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_told_apart_by_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::fs::write(root.join("real/f"), "x").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("f", root.join("real/last")).unwrap();
        let refusing =
            |name: &str| open(Route::from(&root.join(name)), Links::Refuse, OFlags::RDONLY, Mode::empty());
        assert!(refusing("real/f").is_ok());
        assert_eq!(refusing("link/f").unwrap_err(), Errno::NOTDIR);
        assert_eq!(refusing("real/last").unwrap_err(), Errno::LOOP);
        assert_eq!(refusing("none/f").unwrap_err(), Errno::NOENT);
        assert!(step_by_step(&root.join("real")).is_ok());
        assert_eq!(step_by_step(&root.join("link")).unwrap_err(), Errno::NOTDIR);
        assert!(open(Route::from("/"), Links::Refuse, OFlags::RDONLY, Mode::empty()).is_ok());
    }

    #[test]
    fn final_links_lead_to_the_entry_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("d")).unwrap();
        symlink("d/second", root.join("first")).unwrap();
        symlink("../made", root.join("d/second")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        assert_eq!(follow_final_links(Route::from(&root.join("loop"))).unwrap_err(), Errno::LOOP);
        assert_eq!(follow_final_links(Route::from(&root.join("first"))).unwrap_err(), Errno::NOENT);
        std::fs::write(root.join("made"), "x").unwrap();
        assert_eq!(follow_final_links(Route::from(&root.join("first"))).unwrap().name, "made");
    }

    #[test]
    fn a_new_name_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(dir.path()).unwrap();
        let at = |name: &'static str| (&root, OsStr::new(name));
        for link in [false, true] {
            let to_new = |from, to| match link {
                false => rename_to_new(from, to),
                true => link_to_new(from, to, Errno::INVAL),
            };
            std::fs::write(dir.path().join("a"), "a").unwrap();
            std::fs::create_dir_all(dir.path().join("d")).unwrap();
            to_new(at("a"), at("b")).unwrap();
            std::fs::write(dir.path().join("a"), "a").unwrap();
            assert_eq!(to_new(at("a"), at("b")), Err(Errno::EXIST));
            assert_eq!(to_new(at("none"), at("c")), Err(Errno::NOENT));
            assert_eq!(to_new(at("d"), at("d/e")), Err(Errno::INVAL));
            std::fs::remove_file(dir.path().join("b")).unwrap();
        }
    }
}
