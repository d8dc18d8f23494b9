use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;

use rustix::fs::{
    AtFlags, FileType, Gid, IFlags, Mode, OFlags, Stat, StatxAttributes, StatxFlags, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

use super::in_place::fill;
use crate::fsops::guard::Want;
use crate::fsops::opened::Directory;
use crate::fsops::place::Place;
use crate::fsops::resolve::{rename_to_new, same_file};

/// Flags of an inode that people set and that a new file may lack.
const KEPT_FLAGS: IFlags = IFlags::COMPRESSED
    .union(IFlags::NODUMP)
    .union(IFlags::NOATIME)
    .union(IFlags::SYNC)
    .union(IFlags::NOTAIL)
    .union(IFlags::NOCOW)
    .union(IFlags::SECURE_REMOVAL)
    .union(IFlags::UNRM)
    .union(IFlags::JOURNALING);

/// Why a file was not replaced.
pub(super) enum Obstacle {
    /// A new file would not be the same in other respects.
    Unfit(String),
    /// It was tried.
    Failed(Errno),
}

/// A file without a lasting name; it is removed unless it is renamed.
pub(super) struct Temporary<'a> {
    parent: &'a Directory<'a>,
    name: String,
    pub(super) file: File,
    renamed: bool,
}

impl<'a> Temporary<'a> {
    pub(super) fn create(parent: &'a Directory<'a>, mode: Mode) -> Result<Self> {
        let name = format!(".{}.tmp", uuid::Uuid::new_v4().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = parent.open_entry(OsStr::new(&name), flags, mode)?;
        Ok(Self { parent, name, file: file.into(), renamed: false })
    }

    /// Takes the place of an entry.
    fn replace(mut self, name: &OsStr) -> Result<()> {
        rustix::fs::renameat(self.parent, &self.name, self.parent, name)?;
        self.renamed = true;
        Ok(())
    }

    /// Takes a name that is free, else EEXIST.
    pub(super) fn take(mut self, name: &OsStr) -> Result<()> {
        rename_to_new((self.parent, OsStr::new(&self.name)), (self.parent, name))?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(self.parent, &self.name, AtFlags::empty());
        }
    }
}

/// Puts a new file with the same owner, mode and attributes in the place of `old`, if nothing else changes by that.
pub(super) fn replace(
    place: &Place<'_>,
    old: &File,
    stat: &Stat,
    content: &[u8],
) -> std::result::Result<(), Obstacle> {
    check_place(place, stat)?;
    let new = match Temporary::create(&place.parent, Mode::RUSR | Mode::WUSR) {
        Ok(new) => new,
        Err(full @ (Errno::NOSPC | Errno::DQUOT)) => return Err(Obstacle::Failed(full)),
        Err(errno) => return unfit(format_args!("its directory cannot be written: {errno}")),
    };
    if let Err(errno) = keep_owner_and_attributes(old, stat, &new.file) {
        return unfit(format_args!("its owner or attributes cannot be kept: {errno}"));
    }
    fill(&new.file, content).map_err(Obstacle::Failed)?;
    match keep_mode(stat, &new.file) {
        Ok(true) => {}
        Ok(false) => return unfit("its mode cannot be kept"),
        Err(errno) => return unfit(format_args!("its mode cannot be kept: {errno}")),
    }
    match new.replace(&place.name) {
        Ok(()) => Ok(()),
        Err(full @ (Errno::NOSPC | Errno::DQUOT)) => Err(Obstacle::Failed(full)),
        Err(errno) => unfit(format_args!("it cannot be renamed over: {errno}")),
    }
}

fn unfit<T>(reason: impl std::fmt::Display) -> std::result::Result<T, Obstacle> {
    Err(Obstacle::Unfit(reason.to_string()))
}

fn check_place(place: &Place<'_>, stat: &Stat) -> std::result::Result<(), Obstacle> {
    if let Err(errno) = place.check(FileType::RegularFile, Want::Displace) {
        return unfit(format_args!("its name must stay: {errno}"));
    }
    if stat.st_nlink != 1 {
        return unfit("it has several names (hard links), or none");
    }
    match place.stat() {
        Ok(entry) if same_file(&entry, stat) => {}
        Ok(_) => return unfit("its name leads elsewhere by now"),
        Err(errno) => return unfit(format_args!("its name cannot be looked at: {errno}")),
    }
    match place.is_mount_point() {
        Ok(false) => {}
        Ok(true) => return unfit("it is a mount point"),
        Err(errno) => return unfit(format_args!("it may be a mount point: {errno}")),
    }
    // In an append-only directory the new file could be neither renamed nor removed again.
    let parent = rustix::fs::statx(&place.parent, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    match parent {
        Ok(parent) if !parent.stx_attributes.contains(StatxAttributes::APPEND) => Ok(()),
        _ => unfit("its directory is append-only"),
    }
}

fn keep_owner_and_attributes(old: &File, stat: &Stat, new: &File) -> Result<()> {
    let own = rustix::fs::fstat(new)?;
    if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
        rustix::fs::fchown(new, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    }
    let flags = |file| rustix::fs::ioctl_getflags(file).map_or(IFlags::empty(), |flags| flags & KEPT_FLAGS);
    if flags(old) != flags(new) {
        return Err(Errno::OPNOTSUPP);
    }
    let (wanted, present) = (attributes(old)?, attributes(new)?);
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        rustix::fs::fremovexattr(new, name.as_c_str())?;
    }
    for (name, value) in wanted.iter().filter(|(name, value)| present.get(*name) != Some(*value)) {
        rustix::fs::fsetxattr(new, name.as_c_str(), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// The extended attributes, access lists among them. Capabilities are left out: writing in place drops them too.
fn attributes(file: &File) -> Result<HashMap<CString, Vec<u8>>> {
    let mut names = Vec::with_capacity(64 << 10);
    match rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(HashMap::new()),
        Err(errno) => return Err(errno),
    }
    let mut attributes = HashMap::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        if name == c"security.capability" {
            continue;
        }
        let mut value = Vec::with_capacity(rustix::fs::fgetxattr_query(file, name)?);
        if value.capacity() > 0 {
            rustix::fs::fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))?;
        }
        attributes.insert(name.to_owned(), value);
    }
    Ok(attributes)
}

/// Sets the mode of the old file. Like writing in place, only the superuser keeps set-id bits.
fn keep_mode(stat: &Stat, new: &File) -> Result<bool> {
    let mut mode = Mode::from_raw_mode(stat.st_mode);
    if !rustix::process::geteuid().is_root() {
        mode.remove(Mode::SUID);
        if mode.contains(Mode::XGRP) {
            mode.remove(Mode::SGID);
        }
    }
    rustix::fs::fchmod(new, mode)?;
    Ok(Mode::from_raw_mode(rustix::fs::fstat(new)?.st_mode) == mode)
}
