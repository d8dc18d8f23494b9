use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::{Errno, Result};

use super::opened::Directory;
use super::place::Place;
use super::resolve::{self, same_file};
use super::{FsError, Links, Route, create_directory};
use crate::protocol::failure::FileErrorKind;

/// The deepest tree that is copied: each level holds two descriptors.
const MAX_DEPTH: usize = 1000;

/// Copies a file, a link or (with `recursive`) a directory into what is there. A file onto itself stays as it is.
///
/// # Errors
///
/// The source is missing, special, or a directory that the destination lies in; the destination is of another kind; or
/// the system refuses. A part of a tree may be copied then.
pub fn copy<'a>(
    source: impl Into<Route<'a>>,
    destination: impl Into<Route<'a>>,
    recursive: bool,
) -> std::result::Result<(), FsError> {
    let (source, destination) = (source.into(), destination.into());
    let failed = |errno| FsError::os("copy", source.path, errno);
    let from = Place::of(source, Links::Follow).map_err(failed)?;
    let stat = from.stat().map_err(failed)?;
    match resolve::kind(&stat) {
        FileType::RegularFile => {
            let input = from.open(OFlags::RDONLY, Mode::empty()).map_err(failed)?;
            copy_file(&input.into(), source.path, destination.path, |flags, mode| {
                resolve::open(destination, Links::Follow, flags, mode)
            })
        }
        FileType::Symlink => {
            let failed = |errno| copying_to(destination.path, errno);
            let to = Place::of(destination, Links::Follow).map_err(failed)?;
            copy_link(&from.parent, &from.name, &to.parent, &to.name).map_err(failed)
        }
        FileType::Directory if recursive => copy_tree(&from, &stat, source.path, destination),
        FileType::Directory => Err(FsError::invalid(
            FileErrorKind::IsDirectory,
            format_args!("'{}' is a directory: recursive is required", source.path.display()),
        )),
        _ => Err(FsError::not_regular(source.path)),
    }
}

fn copying_to(path: &Path, errno: Errno) -> FsError {
    FsError::os("copy to", path, errno)
}

fn copy_link(parent: &Directory<'_>, name: &OsStr, to: &Directory<'_>, new_name: &OsStr) -> Result<()> {
    to.make_link(new_name, parent.link_text(name)?)
}

fn copy_file(
    input: &File,
    source: &Path,
    destination: &Path,
    open_destination: impl FnOnce(OFlags, Mode) -> Result<OwnedFd>,
) -> std::result::Result<(), FsError> {
    let failed = |errno| copying_to(destination, errno);
    let stat = rustix::fs::fstat(input).map_err(|errno| FsError::os("copy", source, errno))?;
    if resolve::kind(&stat) != FileType::RegularFile {
        return Err(FsError::not_regular(source));
    }
    // Set-id bits stay behind: the copy has another owner.
    let mode = Mode::from_raw_mode(stat.st_mode) & !(Mode::SUID | Mode::SGID);
    let output = open_destination(OFlags::WRONLY | OFlags::CREATE, mode | Mode::WUSR).map_err(failed)?;
    let old = rustix::fs::fstat(&output).map_err(failed)?;
    if resolve::kind(&old) != FileType::RegularFile {
        return Err(FsError::not_regular(destination));
    }
    if same_file(&old, &stat) {
        return Ok(());
    }
    let output = File::from(output);
    copy_content(input, &stat, &output).map_err(failed)?;
    if Mode::from_raw_mode(old.st_mode) == mode {
        Ok(())
    } else {
        rustix::fs::fchmod(&output, mode).map_err(failed)
    }
}

/// Copies the data and leaves the holes.
fn copy_content(input: &File, stat: &Stat, output: &File) -> Result<()> {
    rustix::fs::ftruncate(output, 0)?;
    // Pseudo-files have no size, and some file systems cannot be searched for data.
    let first = rustix::fs::seek(input, SeekFrom::Data(0));
    if stat.st_size == 0 || matches!(first, Err(Errno::INVAL | Errno::OPNOTSUPP)) {
        return copy_rest(input, output, 0, u64::MAX);
    }
    let mut offset = 0;
    loop {
        let data = match rustix::fs::seek(input, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => break,
            result => result?,
        };
        offset = rustix::fs::seek(input, SeekFrom::Hole(data))?;
        copy_range(input, output, data, offset)?;
    }
    rustix::fs::ftruncate(output, u64::try_from(rustix::fs::fstat(input)?.st_size).unwrap_or(0))
}

fn copy_range(input: &File, output: &File, start: u64, end: u64) -> Result<()> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let wanted = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(input, Some(&mut from), output, Some(&mut to), wanted) {
            // Cut short meanwhile, or a file system that copies nothing: reading tells.
            Ok(0) => return copy_rest(input, output, from, end),
            Ok(_) | Err(Errno::INTR) => {}
            Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(full),
            Err(_) => return copy_rest(input, output, from, end),
        }
    }
    Ok(())
}

fn copy_rest(mut input: &File, mut output: &File, start: u64, end: u64) -> Result<()> {
    rustix::fs::seek(input, SeekFrom::Start(start))?;
    rustix::fs::seek(output, SeekFrom::Start(start))?;
    let copied = std::io::copy(&mut Read::by_ref(&mut input).take(end - start), &mut output);
    copied.and_then(|_| output.flush()).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn copy_tree(
    from: &Place<'_>,
    stat: &Stat,
    source: &Path,
    destination: Route<'_>,
) -> std::result::Result<(), FsError> {
    let inside = || {
        FsError::invalid(
            FileErrorKind::Other,
            format_args!("cannot copy '{}' into itself ('{}')", source.display(), destination.path.display()),
        )
    };
    let to = |errno| copying_to(destination.path, errno);
    if lies_in(destination, stat).map_err(to)? {
        return Err(inside());
    }
    let input = from.parent.enter(&from.name).map_err(|errno| FsError::os("copy", source, errno))?;
    create_directory(destination, true, Links::Follow)?;
    let output = Directory::open(destination).map_err(to)?;
    let mut tree = Tree { made: HashSet::new(), inside: &inside };
    tree.copy(&input, source, &output, destination.path, 0)
}

/// Whether a path, or the nearest directory above it that exists, is the directory or lies below it.
fn lies_in(route: Route<'_>, directory: &Stat) -> Result<bool> {
    let mut nearest = route;
    let mut current = loop {
        match resolve::find(nearest) {
            Err(Errno::NOENT) => {
                nearest = Route { path: nearest.path.parent().ok_or(Errno::NOENT)?, ..nearest };
            }
            result => break result?,
        }
    };
    let mut stat = rustix::fs::fstat(&current)?;
    if resolve::kind(&stat) != FileType::Directory {
        return Ok(false);
    }
    loop {
        if same_file(&stat, directory) {
            return Ok(true);
        }
        current = rustix::fs::openat(&current, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let above = rustix::fs::fstat(&current)?;
        if same_file(&above, &stat) {
            return Ok(false);
        }
        stat = above;
    }
}

struct Tree<'a> {
    /// Directories copied into. A source that is one of them was reached through a link in the destination, and would
    /// never end.
    made: HashSet<(u64, u64)>,
    inside: &'a dyn Fn() -> FsError,
}

impl Tree<'_> {
    fn copy(
        &mut self,
        input: &Directory<'_>,
        source: &Path,
        output: &Directory<'_>,
        destination: &Path,
        depth: usize,
    ) -> std::result::Result<(), FsError> {
        let reading = |errno| FsError::os("copy", source, errno);
        let from = rustix::fs::fstat(input).map_err(reading)?;
        let to = rustix::fs::fstat(output).map_err(|errno| copying_to(destination, errno))?;
        self.made.insert((to.st_dev, to.st_ino));
        if self.made.contains(&(from.st_dev, from.st_ino)) {
            return Err((self.inside)());
        }
        if depth > MAX_DEPTH {
            let message =
                format!("cannot copy '{}': it is more than {MAX_DEPTH} levels deep", source.display());
            return Err(FsError::invalid(FileErrorKind::Limit, message));
        }
        for (name, _) in input.names().map_err(reading)? {
            self.copy_entry(input, &name, source, output, destination, depth)?;
        }
        Ok(())
    }

    fn copy_entry(
        &mut self,
        input: &Directory<'_>,
        name: &OsStr,
        source: &Path,
        output: &Directory<'_>,
        destination: &Path,
        depth: usize,
    ) -> std::result::Result<(), FsError> {
        let (source, destination) = (source.join(name), destination.join(name));
        let reading = |errno| FsError::os("copy", &source, errno);
        let writing = |errno| copying_to(&destination, errno);
        let stat = input.stat(name).map_err(reading)?;
        match resolve::kind(&stat) {
            FileType::Directory => {
                let below = input.enter(name).map_err(reading)?;
                match output.make_directory(name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(writing(errno)),
                }
                let into = output.enter_following(name).map_err(writing)?;
                self.copy(&below, &source, &into, &destination, depth + 1)
            }
            FileType::RegularFile => {
                let file = input.open_entry(name, OFlags::RDONLY, Mode::empty()).map_err(reading)?;
                copy_file(&file.into(), &source, &destination, |flags, mode| {
                    output.open_following(name, flags, mode)
                })
            }
            FileType::Symlink => copy_link(input, name, output, name).map_err(writing),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
