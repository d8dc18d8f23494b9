//! File operations: synchronous, on paths and descriptors of this machine.
//!
//! They know no wire and no policy: where a caller limits what may be touched, a [`Guard`] decides, entry by entry, and
//! every path is a [`Route`] that says whether there is one. Everything that could block for ever (pipes, devices) is opened without waiting
//! and checked on the descriptor, so that what was checked is what is used.

mod cached;
mod copy;
mod directory;
mod error;
mod guard;
mod guarded;
mod handle;
mod metadata;
mod mutate;
mod opened;
mod place;
mod read;
mod remove;
mod resolve;
mod walk;
mod write;

pub use cached::cached_metadata;
pub use copy::copy;
pub use directory::{Entry, Listing, create_directory, list_some, read_directory};
pub use error::{ErrorClass, FsError};
pub use guard::{Guard, Look, Route, Want};
pub use handle::{MAX_BLOCK_BYTES, open_for_reading, open_for_replacing, read_block, write_block};
pub use metadata::{FileInfo, canonicalize, metadata};
pub use mutate::{create_symlink, rename, set_permissions};
pub use read::{MAX_READ_BYTES, Opened, open_to_read, read_file};
pub use remove::{RemoveOptions, remove};
pub use walk::{Found, Unreadable, WalkLimits, WalkOutcome, walk};
pub use write::{Atomic, write_file};

/// Whether links may be on the way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They are followed.
    Follow,
    /// None may be in any component.
    Refuse,
}
