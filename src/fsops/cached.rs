//! Looks that never wait, not even for a disk: for callers that may not block.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, FsWord, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::metadata::info;
use super::{FileInfo, FsError};

/// File systems that answer for an inode in memory without asking anybody. What lies behind an overlay may ask, but not
/// where it is told to take what it has.
const PROMPT: [u32; 6] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0xf2f5_2010, // f2fs
    0x794c_7630, // overlay
];

/// What [`super::metadata`] says, where the kernel has all of it in memory; links may be on the way, but not be the
/// path itself. `None`: it has not, or cannot tell.
pub fn cached_metadata(path: &Path) -> Option<Result<FileInfo, FsError>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(entry) => entry,
        Err(Errno::NOENT) => return Some(Err(FsError::os("stat", path, Errno::NOENT))),
        Err(_) => return None,
    };
    if !is_prompt(&entry) {
        return None;
    }
    let at = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&entry, "", at, StatxFlags::BASIC_STATS | StatxFlags::BTIME).ok()?;
    let is_link = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Symlink;
    (!is_link).then(|| Ok(info(&stat, None)))
}

fn is_prompt(entry: impl AsFd) -> bool {
    let kind = rustix::fs::fstatfs(entry).map(|about| about.f_type);
    kind.is_ok_and(|kind| PROMPT.iter().any(|prompt| *prompt as FsWord == kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::{Links, metadata};
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_in_memory_is_the_same_as_what_is_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "12345").unwrap();
        symlink("d", root.join("link")).unwrap();
        for name in ["d", "d/f", "link/f", "d/none"] {
            let path = root.join(name);
            // This has it in memory from now on.
            let looked_up = metadata(&path, Links::Follow);
            if let Some(cached) = cached_metadata(&path) {
                assert_eq!(cached, looked_up, "{name}");
            }
        }
        for (path, why) in [(root.join("link"), "a link"), ("/proc/version".into(), "a pseudo-file")] {
            assert!(metadata(&path, Links::Follow).is_ok());
            assert_eq!(cached_metadata(&path), None, "{why}");
        }
    }
}
