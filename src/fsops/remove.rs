use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::resolve::{self, Place, same_file};
use super::{FsError, Links};

const LISTABLE: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveOptions {
    /// The content of a directory too.
    pub recursive: bool,
    /// Accept that nothing is there.
    pub force: bool,
    /// Whether links may be on the way; the entry itself is never followed.
    pub links: Links,
}

/// Removes what a path names. Links are removed, never followed, also inside a tree.
///
/// # Errors
///
/// Nothing is there (not with `force`), a directory is not empty (not with `recursive`), a link is where none may be, or
/// the system refuses; a part of a tree may be gone then.
pub fn remove(path: &Path, options: RemoveOptions) -> Result<(), FsError> {
    let failed = |errno| FsError::os("remove", path, errno);
    if options.links == Links::Refuse && options.recursive {
        return Err(FsError::failed(format_args!(
            "cannot remove '{}': without following links only recursive:false is possible",
            path.display()
        )));
    }
    if path.parent().is_none() {
        return Err(FsError::invalid("other", "the root directory cannot be removed"));
    }
    let place = Place::of(path, options.links).map_err(failed)?;
    let entry = match place.stat() {
        Ok(entry) => entry,
        Err(Errno::NOENT) if options.force => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    };
    let removed = match resolve::kind(&entry) {
        FileType::Symlink if options.links == Links::Refuse => return Err(FsError::link_on_the_way(path)),
        FileType::Directory if options.recursive => return remove_tree(&place, path, options.force),
        FileType::Directory => unlink(&place.parent, &place.name, AtFlags::REMOVEDIR),
        _ => unlink(&place.parent, &place.name, AtFlags::empty()),
    };
    match removed {
        Err(Errno::NOENT) if options.force => Ok(()),
        result => result.map_err(failed),
    }
}

fn unlink(parent: impl AsFd, name: &OsStr, flags: AtFlags) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(parent, name, flags)
}

/// A directory that is being emptied: what is left in it, and who it is, to find the way back up.
struct Level {
    name: OsString,
    identity: Stat,
    left: Vec<(OsString, FileType)>,
}

/// Empties a directory and removes it. One directory is open at a time, however deep the tree is.
fn remove_tree(place: &Place, path: &Path, force: bool) -> Result<(), FsError> {
    let mut path = path.to_owned();
    let (mut current, root) = match enter(&place.parent, &place.name) {
        Ok(entered) => entered,
        Err(Errno::NOENT) if force => return Ok(()),
        Err(errno) => return Err(FsError::os("remove", &path, errno)),
    };
    let mut levels = vec![root];
    while let Some(level) = levels.last_mut() {
        if let Some((name, listed)) = level.left.pop() {
            let failed = |errno, path: &Path| FsError::os("remove", &path.join(&name), errno);
            match remove_or_enter(&current, &name, listed).map_err(|errno| failed(errno, &path))? {
                None => {}
                Some((below, level)) => {
                    current = below;
                    path.push(&level.name);
                    levels.push(level);
                }
            }
            continue;
        }
        let name = std::mem::take(&mut level.name);
        levels.pop();
        leave(&mut current, place, levels.last(), &name)
            .map_err(|errno| FsError::os("remove", &path, errno))?;
        path.pop();
    }
    Ok(())
}

/// Removes an entry; a directory is entered instead. What is gone already is no failure.
fn remove_or_enter(
    current: &OwnedFd,
    name: &OsStr,
    listed: FileType,
) -> rustix::io::Result<Option<(OwnedFd, Level)>> {
    if listed != FileType::Directory {
        match unlink(current, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
    match enter(current, name) {
        Ok(entered) => Ok(Some(entered)),
        Err(Errno::NOENT) => Ok(None),
        // Someone put something else there.
        Err(Errno::NOTDIR | Errno::LOOP) => unlink(current, name, AtFlags::empty()).map(|()| None),
        Err(errno) => Err(errno),
    }
}

fn enter(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<(OwnedFd, Level)> {
    let directory = rustix::fs::openat(parent, name, LISTABLE, Mode::empty())?;
    let mut left = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            left.push((name.to_owned(), entry.file_type()));
        }
    }
    let identity = rustix::fs::fstat(&directory)?;
    Ok((directory, Level { name: name.to_owned(), identity, left }))
}

/// Goes up to `above` (none: the place of the tree) and removes the emptied directory there.
fn leave(
    current: &mut OwnedFd,
    place: &Place,
    above: Option<&Level>,
    name: &OsStr,
) -> rustix::io::Result<()> {
    let removed = if let Some(above) = above {
        let parent = rustix::fs::openat(&*current, "..", LISTABLE, Mode::empty())?;
        // The directory may have been moved away from where it was entered.
        if !same_file(&rustix::fs::fstat(&parent)?, &above.identity) {
            return Err(Errno::STALE);
        }
        *current = parent;
        unlink(&*current, name, AtFlags::REMOVEDIR)
    } else {
        unlink(&place.parent, name, AtFlags::REMOVEDIR)
    };
    match removed {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    const ALL: RemoveOptions = RemoveOptions { recursive: true, force: true, links: Links::Follow };
    const ONE: RemoveOptions = RemoveOptions { recursive: false, force: false, links: Links::Follow };

    fn room() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        (dir, root)
    }

    #[test]
    fn a_tree_goes_and_what_its_links_name_stays() {
        let (_dir, root) = room();
        std::fs::create_dir_all(root.join("t/u/v")).unwrap();
        std::fs::create_dir(root.join("keep")).unwrap();
        std::fs::write(root.join("keep/k"), "k").unwrap();
        std::fs::write(root.join("t/u/f"), "x").unwrap();
        symlink(root.join("keep"), root.join("t/l")).unwrap();
        symlink("keep", root.join("link")).unwrap();
        remove(&root.join("t"), ALL).unwrap();
        remove(&root.join("t"), ALL).unwrap();
        remove(&root.join("link"), ALL).unwrap();
        let left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["keep"]);
        assert!(root.join("keep/k").exists());
    }

    #[test]
    fn a_very_deep_tree_goes() {
        let (_dir, root) = room();
        let mut directory = std::fs::File::open(&root).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&directory, "deep", 0o700.into()).unwrap();
            directory = rustix::fs::openat(&directory, "deep", LISTABLE, Mode::empty()).unwrap().into();
        }
        remove(&root.join("deep"), ALL).unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn strictness() {
        let (_dir, root) = room();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "x").unwrap();
        assert_eq!(remove(&root.join("d"), ONE).unwrap_err().kind(), "notEmpty");
        assert_eq!(remove(&root.join("none"), ONE).unwrap_err().class(), ErrorClass::NotFound);
        assert_eq!(remove(&root.join("d/f/x"), ALL).unwrap_err().kind(), "notDirectory");
        assert_eq!(remove(&root.join("none/x"), ALL).unwrap_err().class(), ErrorClass::NotFound);
        assert_eq!(remove(Path::new("/"), ALL).unwrap_err().class(), ErrorClass::InvalidInput);
        remove(&root.join("d/f"), ONE).unwrap();
        remove(&root.join("d"), ONE).unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn links_are_refused_where_asked() {
        let (_dir, root) = room();
        std::fs::create_dir(root.join("real")).unwrap();
        std::fs::write(root.join("real/f"), "x").unwrap();
        symlink("real", root.join("inner")).unwrap();
        let strict = RemoveOptions { links: Links::Refuse, ..ONE };
        let error = |name: &str, options| remove(&root.join(name), options).unwrap_err();
        assert_eq!(error("inner", strict).class(), ErrorClass::InvalidInput);
        assert_eq!(error("inner/f", strict).kind(), "notDirectory");
        assert_eq!(error("real", RemoveOptions { recursive: true, ..strict }).class(), ErrorClass::Io);
        assert!(root.join("real/f").exists() && root.join("inner").is_symlink());
        remove(&root.join("real/f"), strict).unwrap();
        remove(&root.join("real"), strict).unwrap();
    }
}
