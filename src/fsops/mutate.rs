use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;

use super::resolve::{Place, rename_to_new};
use super::{FsError, Links};

/// Gives a path another name, atomically; a link itself is moved. Without `replace` an existing destination stays.
///
/// # Errors
///
/// The destination exists, is on another file system, or the system refuses.
pub fn rename(source: &Path, destination: &Path, replace: bool) -> Result<(), FsError> {
    let from = Place::of(source, Links::Follow).map_err(|errno| FsError::os("rename", source, errno))?;
    let failed = |errno| FsError::os(&format!("rename '{}' to", source.display()), destination, errno);
    let to = Place::of(destination, Links::Follow).map_err(failed)?;
    let renamed = if replace {
        rustix::fs::renameat(&from.parent, &from.name, &to.parent, &to.name)
    } else {
        rename_to_new((&from.parent, &from.name), (&to.parent, &to.name))
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::XDEV) => Err(FsError::invalid(
            "other",
            format_args!(
                "cannot rename '{}' to '{}': they are on different file systems; copy and remove instead",
                source.display(),
                destination.display()
            ),
        )),
        // Of the two names the source is the one that is missing here.
        Err(Errno::NOENT) => Err(FsError::os("rename", source, Errno::NOENT)),
        Err(errno) => Err(failed(errno)),
    }
}

/// Sets the permission bits; a final link is followed.
///
/// # Errors
///
/// Nothing is there, or the system refuses.
pub fn set_permissions(path: &Path, mode: u32) -> Result<(), FsError> {
    rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        .map_err(|errno| FsError::os("set permissions of", path, errno))
}

/// Creates a symbolic link with exactly the text `target`.
///
/// # Errors
///
/// The text is empty or contains NUL, something is there, or the system refuses.
pub fn create_symlink(path: &Path, target: &str) -> Result<(), FsError> {
    if target.is_empty() || target.contains('\0') {
        return Err(FsError::invalid("other", "the target of a link can neither be empty nor contain NUL"));
    }
    Place::of(path, Links::Follow)
        .and_then(|place| rustix::fs::symlinkat(target, &place.parent, &place.name))
        .map_err(|errno| FsError::os("create link", path, errno))
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
        assert_eq!((error.class(), error.kind()), (ErrorClass::Io, "alreadyExists"));
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
        assert_eq!(create_symlink(&at("l"), "x").unwrap_err().kind(), "alreadyExists");
        for bad in ["", "a\0b"] {
            assert_eq!(create_symlink(&at("m"), bad).unwrap_err().class(), ErrorClass::InvalidInput);
        }
    }
}
