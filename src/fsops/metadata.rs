use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use super::guard::{Guard, Look};
use super::guarded::{self, LastLink};
use super::place::Place;
use super::{FsError, Links, Route, resolve};

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// A directory.
    pub is_directory: bool,
    /// A regular file.
    pub is_file: bool,
    /// Text of the link that the path itself names; everything else is of its target.
    pub link_target: Option<OsString>,
    /// Bytes.
    pub size: u64,
    /// Unix milliseconds; 0 where unknown or earlier.
    pub created_at_ms: i64,
    /// Unix milliseconds; 0 where unknown or earlier.
    pub modified_at_ms: i64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the inode.
    pub inode: u64,
}

/// Describes what a path names.
///
/// # Errors
///
/// Nothing is there, a link is where none may be, or the system refuses.
pub fn metadata<'a>(path: impl Into<Route<'a>>, links: Links) -> Result<FileInfo, FsError> {
    let route = path.into();
    let failed = |errno| FsError::os("stat", route.path, errno);
    match (links, route.guard) {
        (Links::Follow, None) => {
            let link_target = rustix::fs::readlink(route.path, Vec::new()).ok().map(text);
            let stat = rustix::fs::statx(CWD, route.path, AtFlags::empty(), WANTED).map_err(failed)?;
            Ok(info(&stat, link_target))
        }
        (Links::Follow, Some(guard)) => {
            let link_target = Place::of(route, links).and_then(|place| place.link_text()).ok().map(text);
            let spot = guarded::follow(guard, route.path, LastLink::Follow).map_err(failed)?;
            let entry = spot.object.ok_or(Errno::NOENT).map_err(failed)?;
            let info = look(guard, &entry, &spot.names).map_err(failed)?;
            Ok(FileInfo { link_target, ..info })
        }
        (Links::Refuse, guard) => {
            let place = Place::of(route, links).map_err(failed)?;
            let entry = place.open(OFlags::PATH, Mode::empty()).map_err(failed)?;
            let stat = rustix::fs::fstat(&entry).map_err(failed)?;
            if resolve::kind(&stat) == FileType::Symlink {
                return Err(FsError::link_on_the_way(route.path));
            }
            match guard {
                Some(guard) => look(guard, &entry, &[route.path.to_owned()]).map_err(failed),
                None => describe(&entry).map_err(failed),
            }
        }
    }
}

fn text(target: CString) -> OsString {
    OsString::from_vec(target.into_bytes())
}

fn describe(entry: &OwnedFd) -> rustix::io::Result<FileInfo> {
    rustix::fs::statx(entry, "", AtFlags::EMPTY_PATH, WANTED).map(|stat| info(&stat, None))
}

/// What a guard lets be seen of an entry.
fn look(guard: &dyn Guard, entry: &OwnedFd, names: &[PathBuf]) -> rustix::io::Result<FileInfo> {
    let kind = resolve::kind(&rustix::fs::fstat(entry)?);
    let is_denied = kind != FileType::Directory && names.iter().any(|name| guard.denies_name(name));
    match guard.look(&guarded::real_path(entry)?, kind)? {
        Look::Plain if !is_denied => describe(entry),
        Look::Plain => Ok(FileInfo::bare(kind, 0)),
        Look::Bare(mode) => Ok(FileInfo::bare(kind, mode)),
    }
}

impl FileInfo {
    fn bare(kind: FileType, mode: u32) -> Self {
        Self {
            is_directory: kind == FileType::Directory,
            is_file: kind == FileType::RegularFile,
            link_target: None,
            size: 0,
            created_at_ms: 0,
            modified_at_ms: 0,
            mode: kind.as_raw_mode() | mode,
            uid: 0,
            gid: 0,
            inode: 0,
        }
    }
}

pub(super) fn info(stat: &Statx, link_target: Option<OsString>) -> FileInfo {
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    let known = StatxFlags::from_bits_retain(stat.stx_mask);
    FileInfo {
        is_directory: kind == FileType::Directory,
        is_file: kind == FileType::RegularFile,
        link_target,
        size: stat.stx_size,
        created_at_ms: if known.contains(StatxFlags::BTIME) { milliseconds(&stat.stx_btime) } else { 0 },
        modified_at_ms: milliseconds(&stat.stx_mtime),
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        inode: stat.stx_ino,
    }
}

fn milliseconds(time: &StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1000).saturating_add(i64::from(time.tv_nsec / 1_000_000)).max(0)
}

/// The path without links; every component must exist.
///
/// # Errors
///
/// A component does not exist, or the system refuses.
pub fn canonicalize<'a>(path: impl Into<Route<'a>>) -> Result<PathBuf, FsError> {
    let route = path.into();
    let Some(guard) = route.guard else {
        return std::fs::canonicalize(route.path).map_err(|error| FsError::io("resolve", route.path, &error));
    };
    let real = || {
        let entry = guarded::follow(guard, route.path, LastLink::Follow)?.object.ok_or(Errno::NOENT)?;
        let real = guarded::real_path(&entry)?;
        guard.look(&real, resolve::kind(&rustix::fs::fstat(&entry)?))?;
        Ok(real)
    };
    real().map_err(|errno| FsError::os("resolve", route.path, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_link_is_described_by_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("f"), "12345").unwrap();
        std::fs::set_permissions(root.join("f"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let file = std::fs::File::options().write(true).open(root.join("f")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(1_600_000_000_123_456_789)).unwrap();
        symlink("f", root.join("l")).unwrap();
        let info = metadata(&root.join("l"), Links::Follow).unwrap();
        assert!(info.is_file && !info.is_directory);
        assert_eq!((info.size, info.modified_at_ms, info.mode & 0o7777), (5, 1_600_000_000_123, 0o640));
        assert_eq!(info.link_target.unwrap(), "f");
        let std = file.metadata().unwrap();
        assert_eq!((info.inode, info.uid, info.gid), (std.ino(), std.uid(), std.gid()));
        let direct = metadata(&root.join("f"), Links::Refuse).unwrap();
        assert_eq!(direct.created_at_ms, info.created_at_ms);
        assert_eq!(direct.link_target, None);
        let error = metadata(&root.join("l"), Links::Refuse).unwrap_err();
        assert_eq!(error.class(), ErrorClass::InvalidInput);
        assert!(error.to_string().ends_with("path contains a symbolic link"));
    }

    #[test]
    fn times_before_1970_are_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("f")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH - Duration::from_secs(9)).unwrap();
        assert_eq!(metadata(&dir.path().join("f"), Links::Follow).unwrap().modified_at_ms, 0);
    }

    #[test]
    fn every_component_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink(".", root.join("here")).unwrap();
        assert_eq!(canonicalize(&root.join("here")).unwrap(), root);
        assert_eq!(canonicalize(&root.join("dangling")).unwrap_err().class(), ErrorClass::NotFound);
        assert_eq!(
            metadata(&root.join("dangling"), Links::Follow).unwrap_err().class(),
            ErrorClass::NotFound
        );
    }
}
