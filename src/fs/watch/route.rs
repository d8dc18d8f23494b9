//! What is on the way to a path, as far as it exists.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode, StatxFlags, openat, statx};
use rustix::io::Errno;

use super::Unwatchable;

/// Components of a path that is followed.
const MAX_DEPTH: usize = 256;

/// For finding out what a name stands for, without opening that.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A path, and all that exists on the way from the root.
#[derive(Debug)]
pub(super) struct Route {
    path: PathBuf,
    steps: Vec<Identity>,
}

/// One step, open.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) at: OwnedFd,
    pub(super) kind: FileType,
    identity: Identity,
}

/// Tells a file from all others, also from itself where it is mounted a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    mount: u64,
    device: (u32, u32),
    inode: u64,
}

impl Route {
    /// Follows a path from the root as far as it exists. Each step is shown to `visit` before the next name is looked
    /// up in it; the last one, where all of the path exists, without a name.
    ///
    /// # Errors
    /// A link on the way or at the end, or what cannot be looked at.
    pub(super) fn follow(
        path: PathBuf,
        mut visit: impl FnMut(&Step, Option<&OsStr>) -> Result<(), Unwatchable>,
    ) -> Result<Self, Unwatchable> {
        let mut step = Step::open(CWD, OsStr::new("/"))?;
        let mut steps = vec![step.identity];
        for name in names(&path)? {
            visit(&step, Some(name))?;
            step = match Step::open(&step.at, name) {
                Ok(next) => next,
                // Nothing can be below what is no directory.
                Err(Unwatchable::System(Errno::NOENT | Errno::NOTDIR)) => return Ok(Self { path, steps }),
                Err(error) => return Err(error),
            };
            steps.push(step.identity);
        }
        visit(&step, None)?;
        Ok(Self { path, steps })
    }

    /// Whether the path does not lead the same way any more, or cannot be followed.
    pub(super) fn leads_elsewhere(&self) -> bool {
        !Self::follow(self.path.clone(), |_, _| Ok(())).is_ok_and(|now| now.steps == self.steps)
    }
}

impl Step {
    fn open(parent: impl AsFd, name: &OsStr) -> Result<Self, Unwatchable> {
        let at = openat(parent, name, LOOK, Mode::empty())?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let stat = statx(&at, "", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        let kind = FileType::from_raw_mode(RawMode::from(stat.stx_mode));
        if kind == FileType::Symlink {
            return Err(Unwatchable::Link);
        }
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        Ok(Self { at, kind, identity: Identity { mount: stat.stx_mnt_id, device, inode: stat.stx_ino } })
    }
}

fn names(path: &Path) -> Result<Vec<&OsStr>, Unwatchable> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let names: Vec<_> = names.take(MAX_DEPTH + 1).collect();
    if names.len() <= MAX_DEPTH { Ok(names) } else { Err(Unwatchable::TooDeep) }
}
