//! Builds a view in a new root and moves into it. The server's view is gone afterwards.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fchmod, fstat, mkdirat, open, openat, statx, symlinkat};
use rustix::io::{Errno, Result};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{fchdir, pivot_root};
use rustix::stdio::stdin;

use super::mounts::{self, NO_EXEC, NO_PRIVILEGES, READ_ONLY};
use super::{Done, devices, facility};
use crate::sandbox::plan::{Base, Content, Failure, Layer, Skeleton, Stage, View};

/// Directories of the scratch file system, each the top of a part of the view.
const ROOT: &str = "root";
const DEVICES: &str = "dev";

pub(super) fn build(view: &View, terminal: bool) -> Done<()> {
    let host = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(facility("/"))?;
    mounts::make_private(host.as_fd()).map_err(facility("private mounts"))?;
    // Before anything is mounted here, so that the copy holds nothing but what the server sees.
    let copy = host_copy(&view.base, host.as_fd()).map_err(facility("the root"))?;
    let scratch = scratch(host.as_fd()).map_err(facility("tmpfs"))?;
    let root = base(&view.base, copy, scratch.as_fd()).map_err(facility("the root"))?;
    own_parts(root.as_fd(), view, terminal, host.as_fd(), scratch.as_fd())?;
    for (number, layer) in view.layers.iter().enumerate() {
        let place = Place { root: root.as_fd(), host: host.as_fd(), scratch: scratch.as_fd() };
        place.put(layer, number).map_err(|errno| about(layer, errno))?;
    }
    enter(root.as_fd()).map_err(facility("pivot_root"))?;
    is_alone(root.as_fd()).map_err(facility("the old root"))
}

/// What the view needs of its own: a file system in memory, put where only descriptors find it.
fn scratch(host: BorrowedFd<'_>) -> Result<OwnedFd> {
    let options = [(c"mode", c"0755"), (c"size", c"16m")];
    let scratch = mounts::fresh(c"tmpfs", &options, NO_PRIVILEGES | NO_EXEC)?;
    mounts::put(&scratch, host)?;
    Ok(scratch)
}

fn host_copy(base: &Base, host: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
    match base {
        Base::Host { writable: true } => mounts::copy(host, NO_PRIVILEGES).map(Some),
        Base::Host { writable: false } => mounts::copy(host, NO_PRIVILEGES | READ_ONLY).map(Some),
        Base::Empty(_) => Ok(None),
    }
}

/// The new root, mounted so that it can be moved into.
fn base(base: &Base, copy: Option<OwnedFd>, scratch: BorrowedFd<'_>) -> Result<OwnedFd> {
    let root = match (base, copy) {
        (Base::Host { .. }, Some(copy)) => copy,
        (Base::Host { .. }, None) => return Err(Errno::INVAL),
        (Base::Empty(skeleton), _) => {
            let top = directory(scratch, ROOT, 0o755, skeleton)?;
            mounts::copy(top, NO_PRIVILEGES | READ_ONLY)?
        }
    };
    mounts::put(&root, scratch)?;
    Ok(root)
}

/// `/proc`, `/dev` and what is in it.
fn own_parts(
    root: BorrowedFd<'_>,
    view: &View,
    terminal: bool,
    host: BorrowedFd<'_>,
    scratch: BorrowedFd<'_>,
) -> Done<()> {
    // Read-only as a whole: of all that can be written there, a program in a sandbox needs nothing.
    let proc = mounts::fresh(c"proc", &[], NO_PRIVILEGES | NO_EXEC | READ_ONLY).map_err(facility("/proc"))?;
    let place = |path: &str| mounts::find(root, Path::new(path));
    place("/proc").and_then(|onto| mounts::put(&proc, onto)).map_err(facility("/proc"))?;
    let top = directory(scratch, DEVICES, 0o755, &devices::skeleton()).map_err(facility("/dev"))?;
    let console = terminal.then(stdin);
    devices::fill(top.as_fd(), host, console, &view.shared_memory).map_err(facility("/dev"))?;
    let devices = mounts::copy(top, 0).map_err(facility("/dev"))?;
    mounts::restrict(devices.as_fd(), READ_ONLY).map_err(facility("/dev"))?;
    place("/dev").and_then(|onto| mounts::put(&devices, onto)).map_err(facility("/dev"))
}

struct Place<'a> {
    root: BorrowedFd<'a>,
    host: BorrowedFd<'a>,
    scratch: BorrowedFd<'a>,
}

impl Place<'_> {
    fn put(&self, layer: &Layer, number: usize) -> Result<()> {
        let path = layer.path.as_path();
        let onto = mounts::find(self.root, path)?;
        let mount = match &layer.content {
            Content::Host { writable } => {
                let source = mounts::find(self.host, path)?;
                self.unchanged(&source, &onto)?;
                mounts::copy(source, if *writable { NO_PRIVILEGES } else { NO_PRIVILEGES | READ_ONLY })?
            }
            Content::Fixed => mounts::copy(&onto, READ_ONLY)?,
            Content::Held => mounts::copy(&onto, 0)?,
            Content::Directory { mode, skeleton } => {
                let top = directory(self.scratch, &number.to_string(), *mode, skeleton)?;
                mounts::copy(top, READ_ONLY)?
            }
            Content::File { mode } => {
                let file = file(self.scratch, Path::new(&number.to_string()), *mode)?;
                mounts::copy(file, READ_ONLY)?
            }
        };
        mounts::put(mount, onto)
    }

    /// A path that a process outside has given another meaning meanwhile is not what the plan is about.
    fn unchanged(&self, source: &OwnedFd, onto: &OwnedFd) -> Result<()> {
        let made_here = fstat(onto)?.st_dev == fstat(self.scratch)?.st_dev;
        if made_here || mounts::same(source, onto)? { Ok(()) } else { Err(Errno::STALE) }
    }
}

/// A directory with what a skeleton says, all of it with these permission bits.
pub(super) fn directory(at: BorrowedFd<'_>, name: &str, mode: u32, skeleton: &Skeleton) -> Result<OwnedFd> {
    let open_directory = |at: BorrowedFd<'_>, path: &Path| {
        openat(at, path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    };
    mkdirat(at, name, Mode::RWXU)?;
    let top = open_directory(at, Path::new(name))?;
    let mut made = Vec::new();
    for path in &skeleton.directories {
        match mkdirat(&top, path.as_path(), Mode::RWXU) {
            Ok(()) => made.push(open_directory(top.as_fd(), path.as_path())?),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    for path in &skeleton.files {
        file(top.as_fd(), path.as_path(), 0o444)?;
    }
    for (path, target) in &skeleton.links {
        symlinkat(target.as_path(), &top, path.as_path())?;
    }
    for directory in made.iter().chain([&top]) {
        fchmod(directory, Mode::from_raw_mode(mode))?;
    }
    Ok(top)
}

pub(super) fn file(at: BorrowedFd<'_>, path: &Path, mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(at, path, flags, Mode::RUSR)?;
    fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(file)
}

/// Makes the new root the root, and lets go of the old one.
fn enter(root: BorrowedFd<'_>) -> Result<()> {
    fchdir(root)?;
    pivot_root(".", ".")?;
    // The old root now lies on the new one, and the scratch file system on that.
    unmount(".", UnmountFlags::DETACH)?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// Whoever goes up to the root must arrive at the new one: what lay on it would be entered instead.
fn is_alone(root: BorrowedFd<'_>) -> Result<()> {
    let up = openat(root, "proc/..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let id = |fd: BorrowedFd<'_>| {
        statx(fd, "", AtFlags::EMPTY_PATH, MOUNT_ID).map(|at| (at.stx_mask, at.stx_mnt_id))
    };
    let (up, root) = (id(up.as_fd())?, id(root)?);
    let known = StatxFlags::from_bits_retain(root.0).contains(MOUNT_ID);
    if known && up.1 == root.1 { Ok(()) } else { Err(Errno::BUSY) }
}

const MOUNT_ID: StatxFlags = StatxFlags::MNT_ID;

fn about(layer: &Layer, errno: Errno) -> Failure {
    let what = layer.path.as_path().display().to_string();
    Failure { stage: Stage::Layer, errno: errno.raw_os_error(), what }
}
