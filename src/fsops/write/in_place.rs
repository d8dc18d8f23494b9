use std::fs::File;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, Stat, fallocate, ftruncate};
use rustix::io::{Errno, Result, write};

/// Gives a regular file new content. The space is reserved while the old content is whole, and the file is cut only at
/// the end, so that a full disk loses nothing.
pub(super) fn rewrite(file: &File, old: &Stat, content: &[u8]) -> Result<()> {
    reserve(file, old, content)?;
    write_all(file, content)?;
    let length = content.len() as u64;
    if u64::try_from(old.st_size).unwrap_or(0) > length { ftruncate(file, length) } else { Ok(()) }
}

/// Reserves the space of the content. False: the file system makes no such promise.
pub(super) fn reserve(file: &File, old: &Stat, content: &[u8]) -> Result<bool> {
    if content.is_empty() {
        return Ok(true);
    }
    loop {
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, content.len() as u64) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                // Gives back what lies behind the end.
                let _ = ftruncate(file, u64::try_from(old.st_size).unwrap_or(0));
                return Err(full);
            }
            Err(_) => return Ok(false),
        }
    }
}

/// Writes the content of a file that is new.
pub(super) fn fill(file: &File, content: &[u8]) -> Result<()> {
    write_all(file, content)
}

fn write_all(file: &File, mut content: &[u8]) -> Result<()> {
    while !content.is_empty() {
        match write(file, content) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => content = &content[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes to a pipe or a device, which has to take everything in time.
pub(super) fn write_stream(file: &File, mut content: &[u8], patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !content.is_empty() {
        match write(file, content) {
            Ok(written) => content = &content[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_until_writable(file, deadline)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn wait_until_writable(file: &File, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    if left.is_zero() {
        return Err(Errno::AGAIN);
    }
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&timeout)) {
        Ok(0) => Err(Errno::AGAIN),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
