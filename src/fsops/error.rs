use std::fmt;
use std::path::Path;

use rustix::io::Errno;

use crate::path_uri::ForeignPath;
use crate::protocol::failure::FileErrorKind;

/// Which way an operation failed, as far as callers treat failures differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The path, or the open file, does not exist.
    NotFound,
    /// The request asks for what cannot or may not be done.
    InvalidInput,
    /// The operating system refused or failed.
    Io,
    /// The parameters can never be right.
    InvalidParams,
    /// The call is to be confined, and cannot be.
    Unconfined,
}

/// Why a file operation failed. The text names the path and the reason, and ends in `(os error N)` where there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FsError {
    class: ErrorClass,
    kind: FileErrorKind,
    errno: Option<Errno>,
    message: String,
}

impl FsError {
    /// How callers treat it.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// The reason as a word that programs can compare.
    #[must_use]
    pub fn kind(&self) -> FileErrorKind {
        self.kind
    }

    /// The number of the operating system's error, if it was one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.errno.map(Errno::raw_os_error)
    }

    /// A failed system call; `action` completes "cannot … '/path'".
    pub(crate) fn os(action: &str, path: &Path, errno: Errno) -> Self {
        let message = format!("cannot {action} '{}': {}", path.display(), text(errno));
        Self { class: class_of(errno), kind: kind_of(errno), errno: Some(errno), message }
    }

    /// The same, from the standard library.
    pub(crate) fn io(action: &str, path: &Path, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::os(action, path, Errno::from_raw_os_error(code)),
            None => Self {
                class: ErrorClass::Io,
                kind: FileErrorKind::Other,
                errno: None,
                message: format!("cannot {action} '{}': {error}", path.display()),
            },
        }
    }

    /// A failed system call on a file that has no path any more.
    pub(crate) fn handle(action: &str, id: &str, errno: Errno) -> Self {
        let message = format!("cannot {action} file handle `{id}`: {}", text(errno));
        Self { class: class_of(errno), kind: kind_of(errno), errno: Some(errno), message }
    }

    /// A request that can never succeed.
    pub(crate) fn invalid(kind: FileErrorKind, message: impl fmt::Display) -> Self {
        Self { class: ErrorClass::InvalidInput, kind, errno: None, message: message.to_string() }
    }

    /// A failure without an error of the operating system.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { class: ErrorClass::Io, kind: FileErrorKind::Other, errno: None, message: message.to_string() }
    }

    /// A path that must name a regular file does not.
    pub(crate) fn not_regular(path: &Path) -> Self {
        Self::invalid(
            FileErrorKind::NotRegularFile,
            format_args!("'{}' is not a regular file", path.display()),
        )
    }

    /// A link where none may be.
    pub(crate) fn link_on_the_way(path: &Path) -> Self {
        Self::invalid(
            FileErrorKind::SymlinkLoop,
            format_args!("'{}': path contains a symbolic link", path.display()),
        )
    }

    /// A handle that is not open.
    pub(crate) fn unknown_handle(id: &str) -> Self {
        let message = format!("unknown file handle `{id}`");
        Self { class: ErrorClass::NotFound, kind: FileErrorKind::UnknownHandle, errno: None, message }
    }

    /// A call whose limits cannot be enforced.
    pub(crate) fn sandbox(class: ErrorClass, kind: FileErrorKind, message: impl fmt::Display) -> Self {
        Self { class, kind, errno: None, message: message.to_string() }
    }
}

impl From<ForeignPath> for FsError {
    fn from(error: ForeignPath) -> Self {
        Self::invalid(FileErrorKind::Other, error)
    }
}

/// The system's words for an error, `No such file or directory (os error 2)`.
pub(super) fn text(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

fn class_of(errno: Errno) -> ErrorClass {
    match errno {
        Errno::NOENT => ErrorClass::NotFound,
        Errno::ACCESS | Errno::PERM => ErrorClass::InvalidInput,
        _ => ErrorClass::Io,
    }
}

fn kind_of(errno: Errno) -> FileErrorKind {
    match errno {
        Errno::NOENT => FileErrorKind::NotFound,
        Errno::ACCESS | Errno::PERM => FileErrorKind::PermissionDenied,
        Errno::EXIST => FileErrorKind::AlreadyExists,
        Errno::ISDIR => FileErrorKind::IsDirectory,
        Errno::NOTDIR => FileErrorKind::NotDirectory,
        Errno::NOTEMPTY => FileErrorKind::NotEmpty,
        Errno::ROFS => FileErrorKind::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => FileErrorKind::NoSpace,
        Errno::LOOP => FileErrorKind::SymlinkLoop,
        Errno::FBIG => FileErrorKind::TooLarge,
        Errno::MFILE | Errno::NFILE => FileErrorKind::Limit,
        _ => FileErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_path_and_reason() {
        let error = FsError::os("read", Path::new("/a b"), Errno::NOENT);
        assert_eq!(error.to_string(), "cannot read '/a b': No such file or directory (os error 2)");
        assert_eq!(
            (error.class(), error.kind(), error.errno()),
            (ErrorClass::NotFound, FileErrorKind::NotFound, Some(2))
        );
    }

    #[test]
    fn what_the_system_forbids_is_invalid_input() {
        for errno in [Errno::ACCESS, Errno::PERM] {
            assert_eq!(FsError::os("read", Path::new("/"), errno).class(), ErrorClass::InvalidInput);
        }
        for errno in [Errno::EXIST, Errno::ISDIR, Errno::NOTDIR, Errno::ROFS, Errno::NXIO, Errno::LOOP] {
            assert_eq!(FsError::os("read", Path::new("/"), errno).class(), ErrorClass::Io);
        }
    }
}
