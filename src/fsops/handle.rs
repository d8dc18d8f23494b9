use std::fs::File;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};

use super::read::open_regular;
use super::{FsError, Links, Route, resolve};
use crate::protocol::failure::FileErrorKind;

/// The largest block that is read or written at once (1 MiB).
pub const MAX_BLOCK_BYTES: u64 = 1 << 20;

/// Opens a regular file for reading in blocks.
///
/// # Errors
///
/// The path names no regular file, or the system refuses.
pub fn open_for_reading<'a>(path: impl Into<Route<'a>>) -> Result<File, FsError> {
    open_regular(path.into(), Links::Follow).map(|(file, _)| file)
}

/// Opens a regular file for writing in blocks; it is created, or emptied at once.
///
/// # Errors
///
/// The path names something else, or the system refuses.
pub fn open_for_replacing<'a>(path: impl Into<Route<'a>>) -> Result<File, FsError> {
    let route = path.into();
    let path = route.path;
    let failed = |errno| FsError::os("open", path, errno);
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let file = resolve::open(route, Links::Follow, flags, Mode::from_raw_mode(0o666)).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if resolve::kind(&stat) != FileType::RegularFile {
        return Err(FsError::not_regular(path));
    }
    rustix::fs::ftruncate(&file, 0).map_err(failed)?;
    Ok(file.into())
}

/// Reads `len` bytes, or fewer at the end of the file. `id` names the file in errors.
///
/// # Errors
///
/// The length or the offset is out of range, or the system refuses.
pub fn read_block(file: &File, id: &str, offset: u64, len: u64) -> Result<Vec<u8>, FsError> {
    check_length(len)?;
    if i64::try_from(offset).is_err() {
        return Err(out_of_range(offset));
    }
    let wanted = usize::try_from(len.min(i64::MAX.unsigned_abs() - offset)).unwrap_or(usize::MAX);
    let mut block = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        match pread(file, &mut block[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(FsError::handle("read", id, errno)),
        }
    }
    block.truncate(filled);
    Ok(block)
}

/// Writes a whole block; a hole before it reads as zeros. `id` names the file in errors.
///
/// # Errors
///
/// The length or the range is out of bounds, or the system refuses.
pub fn write_block(file: &File, id: &str, offset: u64, block: &[u8]) -> Result<(), FsError> {
    check_length(block.len() as u64)?;
    if offset.checked_add(block.len() as u64).is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(out_of_range(offset));
    }
    let mut done = 0;
    while done < block.len() {
        match pwrite(file, &block[done..], offset + done as u64) {
            Ok(0) => return Err(FsError::handle("write", id, Errno::IO)),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(FsError::handle("write", id, errno)),
        }
    }
    Ok(())
}

fn check_length(len: u64) -> Result<(), FsError> {
    if (1..=MAX_BLOCK_BYTES).contains(&len) {
        return Ok(());
    }
    Err(FsError::invalid(
        FileErrorKind::Limit,
        format_args!("a block of {len} bytes: it must have 1 to {MAX_BLOCK_BYTES}"),
    ))
}

fn out_of_range(offset: u64) -> FsError {
    FsError::invalid(
        FileErrorKind::Limit,
        format_args!("a block at {offset} ends beyond the largest file offset, 2^63-1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::path::Path;

    #[test]
    fn blocks_are_read_up_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "hello world").unwrap();
        let file = open_for_reading(&path).unwrap();
        let read = |offset, len| read_block(&file, "h", offset, len);
        assert_eq!(read(6, 5).unwrap(), b"world");
        assert_eq!(read(6, 6).unwrap(), b"world");
        assert_eq!(read(500, 4).unwrap(), b"");
        assert_eq!(read(i64::MAX as u64, MAX_BLOCK_BYTES).unwrap(), b"");
        for (offset, len) in [(0, 0), (0, MAX_BLOCK_BYTES + 1), (1 << 63, 1)] {
            assert_eq!(read(offset, len).unwrap_err().class(), ErrorClass::InvalidInput);
        }
        let wrong_direction = write_block(&file, "h", 0, b"x").unwrap_err();
        assert_eq!((wrong_direction.class(), wrong_direction.errno()), (ErrorClass::Io, Some(9)));
    }

    #[test]
    fn blocks_are_written_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "previous").unwrap();
        let file = open_for_replacing(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        write_block(&file, "h", 5, b"xyz").unwrap();
        write_block(&file, "h", 0, b"abc").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc\0\0xyz");
        for (offset, block) in [(0, &b""[..]), (i64::MAX as u64 - 1, b"abc"), (u64::MAX, b"a")] {
            assert_eq!(write_block(&file, "h", offset, block).unwrap_err().class(), ErrorClass::InvalidInput);
        }
    }

    #[test]
    fn only_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("p");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
        let no_reader = open_for_replacing(&fifo).unwrap_err();
        assert_eq!((no_reader.class(), no_reader.errno()), (ErrorClass::Io, Some(6)));
        assert_eq!(open_for_reading(&fifo).unwrap_err().class(), ErrorClass::InvalidInput);
        assert_eq!(open_for_replacing(Path::new("/dev/null")).unwrap_err().class(), ErrorClass::InvalidInput);
        assert_eq!(open_for_replacing(dir.path()).unwrap_err().kind(), FileErrorKind::IsDirectory);
    }
}
