use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{FsError, Links, Route, resolve};
use crate::protocol::failure::FileErrorKind;

/// The largest file that [`read_file`] is asked for by default (512 MiB).
pub const MAX_READ_BYTES: u64 = 512 << 20;

/// A regular file that is open to be read whole.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: PathBuf,
    size: u64,
}

/// Opens a regular file of at most `limit` bytes, as far as it says.
///
/// # Errors
///
/// The path names no regular file, the file is larger than the limit, or the system refuses.
pub fn open_to_read<'a>(path: impl Into<Route<'a>>, links: Links, limit: u64) -> Result<Opened, FsError> {
    let route = path.into();
    let (file, size) = open_regular(route, links)?;
    if size > limit {
        return Err(too_large(route.path, limit));
    }
    Ok(Opened { file, path: route.path.to_owned(), size })
}

/// The whole content of a regular file of at most `limit` bytes.
///
/// # Errors
///
/// The path names no regular file, the file is or grows larger than the limit, or the system refuses.
pub fn read_file<'a>(path: impl Into<Route<'a>>, links: Links, limit: u64) -> Result<Vec<u8>, FsError> {
    open_to_read(path, links, limit)?.read(limit)
}

impl Opened {
    /// The size that it said when it was opened; one of `/proc` says 0.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The whole content, if it has at most `limit` bytes. After an error it can be read again.
    ///
    /// # Errors
    ///
    /// The file has grown larger than the limit, or the system refuses.
    pub fn read(&self, limit: u64) -> Result<Vec<u8>, FsError> {
        let Self { file, path, size } = self;
        let mut file = file;
        let failed = |error: &io::Error| FsError::io("read", path, error);
        let mut content = Vec::new();
        // Pseudo-files say 0; one byte more than the size finds the end without growing the buffer.
        let expected = usize::try_from(size.saturating_add(1)).unwrap_or(usize::MAX);
        content
            .try_reserve_exact(expected)
            .map_err(|_| FsError::failed(format_args!("no memory to read '{}'", path.display())))?;
        fill(file, &mut content).map_err(|errno| failed(&errno.into()))?;
        // Files of `/proc` say that they are empty, and a file may grow.
        let rest = limit.saturating_add(1).saturating_sub(content.len() as u64);
        file.take(rest).read_to_end(&mut content).map_err(|error| failed(&error))?;
        if content.len() as u64 > limit {
            file.rewind().map_err(|error| failed(&error))?;
            return Err(too_large(path, limit));
        }
        Ok(content)
    }

    /// Reads on until the buffer is full or the file has ended; how much was read.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn read_on(&self, buffer: &mut [u8]) -> Result<usize, FsError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::read(&self.file, &mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FsError::os("read", &self.path, errno)),
            }
        }
        Ok(filled)
    }
}

/// Reads until the room that a buffer has is full, or the file has ended: mostly in one call.
fn fill(file: &File, content: &mut Vec<u8>) -> rustix::io::Result<()> {
    while content.len() < content.capacity() {
        match rustix::io::read(file, spare_capacity(content)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Opens a regular file for reading; says its size.
pub(super) fn open_regular(route: Route<'_>, links: Links) -> Result<(File, u64), FsError> {
    let path = route.path;
    let failed = |errno| FsError::os("open", path, errno);
    let file = resolve::open(route, links, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if resolve::kind(&stat) != FileType::RegularFile {
        return Err(FsError::not_regular(path));
    }
    Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
}

fn too_large(path: &Path, limit: u64) -> FsError {
    let message = format!(
        "'{}' is larger than the {limit} bytes that can be read at once; read it in blocks (fs/open, fs/readBlock)",
        path.display()
    );
    FsError::invalid(FileErrorKind::TooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsops::ErrorClass;
    use std::os::unix::fs::symlink;
    use test_case::test_case;

    fn read(path: &Path) -> Result<Vec<u8>, FsError> {
        read_file(path, Links::Follow, MAX_READ_BYTES)
    }

    #[test_case("missing", ErrorClass::NotFound, FileErrorKind::NotFound)]
    #[test_case("dangling", ErrorClass::NotFound, FileErrorKind::NotFound)]
    #[test_case("directory", ErrorClass::InvalidInput, FileErrorKind::NotRegularFile)]
    #[test_case("fifo", ErrorClass::InvalidInput, FileErrorKind::NotRegularFile)]
    #[test_case("socket", ErrorClass::Io, FileErrorKind::Other)]
    #[test_case("file/below", ErrorClass::Io, FileErrorKind::NotDirectory)]
    #[test_case("loop", ErrorClass::Io, FileErrorKind::SymlinkLoop)]
    fn what_is_no_file_is_refused_at_once(name: &str, class: ErrorClass, kind: FileErrorKind) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("directory")).unwrap();
        std::fs::write(root.join("file"), "x").unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        let error = read(&root.join(name)).unwrap_err();
        assert_eq!((error.class(), error.kind()), (class, kind), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }

    #[test_case("/dev/zero")]
    #[test_case("/dev/null")]
    fn devices_are_not_files(path: &str) {
        assert_eq!(read(Path::new(path)).unwrap_err().kind(), FileErrorKind::NotRegularFile);
    }

    #[test]
    fn files_without_a_size_are_read_to_the_end() {
        assert!(read(Path::new("/proc/self/status")).unwrap().starts_with(b"Name:"));
    }

    #[test]
    fn the_limit_is_exact() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_file(&path, Links::Follow, 5).unwrap(), b"12345");
        assert_eq!(read_file(&path, Links::Follow, 4).unwrap_err().kind(), FileErrorKind::TooLarge);
        let growing = Path::new("/proc/self/status");
        assert_eq!(read_file(growing, Links::Follow, 9).unwrap_err().kind(), FileErrorKind::TooLarge);
    }

    #[test]
    fn links_are_refused_where_asked() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("f"), "x").unwrap();
        symlink("f", root.join("link")).unwrap();
        assert_eq!(read(&root.join("link")).unwrap(), b"x");
        let error = read_file(&root.join("link"), Links::Refuse, 9).unwrap_err();
        assert_eq!((error.class(), error.errno()), (ErrorClass::Io, Some(40)));
    }
}
