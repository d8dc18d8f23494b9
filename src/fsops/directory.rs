use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;

use super::opened::Directory;
use super::place::Place;
use super::resolve::{self, open_subdirectory};
use super::{FsError, Links, Route};

/// What the umask leaves of this is the mode of a new directory.
const NEW: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The exact name.
    pub name: OsString,
    /// A directory, or a link to one.
    pub is_directory: bool,
    /// A regular file, or a link to one.
    pub is_file: bool,
    /// Text of the link that it is, where links were asked for.
    pub link_target: Option<OsString>,
}

/// Creates a directory. With `recursive`, its parents too, and it may exist.
///
/// # Errors
///
/// Something else is there, the parent is missing (not with `recursive`), a link is where none may be, or the system
/// refuses.
pub fn create_directory<'a>(
    path: impl Into<Route<'a>>,
    recursive: bool,
    links: Links,
) -> Result<(), FsError> {
    let route = path.into();
    let created = match (links, recursive, route.guard) {
        (Links::Follow, true, None) => {
            return std::fs::create_dir_all(route.path)
                .map_err(|error| FsError::io("create directory", route.path, &error));
        }
        (Links::Refuse, true, None) => create_all_without_links(route.path, NEW),
        (_, true, Some(_)) => create_all(route, links),
        (Links::Follow, false, None) => rustix::fs::mkdirat(CWD, route.path, NEW),
        (_, false, _) => create_one(route, links),
    };
    created.map_err(|errno| FsError::os("create directory", route.path, errno))
}

fn create_one(route: Route<'_>, links: Links) -> rustix::io::Result<()> {
    let place = Place::of(route, links)?;
    place.parent.make_directory(&place.name, NEW)
}

/// Creates what is missing, the topmost first. A directory that is there already is as good, whoever may write there.
fn create_all(route: Route<'_>, links: Links) -> rustix::io::Result<()> {
    let created = match (create_one(route, links), route.path.parent()) {
        (Err(Errno::NOENT), Some(parent)) => {
            create_all(Route { path: parent, ..route }, links)?;
            create_one(route, links)
        }
        (result, _) => result,
    };
    match created {
        Err(errno) if !is_directory(route, links) => Err(errno),
        _ => Ok(()),
    }
}

fn is_directory(route: Route<'_>, links: Links) -> bool {
    let stat = Place::of(route, links).and_then(|place| match links {
        Links::Follow => place.parent.target_stat(&place.name),
        Links::Refuse => place.stat(),
    });
    stat.is_ok_and(|stat| resolve::kind(&stat) == FileType::Directory)
}

fn create_all_without_links(path: &Path, mode: Mode) -> rustix::io::Result<()> {
    let mut directory = resolve::open_directory_without_links(Path::new("/"))?;
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut next = names.next();
    while let Some(name) = next {
        next = names.next();
        directory = match open_subdirectory(&directory, name) {
            Err(Errno::NOENT) => create_and_open(&directory, name, mode)?,
            // The last one is there, and is none.
            Err(Errno::NOTDIR) if next.is_none() => return Err(Errno::EXIST),
            result => result?,
        };
    }
    Ok(())
}

fn create_and_open(parent: impl AsFd, name: &OsStr, mode: Mode) -> rustix::io::Result<std::os::fd::OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, mode) {
        // Someone else was faster.
        Ok(()) | Err(Errno::EXIST) => open_subdirectory(&parent, name),
        Err(errno) => Err(errno),
    }
}

/// Lists a directory, in no order. Links that lead nowhere are left out, unless `links` are asked for.
///
/// # Errors
///
/// The path names no directory, or the system refuses.
pub fn read_directory<'a>(path: impl Into<Route<'a>>, links: bool) -> Result<Vec<Entry>, FsError> {
    let route = path.into();
    let failed = |errno| FsError::os("list", route.path, errno);
    let directory = Directory::open(route).map_err(failed)?;
    let names = directory.names().map_err(failed)?;
    Ok(names.into_iter().filter_map(|(name, listed)| describe(&directory, name, listed, links)).collect())
}

/// Which directory a path names, and some of what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Device and inode: the same for every path that leads to this directory.
    pub identity: (u64, u64),
    /// The path without links.
    pub real_path: PathBuf,
    /// Links that lead nowhere included, sorted by the bytes of the names.
    pub entries: Vec<Entry>,
    /// There are more entries than were asked for.
    pub is_cut: bool,
}

/// Lists a directory, up to a number of entries. Which ones these are is the file system's choice.
///
/// # Errors
///
/// The path names no directory, or the system refuses.
pub fn list_some<'a>(path: impl Into<Route<'a>>, limit: usize) -> Result<Listing, FsError> {
    let route = path.into();
    let failed = |errno| FsError::os("list", route.path, errno);
    let directory = Directory::open(route).map_err(failed)?;
    let stat = rustix::fs::fstat(&directory).map_err(failed)?;
    let (names, is_cut) = directory.some_names(limit).map_err(failed)?;
    let described = names.into_iter().filter_map(|(name, listed)| describe(&directory, name, listed, true));
    let mut entries: Vec<Entry> = described.collect();
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let real_path = directory.real_path().map_err(failed)?;
    Ok(Listing { identity: (stat.st_dev, stat.st_ino), real_path, entries, is_cut })
}

/// An entry and what it leads to. One that leads nowhere is nothing, unless `links` are asked for and it is one.
fn describe(directory: &Directory<'_>, name: OsString, listed: FileType, links: bool) -> Option<Entry> {
    let link_target = if links { link_text(directory, &name, listed) } else { None };
    let kind = target_kind(directory, &name, listed);
    let (is_directory, is_file) = (kind == Some(FileType::Directory), kind == Some(FileType::RegularFile));
    (kind.is_some() || link_target.is_some()).then_some(Entry { name, is_directory, is_file, link_target })
}

/// The text of an entry that is a link.
fn link_text(directory: &Directory<'_>, name: &OsStr, listed: FileType) -> Option<OsString> {
    match listed {
        FileType::Unknown | FileType::Symlink => {
            let text = directory.link_text(name).ok()?;
            Some(OsString::from_vec(text.into_bytes()))
        }
        _ => None,
    }
}

/// What an entry leads to; nothing if it leads nowhere. Most listings know the kind already.
fn target_kind(directory: &Directory<'_>, name: &OsStr, listed: FileType) -> Option<FileType> {
    match listed {
        FileType::Unknown | FileType::Symlink => {
            directory.target_stat(name).ok().map(|stat| resolve::kind(&stat))
        }
        known => Some(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use crate::protocol::failure::FileErrorKind;
    use std::collections::BTreeMap;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use test_case::test_matrix;

    #[test_matrix([Links::Follow, Links::Refuse])]
    fn creating_is_lenient_only_when_recursive(links: Links) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let create = |name: &str, recursive| create_directory(&root.join(name), recursive, links);
        create("a/b/c", true).unwrap();
        create("a/b/c", true).unwrap();
        assert!(root.join("a/b/c").is_dir());
        assert_eq!(create("a", false).unwrap_err().kind(), FileErrorKind::AlreadyExists);
        assert_eq!(create("x/y", false).unwrap_err().class(), ErrorClass::NotFound);
        create("x", false).unwrap();
        std::fs::write(root.join("f"), "").unwrap();
        assert_eq!(create("f", true).unwrap_err().kind(), FileErrorKind::AlreadyExists);
        assert_eq!(create("f/below", true).unwrap_err().kind(), FileErrorKind::NotDirectory);
        create_directory(Path::new("/"), true, links).unwrap();
    }

    #[test]
    fn links_are_refused_where_asked() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("link")).unwrap();
        for (name, kind) in
            [("link/new", FileErrorKind::NotDirectory), ("link", FileErrorKind::AlreadyExists)]
        {
            for recursive in [true, false] {
                let error = create_directory(&root.join(name), recursive, Links::Refuse).unwrap_err();
                assert_eq!((error.class(), error.kind()), (ErrorClass::Io, kind), "{name} {recursive}");
            }
        }
        assert!(read_directory(&root.join("real"), false).unwrap().is_empty());
        create_directory(&root.join("link/new"), false, Links::Follow).unwrap();
        assert!(root.join("real/new").is_dir());
    }

    #[test]
    fn entries_have_exact_names_and_the_kind_of_their_target() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let raw = OsStr::from_bytes(b"\xff\n");
        std::fs::write(root.join(raw), "x").unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        for (target, link) in [(raw, "lf"), ("d".as_ref(), "ld"), ("nowhere".as_ref(), "dangling")] {
            symlink(target, root.join(link)).unwrap();
        }
        let mut entries = read_directory(root, false).unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let found: Vec<_> = entries.iter().map(|e| (e.name.as_os_str(), e.is_directory, e.is_file)).collect();
        let expected = [
            ("d".as_ref(), true, false),
            ("ld".as_ref(), true, false),
            ("lf".as_ref(), false, true),
            (raw, false, true),
        ];
        assert_eq!(found, expected);
        let linked = read_directory(root, true).unwrap();
        let texts = linked.iter().filter_map(|e| Some((e.name.to_str()?, e.link_target.as_deref()?)));
        let expected = [("dangling", "nowhere".as_ref()), ("ld", "d".as_ref()), ("lf", raw)];
        assert_eq!(texts.collect::<BTreeMap<_, &OsStr>>(), BTreeMap::from(expected));
        assert_eq!(linked.len(), 5);
        linked_and_cut(root, &linked);
        assert_eq!(read_directory(&root.join(raw), false).unwrap_err().kind(), FileErrorKind::NotDirectory);
    }

    /// Lists the same with and without a limit.
    fn linked_and_cut(root: &Path, all: &[Entry]) {
        let whole = list_some(root, 5).unwrap();
        let names = |entries: &[Entry]| entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
        let mut sorted = names(all);
        sorted.sort();
        assert_eq!((names(&whole.entries), whole.is_cut), (sorted, false));
        let part = list_some(root, 4).unwrap();
        assert_eq!((part.entries.len(), part.is_cut), (4, true));
        let (by_link, real) =
            (list_some(&root.join("ld"), 0).unwrap(), list_some(&root.join("d"), 0).unwrap());
        assert_eq!(by_link, real);
        assert_eq!(real.real_path, root.canonicalize().unwrap().join("d"));
    }
}
