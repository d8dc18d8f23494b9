//! Writing a whole file: beside and renamed over where that changes nothing else, else in place.

mod in_place;
mod replace;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use self::replace::{Obstacle, Temporary};
use super::guard::Want;
use super::opened::remove_if_same;
use super::place::Place;
use super::resolve::{self, follow_final_links};
use super::{FsError, Links, Route};
use crate::protocol::failure::FileErrorKind;

/// How long a pipe or a device may take to accept what is written.
const STREAM_PATIENCE: Duration = Duration::from_secs(5);

/// How often a path that changes under the call is looked at again.
const ATTEMPTS: u32 = 8;

/// Whether a file is written beside and renamed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Where possible, else in place.
    Prefer,
    /// It is, or the call is refused.
    Require,
    /// It is not.
    Never,
}

/// Gives a file new content, or creates it. An existing one is opened for writing first in any case, so that what cannot
/// be written in place (a read-only file, a running program) is not replaced either.
///
/// # Errors
///
/// The path names something that is not written to, the old file cannot be replaced ([`Atomic::Require`]), or the
/// system refuses.
pub fn write_file<'a>(
    path: impl Into<Route<'a>>,
    content: &[u8],
    atomic: Atomic,
    links: Links,
) -> Result<(), FsError> {
    let route = path.into();
    let failed = |errno| FsError::os("write", route.path, errno);
    for _ in 0..ATTEMPTS {
        match resolve::open(route, links, OFlags::WRONLY, Mode::empty()) {
            Ok(file) => return overwrite(route, &file.into(), content, atomic, links),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let place = Place::of(route, links).map_err(failed)?;
        let created = match place.stat() {
            Err(Errno::NOENT) => create(&place, content, atomic).map_err(failed)?,
            Ok(entry) if links == Links::Follow && resolve::kind(&entry) == FileType::Symlink => {
                return create_behind_link(route, content, atomic);
            }
            Ok(_) => false,
            Err(errno) => return Err(failed(errno)),
        };
        if created {
            return Ok(());
        }
    }
    Err(FsError::failed(format_args!(
        "cannot write '{}': it keeps appearing and disappearing",
        route.path.display()
    )))
}

fn overwrite(
    route: Route<'_>,
    file: &File,
    content: &[u8],
    atomic: Atomic,
    links: Links,
) -> Result<(), FsError> {
    let failed = |errno| FsError::os("write", route.path, errno);
    let stat = rustix::fs::fstat(file).map_err(failed)?;
    if resolve::kind(&stat) == FileType::RegularFile {
        return overwrite_regular(route, file, &stat, content, atomic, links);
    }
    if links == Links::Refuse {
        return Err(FsError::not_regular(route.path));
    }
    if atomic == Atomic::Require {
        return Err(not_atomic(route.path, "it is not a regular file"));
    }
    in_place::write_stream(file, content, STREAM_PATIENCE).map_err(failed)
}

fn overwrite_regular(
    route: Route<'_>,
    file: &File,
    stat: &Stat,
    content: &[u8],
    atomic: Atomic,
    links: Links,
) -> Result<(), FsError> {
    let failed = |errno| FsError::os("write", route.path, errno);
    if atomic == Atomic::Never {
        return in_place::rewrite(file, stat, content).map_err(failed);
    }
    let place = match links {
        Links::Follow => follow_final_links(route),
        Links::Refuse => Place::of(route, links),
    };
    let replaced = match place {
        Ok(place) => replace::replace(&place, file, stat, content),
        Err(errno) => Err(Obstacle::Unfit(format!("its directory cannot be opened: {errno}"))),
    };
    match (replaced, atomic) {
        (Ok(()), _) => Ok(()),
        (Err(Obstacle::Unfit(reason)), Atomic::Require) => Err(not_atomic(route.path, &reason)),
        (Err(Obstacle::Unfit(_)), _) => in_place::rewrite(file, stat, content).map_err(failed),
        // There may be room for the new content, though not for both.
        (Err(Obstacle::Failed(full @ (Errno::NOSPC | Errno::DQUOT))), Atomic::Prefer) => {
            match in_place::reserve(file, stat, content) {
                Ok(true) => in_place::rewrite(file, stat, content).map_err(failed),
                Ok(false) => Err(failed(full)),
                Err(errno) => Err(failed(errno)),
            }
        }
        (Err(Obstacle::Failed(errno)), _) => Err(failed(errno)),
    }
}

fn not_atomic(path: &Path, reason: &str) -> FsError {
    FsError::invalid(
        FileErrorKind::Other,
        format_args!("cannot write '{}' atomically: {reason}", path.display()),
    )
}

/// Creates a file with its content. False: something is there by now.
fn create(place: &Place<'_>, content: &[u8], atomic: Atomic) -> rustix::io::Result<bool> {
    place.check(FileType::RegularFile, Want::Write)?;
    if atomic == Atomic::Never {
        return create_in_place(place, content);
    }
    let temporary = match Temporary::create(&place.parent, Mode::from_raw_mode(0o666)) {
        // A guard may deny the name of the temporary file alone.
        Err(Errno::ACCESS) if atomic == Atomic::Prefer => return create_in_place(place, content),
        result => result?,
    };
    in_place::fill(&temporary.file, content)?;
    match temporary.take(&place.name) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // File systems that have neither links nor renaming without replacing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if atomic == Atomic::Prefer => {
            create_in_place(place, content)
        }
        Err(errno) => Err(errno),
    }
}

fn create_in_place(place: &Place<'_>, content: &[u8]) -> rustix::io::Result<bool> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = match place.open(flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => File::from(file),
        Err(Errno::EXIST) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    in_place::fill(&file, content).inspect_err(|_| remove_if_same(&place.parent, &place.name, &file))?;
    Ok(true)
}

/// Creates the file that a dangling link names. Without a guard the kernel does it, by its rules for links of other users.
fn create_behind_link(route: Route<'_>, content: &[u8], atomic: Atomic) -> Result<(), FsError> {
    let failed = |errno| FsError::os("write", route.path, errno);
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let file = resolve::open(route, Links::Follow, flags, Mode::from_raw_mode(0o666)).map_err(failed)?;
    let file = File::from(file);
    let was_empty = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
    overwrite(route, &file, content, atomic, Links::Follow).inspect_err(|_| {
        if let (true, Ok(place)) = (was_empty, follow_final_links(route)) {
            remove_if_same(&place.parent, &place.name, &file);
        }
    })
}
