use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::resolve::{self, Place, open_subdirectory};
use super::{FsError, Links};

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
pub fn create_directory(path: &Path, recursive: bool, links: Links) -> Result<(), FsError> {
    let mode = Mode::from_raw_mode(0o777);
    let created = match (links, recursive) {
        (Links::Follow, true) => {
            return std::fs::create_dir_all(path)
                .map_err(|error| FsError::io("create directory", path, &error));
        }
        (Links::Follow, false) => rustix::fs::mkdirat(CWD, path, mode),
        (Links::Refuse, true) => create_all_without_links(path, mode),
        (Links::Refuse, false) => {
            Place::of(path, links).and_then(|place| rustix::fs::mkdirat(&place.parent, &place.name, mode))
        }
    };
    created.map_err(|errno| FsError::os("create directory", path, errno))
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
pub fn read_directory(path: &Path, links: bool) -> Result<Vec<Entry>, FsError> {
    let failed = |errno| FsError::os("list", path, errno);
    let directory = resolve::open(path, Links::Follow, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .map_err(failed)?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let link_target = if links { link_text(&directory, name, entry.file_type()) } else { None };
        let kind = target_kind(&directory, name, entry.file_type());
        if kind.is_some() || link_target.is_some() {
            let (is_directory, is_file) =
                (kind == Some(FileType::Directory), kind == Some(FileType::RegularFile));
            entries.push(Entry { name: name.to_owned(), is_directory, is_file, link_target });
        }
    }
    Ok(entries)
}

/// The text of an entry that is a link.
fn link_text(directory: impl AsFd, name: &OsStr, listed: FileType) -> Option<OsString> {
    match listed {
        FileType::Unknown | FileType::Symlink => {
            let text = rustix::fs::readlinkat(directory, name, Vec::new()).ok()?;
            Some(OsString::from_vec(text.into_bytes()))
        }
        _ => None,
    }
}

/// What an entry leads to; nothing if it leads nowhere. Most listings know the kind already.
pub(super) fn target_kind(directory: impl AsFd, name: &OsStr, listed: FileType) -> Option<FileType> {
    match listed {
        FileType::Unknown | FileType::Symlink => {
            let stat = rustix::fs::statat(directory, name, AtFlags::empty()).ok()?;
            Some(resolve::kind(&stat))
        }
        known => Some(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::collections::BTreeMap;
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
        assert_eq!(create("a", false).unwrap_err().kind(), "alreadyExists");
        assert_eq!(create("x/y", false).unwrap_err().class(), ErrorClass::NotFound);
        create("x", false).unwrap();
        std::fs::write(root.join("f"), "").unwrap();
        assert_eq!(create("f", true).unwrap_err().kind(), "alreadyExists");
        assert_eq!(create("f/below", true).unwrap_err().kind(), "notDirectory");
        create_directory(Path::new("/"), true, links).unwrap();
    }

    #[test]
    fn links_are_refused_where_asked() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("link")).unwrap();
        for (name, kind) in [("link/new", "notDirectory"), ("link", "alreadyExists")] {
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
        assert_eq!(read_directory(&root.join(raw), false).unwrap_err().kind(), "notDirectory");
    }
}
