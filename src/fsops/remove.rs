use std::ffi::{OsStr, OsString};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::guard::Want;
use super::opened::Directory;
use super::place::Place;
use super::resolve::{self, same_file};
use super::{FsError, Links, Route};
use crate::protocol::failure::FileErrorKind;

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
pub fn remove<'a>(path: impl Into<Route<'a>>, options: RemoveOptions) -> Result<(), FsError> {
    let route = path.into();
    let path = route.path;
    let failed = |errno| FsError::os("remove", path, errno);
    if options.links == Links::Refuse && options.recursive {
        return Err(FsError::failed(format_args!(
            "cannot remove '{}': without following links only recursive:false is possible",
            path.display()
        )));
    }
    if path.parent().is_none() {
        return Err(FsError::invalid(FileErrorKind::Other, "the root directory cannot be removed"));
    }
    let place = match Place::of(route, options.links) {
        Err(Errno::NOENT) if options.force && is_hidden(route) => return Ok(()),
        result => result.map_err(failed)?,
    };
    let entry = match place.stat() {
        Err(Errno::NOENT) if options.force => return Ok(()),
        result => result.map_err(failed)?,
    };
    let removed = match resolve::kind(&entry) {
        FileType::Symlink if options.links == Links::Refuse => return Err(FsError::link_on_the_way(path)),
        FileType::Directory if options.recursive => return remove_tree(&place, path, options.force),
        FileType::Directory => place.unlink(AtFlags::REMOVEDIR),
        _ => place.unlink(AtFlags::empty()),
    };
    match removed {
        Err(Errno::NOENT) if options.force => Ok(()),
        result => result.map_err(failed),
    }
}

/// Whether the guard says that nothing is there, so that there is nothing to remove.
fn is_hidden(route: Route<'_>) -> bool {
    route.guard.is_some_and(|guard| guard.permits(route.path, None, Want::Approach) == Err(Errno::NOENT))
}

/// A directory that is being emptied: what is left in it, and who it is, to find the way back up.
struct Level {
    name: OsString,
    identity: Stat,
    left: Vec<(OsString, FileType)>,
}

/// Empties a directory and removes it. One directory is open at a time, however deep the tree is.
fn remove_tree(place: &Place<'_>, path: &Path, force: bool) -> Result<(), FsError> {
    let mut path = path.to_owned();
    let entered =
        place.check(FileType::Directory, Want::Displace).and_then(|()| enter(&place.parent, &place.name));
    let (mut current, root) = match entered {
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
fn remove_or_enter<'a>(
    current: &Directory<'a>,
    name: &OsStr,
    listed: FileType,
) -> rustix::io::Result<Option<(Directory<'a>, Level)>> {
    if listed != FileType::Directory {
        match current.unlink(name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
    match enter(current, name) {
        Ok(entered) => Ok(Some(entered)),
        Err(Errno::NOENT) => Ok(None),
        // Someone put something else there.
        Err(Errno::NOTDIR | Errno::LOOP) => current.unlink(name, AtFlags::empty()).map(|()| None),
        Err(errno) => Err(errno),
    }
}

fn enter<'a>(parent: &Directory<'a>, name: &OsStr) -> rustix::io::Result<(Directory<'a>, Level)> {
    let directory = parent.enter(name)?;
    let left = directory.names()?;
    let identity = rustix::fs::fstat(&directory)?;
    Ok((directory, Level { name: name.to_owned(), identity, left }))
}

/// Goes up to `above` (none: the place of the tree) and removes the emptied directory there.
fn leave(
    current: &mut Directory<'_>,
    place: &Place<'_>,
    above: Option<&Level>,
    name: &OsStr,
) -> rustix::io::Result<()> {
    let removed = if let Some(above) = above {
        let parent = current.above()?;
        // The directory may have been moved away from where it was entered.
        if !same_file(&rustix::fs::fstat(&parent)?, &above.identity) {
            return Err(Errno::STALE);
        }
        *current = parent;
        current.unlink(name, AtFlags::REMOVEDIR)
    } else {
        place.unlink(AtFlags::REMOVEDIR)
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
    use rustix::fs::{Mode, OFlags};
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
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            directory = rustix::fs::openat(&directory, "deep", flags, Mode::empty()).unwrap().into();
        }
        remove(&root.join("deep"), ALL).unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn strictness() {
        let (_dir, root) = room();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "x").unwrap();
        assert_eq!(remove(&root.join("d"), ONE).unwrap_err().kind(), FileErrorKind::NotEmpty);
        assert_eq!(remove(&root.join("none"), ONE).unwrap_err().class(), ErrorClass::NotFound);
        assert_eq!(remove(&root.join("d/f/x"), ALL).unwrap_err().kind(), FileErrorKind::NotDirectory);
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
        assert_eq!(error("inner/f", strict).kind(), FileErrorKind::NotDirectory);
        assert_eq!(error("real", RemoveOptions { recursive: true, ..strict }).class(), ErrorClass::Io);
        assert!(root.join("real/f").exists() && root.join("inner").is_symlink());
        remove(&root.join("real/f"), strict).unwrap();
        remove(&root.join("real"), strict).unwrap();
    }
}
