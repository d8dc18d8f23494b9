//! A `/dev` that holds nothing of the machine but what is harmless.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, mkdirat};
use rustix::io::{Errno, Result};
use rustix::termios::ttyname;

use super::mounts::{self, NO_EXEC, NO_PRIVILEGES, NO_SET_UID};
use super::view;
use crate::sandbox::plan::{RawPath, Skeleton};

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const CONSOLE: &str = "console";
const LINKS: [(&str, &str); 6] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
    ("ptmx", "pts/ptmx"),
];

fn raw(path: &str) -> RawPath {
    PathBuf::from(path).into()
}

pub(super) fn skeleton() -> Skeleton {
    Skeleton {
        directories: ["pts", "shm"].map(raw).to_vec(),
        files: DEVICES.map(raw).to_vec(),
        links: LINKS.iter().map(|(path, target)| (raw(path), raw(target))).collect(),
    }
}

/// Puts the devices in their places. A terminal is known as the console: its own name is of another `/dev/pts`.
pub(super) fn fill(
    top: BorrowedFd<'_>,
    host: BorrowedFd<'_>,
    console: Option<BorrowedFd<'_>>,
    shared_memory: &Skeleton,
) -> Result<()> {
    for device in DEVICES {
        match mounts::find(host, Path::new(&format!("dev/{device}"))) {
            Ok(source) => put(top, device, mounts::copy(source, 0)?)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    if let Some(terminal) = console.and_then(|terminal| named(terminal, host)) {
        view::file(top, Path::new(CONSOLE), 0o600)?;
        put(top, CONSOLE, mounts::copy(terminal, 0)?)?;
    }
    let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
    put(top, "pts", mounts::fresh(c"devpts", &options, NO_SET_UID | NO_EXEC)?)?;
    put(top, "shm", shared(shared_memory)?)
}

/// The file of a terminal, where it can be seen. Its descriptor is of the server's mounts, which cannot be copied.
fn named(terminal: BorrowedFd<'_>, host: BorrowedFd<'_>) -> Option<OwnedFd> {
    let name = ttyname(terminal, Vec::new()).ok()?;
    let file = mounts::find(host, Path::new(OsStr::from_bytes(name.as_bytes()))).ok()?;
    mounts::same(&file, terminal).ok()?.then_some(file)
}

fn shared(skeleton: &Skeleton) -> Result<OwnedFd> {
    let memory = mounts::fresh(c"tmpfs", &[(c"mode", c"1777")], NO_PRIVILEGES)?;
    for directory in &skeleton.directories {
        mkdirat(&memory, directory.as_path(), Mode::from_raw_mode(0o755))?;
    }
    for path in &skeleton.files {
        view::file(memory.as_fd(), path.as_path(), 0o644)?;
    }
    Ok(memory)
}

fn put(top: BorrowedFd<'_>, name: &str, mount: impl AsFd) -> Result<()> {
    mounts::put(mount, mounts::find(top, Path::new(name))?)
}
