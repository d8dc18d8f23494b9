//! How a file call is made. The defaults are those of the protocol.

/// How [`super::ExecutorFileSystem::read_file`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFileOptions {
    /// Whether links may be on the way.
    pub follow_symlinks: bool,
}

impl Default for ReadFileOptions {
    fn default() -> Self {
        Self { follow_symlinks: true }
    }
}

/// How [`super::ExecutorFileSystem::write_file`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteFileOptions {
    /// True: written beside and renamed over, or refused; false: written in place; none: the former where possible.
    pub atomic: Option<bool>,
    /// Whether links may be on the way.
    pub follow_symlinks: bool,
}

impl Default for WriteFileOptions {
    fn default() -> Self {
        Self { atomic: None, follow_symlinks: true }
    }
}

/// How [`super::ExecutorFileSystem::create_directory`] creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateDirectoryOptions {
    /// Create parents too, and accept that the directory exists.
    pub recursive: bool,
    /// Whether links may be on the way.
    pub follow_symlinks: bool,
}

impl Default for CreateDirectoryOptions {
    fn default() -> Self {
        Self { recursive: true, follow_symlinks: true }
    }
}

/// How [`super::ExecutorFileSystem::get_metadata`] looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetMetadataOptions {
    /// Whether links may be on the way.
    pub follow_symlinks: bool,
}

impl Default for GetMetadataOptions {
    fn default() -> Self {
        Self { follow_symlinks: true }
    }
}

/// How [`super::ExecutorFileSystem::remove`] removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoveOptions {
    /// Remove the content of a directory too.
    pub recursive: bool,
    /// Accept that nothing is there.
    pub force: bool,
    /// Whether links may be on the way; false needs `recursive` false.
    pub follow_symlinks: bool,
}

impl Default for RemoveOptions {
    fn default() -> Self {
        Self { recursive: true, force: true, follow_symlinks: true }
    }
}

/// How [`super::ExecutorFileSystem::copy`] copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyOptions {
    /// A directory needs true.
    pub recursive: bool,
}

/// How [`super::ExecutorFileSystem::rename`] renames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenameOptions {
    /// Take the place of what is there.
    pub replace: bool,
}
