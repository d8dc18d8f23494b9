use std::fmt;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

/// What an operation wants of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Touch the entry itself, to see what it is.
    Approach,
    /// Go through a directory to what is in it.
    Pass,
    /// See the names in a directory; each is asked about with [`Guard::shows`].
    List,
    /// Read the content of a file.
    Read,
    /// Change what the entry is or holds, or create it.
    Write,
    /// Take the entry away from its name, or put another in its place.
    Displace,
}

/// How much of an entry may be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// All of it.
    Plain,
    /// That it is there, of which kind, and with these permission bits. Nothing else.
    Bare(u32),
}

/// Decides what operations may touch, by the real paths of entries. It never follows a link: who asks has done that.
///
/// An operation asks about every entry that it touches, of a tree too, and about what it has opened once more.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Whether an entry may be used so. `kind` is what is there, nothing if that is not known or nothing is.
    ///
    /// # Errors
    ///
    /// The error of the system that the operation is to fail with.
    fn permits(&self, path: &Path, kind: Option<FileType>, want: Want) -> Result<()>;

    /// How much of an entry may be described.
    ///
    /// # Errors
    ///
    /// Nothing, and the operation is to fail with this error of the system.
    fn look(&self, path: &Path, kind: FileType) -> Result<Look>;

    /// Whether a listing shows an entry.
    fn shows(&self, path: &Path) -> bool;

    /// Whether a file may not be used under a name by which it is reached, other than its real path.
    fn denies_name(&self, path: &Path) -> bool;

    /// Whether a file whose path changes would get out of what denies it.
    fn would_expose(&self, from: &Path, to: &Path) -> bool;

    /// Whether files have to be asked about with [`Guard::would_expose`] when a directory above them moves.
    fn denies_names(&self) -> bool;
}

/// A path, and who decides what may be touched on the way and behind it: nobody, if it was made from a path alone.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    pub(super) path: &'a Path,
    pub(super) guard: Option<&'a dyn Guard>,
}

impl<'a> Route<'a> {
    /// A path that is followed under a guard.
    #[must_use]
    pub fn guarded(path: &'a Path, guard: &'a dyn Guard) -> Self {
        Self { path, guard: Some(guard) }
    }
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for Route<'a> {
    fn from(path: &'a P) -> Self {
        Self { path: path.as_ref(), guard: None }
    }
}

/// The guard's answer for a file that is also known by other names.
pub(super) fn permits_by_names<'a>(
    guard: &dyn Guard,
    names: impl IntoIterator<Item = &'a std::path::PathBuf>,
    kind: Option<FileType>,
    want: Want,
) -> Result<()> {
    let is_used = !matches!(want, Want::Approach | Want::Pass | Want::List);
    let denied = kind != Some(FileType::Directory) && names.into_iter().any(|name| guard.denies_name(name));
    match want {
        Want::Displace if denied => Err(Errno::BUSY),
        _ if denied && is_used => Err(Errno::ACCESS),
        _ => Ok(()),
    }
}
