use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;

use super::guard::{Guard, Want};
use super::guarded::{self, LastLink};
use super::opened::Directory;
use super::place::Place;
use super::resolve::{self, rename_to_new};
use super::{FsError, Links, Route};
use crate::protocol::failure::FileErrorKind;

/// Gives a path another name, atomically; a link itself is moved. Without `replace` an existing destination stays.
///
/// # Errors
///
/// The destination exists, is on another file system, or the system refuses.
pub fn rename<'a>(
    source: impl Into<Route<'a>>,
    destination: impl Into<Route<'a>>,
    replace: bool,
) -> Result<(), FsError> {
    let (source, destination) = (source.into(), destination.into());
    let from = Place::of(source, Links::Follow).map_err(|errno| FsError::os("rename", source.path, errno))?;
    let failed =
        |errno| FsError::os(&format!("rename '{}' to", source.path.display()), destination.path, errno);
    let to = Place::of(destination, Links::Follow).map_err(failed)?;
    check_move(&from, &to, source.path, replace)?;
    let renamed = if replace {
        rustix::fs::renameat(&from.parent, &from.name, &to.parent, &to.name)
    } else {
        rename_to_new((&from.parent, &from.name), (&to.parent, &to.name))
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::XDEV) => Err(FsError::invalid(
            FileErrorKind::Other,
            format_args!(
                "cannot rename '{}' to '{}': they are on different file systems; copy and remove instead",
                source.path.display(),
                destination.path.display()
            ),
        )),
        // Of the two names the source is the one that is missing here.
        Err(Errno::NOENT) => Err(FsError::os("rename", source.path, Errno::NOENT)),
        Err(errno) => Err(failed(errno)),
    }
}

/// Asks the guards of both ends, if there are any.
fn check_move(from: &Place<'_>, to: &Place<'_>, source: &Path, replace: bool) -> Result<(), FsError> {
    let Some((guard, old)) = from.guarded_path() else { return Ok(()) };
    let failed = |errno| FsError::os("rename", source, errno);
    let kind = resolve::kind(&from.stat().map_err(failed)?);
    from.check(kind, Want::Displace).map_err(failed)?;
    let Some((_, new)) = to.guarded_path() else { return Ok(()) };
    match to.stat() {
        Ok(_) if !replace => return Err(failed(Errno::EXIST)),
        Ok(there) => to.check(resolve::kind(&there), Want::Displace).map_err(failed)?,
        Err(_) => {}
    }
    to.check(kind, Want::Write).map_err(failed)?;
    to.check(kind, Want::Displace).map_err(failed)?;
    if kind == FileType::Directory && guard.denies_names() {
        let directory = from.parent.enter(&from.name).map_err(failed)?;
        check_tree(guard, &directory, &old, &new, source)?;
    }
    Ok(())
}

/// The most names that are looked at before a directory is renamed under a guard that denies names.
const MAX_NAMES: usize = 100_000;

/// Whether a file of a tree would get out of what denies it if the tree moved.
fn check_tree(
    guard: &dyn Guard,
    directory: &Directory<'_>,
    old: &Path,
    new: &Path,
    source: &Path,
) -> Result<(), FsError> {
    let failed = |errno| FsError::os("rename", source, errno);
    let mut pending = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(below) = pending.pop() {
        let names = directory
            .open_below(&below, Links::Refuse)
            .and_then(|directory| directory.names())
            .map_err(failed)?;
        seen += names.len();
        if seen > MAX_NAMES {
            let message = format!(
                "cannot rename '{}': it holds more than {MAX_NAMES} names, too many to look for files that a deny \
                 glob names; rename its parts",
                source.display()
            );
            return Err(FsError::invalid(FileErrorKind::Limit, message));
        }
        for (name, kind) in names {
            let below = below.join(name);
            if kind == FileType::Directory {
                pending.push(below);
            } else if guard.would_expose(&old.join(&below), &new.join(&below)) {
                return Err(failed(Errno::BUSY));
            }
        }
    }
    Ok(())
}

/// Sets the permission bits; a final link is followed.
///
/// # Errors
///
/// Nothing is there, or the system refuses.
pub fn set_permissions<'a>(path: impl Into<Route<'a>>, mode: u32) -> Result<(), FsError> {
    let route = path.into();
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let set = match route.guard {
        None => rustix::fs::chmodat(CWD, route.path, mode, AtFlags::empty()),
        Some(guard) => set_guarded(guard, route.path, mode),
    };
    set.map_err(|errno| FsError::os("set permissions of", route.path, errno))
}

fn set_guarded(guard: &dyn Guard, path: &Path, mode: Mode) -> rustix::io::Result<()> {
    let spot = guarded::follow(guard, path, LastLink::Follow)?;
    let entry = spot.object.ok_or(Errno::NOENT)?;
    let kind = resolve::kind(&rustix::fs::fstat(&entry)?);
    guarded::check(guard, &entry, &spot.names, kind, Want::Write)?;
    // A device that may be written to is the machine's all the same.
    if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        return Err(Errno::PERM);
    }
    rustix::fs::chmodat(CWD, guarded::link_to(&entry), mode, AtFlags::empty())
}

/// Creates a symbolic link with exactly the text `target`.
///
/// # Errors
///
/// The text is empty or contains NUL, something is there, or the system refuses.
pub fn create_symlink<'a>(path: impl Into<Route<'a>>, target: &str) -> Result<(), FsError> {
    let route = path.into();
    if target.is_empty() || target.contains('\0') {
        return Err(FsError::invalid(
            FileErrorKind::Other,
            "the target of a link can neither be empty nor contain NUL",
        ));
    }
    Place::of(route, Links::Follow)
        .and_then(|place| place.parent.make_link(&place.name, target))
        .map_err(|errno| FsError::os("create link", route.path, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn renaming_replaces_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), "a").unwrap();
        std::fs::write(at("b"), "b").unwrap();
        let error = rename(&at("a"), &at("b"), false).unwrap_err();
        assert_eq!((error.class(), error.kind()), (ErrorClass::Io, FileErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(at("b")).unwrap(), b"b");
        rename(&at("a"), &at("b"), true).unwrap();
        assert_eq!(std::fs::read(at("b")).unwrap(), b"a");
        create_symlink(&at("l"), "b").unwrap();
        rename(&at("l"), &at("m"), false).unwrap();
        assert!(at("m").is_symlink() && !at("l").is_symlink());
        assert_eq!(rename(&at("none"), &at("x"), false).unwrap_err().class(), ErrorClass::NotFound);
        let elsewhere = rename(&at("b"), Path::new("/proc/b"), false).unwrap_err();
        assert_eq!(elsewhere.class(), ErrorClass::InvalidInput);
        assert!(elsewhere.to_string().contains("file systems"), "{elsewhere}");
    }

    #[test]
    fn permissions_are_those_of_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("f"), "").unwrap();
        create_symlink(&at("l"), "f").unwrap();
        set_permissions(&at("l"), 0o1604).unwrap();
        assert_eq!(at("f").metadata().unwrap().permissions().mode() & 0o7777, 0o1604);
        assert_eq!(set_permissions(&at("none"), 0).unwrap_err().class(), ErrorClass::NotFound);
    }

    #[test]
    fn a_link_has_the_text_that_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        create_symlink(&at("l"), "../x//y/").unwrap();
        assert_eq!(std::fs::read_link(at("l")).unwrap().as_os_str(), "../x//y/");
        assert_eq!(create_symlink(&at("l"), "x").unwrap_err().kind(), FileErrorKind::AlreadyExists);
        for bad in ["", "a\0b"] {
            assert_eq!(create_symlink(&at("m"), bad).unwrap_err().class(), ErrorClass::InvalidInput);
        }
    }
}
