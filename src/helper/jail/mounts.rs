//! Mounts by descriptor: a path is looked up once, so nobody can put something else there in between.

#![expect(unsafe_code, reason = "mount_setattr has no safe call yet")]

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

/// Attributes of a mount; those that are not named stay what they are.
pub(super) const NO_PRIVILEGES: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
pub(super) const NO_SET_UID: u64 = MOUNT_ATTR_NOSUID;
pub(super) const READ_ONLY: u64 = MOUNT_ATTR_RDONLY;
pub(super) const NO_EXEC: u64 = MOUNT_ATTR_NOEXEC;

const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_NOEXEC: u64 = 8;

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// What is at a path below a directory, itself; links on the way are refused.
pub(super) fn find(top: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The last name alone may be a link, which is then meant itself.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let parent = below.parent().filter(|parent| !parent.as_os_str().is_empty());
    let (Some(parent), Some(name)) = (parent, below.file_name()) else {
        return openat2(top, below, flags, Mode::empty(), resolve);
    };
    let no_links = resolve | ResolveFlags::NO_SYMLINKS;
    let parent = openat2(top, parent, flags | OFlags::DIRECTORY, Mode::empty(), no_links)?;
    openat2(&parent, name, flags, Mode::empty(), resolve)
}

/// Whether two descriptors name the same file.
pub(super) fn same(one: impl AsFd, other: impl AsFd) -> Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// A copy of the mounts at a descriptor and below, not yet anywhere, with these attributes on all of them.
pub(super) fn copy(of: impl AsFd, attributes: u64) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(of, c"", flags)?;
    if attributes != 0 {
        let attributes = MountAttr { set: attributes, ..Default::default() };
        set(tree.as_fd(), libc::AT_RECURSIVE, &attributes)?;
    }
    Ok(tree)
}

/// Adds attributes to one mount, not to those below it.
pub(super) fn restrict(mount: BorrowedFd<'_>, attributes: u64) -> Result<()> {
    set(mount, 0, &MountAttr { set: attributes, ..Default::default() })
}

/// Puts a mount onto what a descriptor names.
pub(super) fn put(mount: impl AsFd, onto: impl AsFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", onto, c"", flags)
}

/// A new file system, not yet anywhere.
pub(super) fn fresh(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = u32::try_from(attributes).map_err(|_| Errno::INVAL)?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::from_bits_retain(attributes))
}

/// Nothing that is mounted from now on is seen outside, or comes in from there.
pub(super) fn make_private(root: BorrowedFd<'_>) -> Result<()> {
    let attributes = MountAttr { propagation: libc::MS_PRIVATE, ..Default::default() };
    set(root, libc::AT_RECURSIVE, &attributes)
}

fn set(fd: BorrowedFd<'_>, flags: libc::c_int, attributes: &MountAttr) -> Result<()> {
    // SAFETY: the path is empty, the structure outlives the call, and the size is its own.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
