//! The file service of one connection: takes the params of `fs/*`, answers their results.
//!
//! It owns the open files of the connection, which close when it is dropped; a [`Watch`] belongs to whoever asked for
//! it. The work is done on blocking threads, so that no call holds another up.
//! A call under a sandbox context is confined in this process, entry by entry (`confined`), or refused.

mod confined;
mod handles;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::sync::Arc;

use base64_simd::STANDARD;

pub(crate) use self::confined::{Purpose, Scope};
use self::handles::Handles;
pub use self::watch::{MAX_WATCHED_PATHS, Watch};
use crate::fsops::{self, Atomic, FileInfo, Links, MAX_READ_BYTES, RemoveOptions, WalkLimits};
pub use crate::fsops::{ErrorClass, FsError, MAX_BLOCK_BYTES};
use crate::path_uri::PathUri;
use crate::protocol::failure::FileErrorKind;
use crate::protocol::fs::{
    CanonicalizeParams, CanonicalizeResponse, CloseParams, CopyParams, CreateDirectoryParams,
    CreateSymlinkParams, DirectoryEntry, FileMode, GetMetadataParams, Metadata, OpenMode, OpenParams,
    OpenResponse, ReadBlockParams, ReadBlockResponse, ReadDirectoryParams, ReadDirectoryResponse,
    ReadFileParams, ReadFileResponse, RemoveParams, RenameParams, SetPermissionsParams, WalkEntry, WalkError,
    WalkKind, WalkParams, WalkResponse, WatchMissingParams, WriteBlockParams, WriteFileParams,
};
use crate::protocol::process::Empty;
use crate::protocol::sandbox::SandboxContext;
use crate::sandbox::Sandboxes;

/// Permission bits that lend a program's owner or group to who runs it.
const SET_ID: u32 = 0o6000;

/// Result of a file call.
pub type Result<T> = std::result::Result<T, FsError>;

/// The file service of one connection.
#[derive(Debug)]
pub struct FileSystem {
    handles: Arc<Handles>,
    read_limit: u64,
    sandboxes: Option<Arc<Sandboxes>>,
}

impl Default for FileSystem {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::missing_errors_doc, reason = "every method fails as the operation of fsops that it calls")]
impl FileSystem {
    /// A service without open files.
    #[must_use]
    pub fn new() -> Self {
        Self::with_read_limit(MAX_READ_BYTES)
    }

    /// A service that refuses to read larger files at once, for a connection that could not carry them.
    #[must_use]
    pub fn with_read_limit(bytes: u64) -> Self {
        Self { handles: Arc::default(), read_limit: bytes.min(MAX_READ_BYTES), sandboxes: None }
    }

    /// Does not show the placeholders of these sandboxes to confined calls.
    #[must_use]
    pub fn beside(self, sandboxes: Arc<Sandboxes>) -> Self {
        Self { sandboxes: Some(sandboxes), ..self }
    }

    /// What a call under a context may touch; to be asked where blocking is allowed.
    fn scope(
        &self,
        context: Option<SandboxContext>,
        purpose: Purpose,
    ) -> impl FnOnce() -> Result<Scope> + Send + use<> {
        let sandboxes = self.sandboxes.clone();
        move || Scope::of(context.as_ref(), purpose, sandboxes.as_deref())
    }

    /// `fs/readFile`.
    pub async fn read_file(&self, params: ReadFileParams) -> Result<ReadFileResponse> {
        let (open, limit) = (self.opening(params)?, self.read_limit);
        let content = blocking(move || open()?.file.read(limit)).await?;
        Ok(ReadFileResponse { data_base64: content.into() })
    }

    /// `fs/readFile`, of a file that has no more than there is room for; a larger one is opened. What cannot be read at
    /// once is refused.
    pub async fn read_file_into(&self, params: ReadFileParams, room: u64) -> Result<Read> {
        let open = self.opening(params)?;
        blocking(move || {
            let opened = open()?;
            if opened.size() > room { Ok(Read::Larger(opened)) } else { opened.read_now(room) }
        })
        .await
    }

    /// Opens what is to be read; to be called where blocking is allowed.
    fn opening(&self, params: ReadFileParams) -> Result<impl FnOnce() -> Result<Opened> + Send + use<>> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Reading);
        let limit = self.read_limit;
        Ok(move || {
            let scope = scope()?;
            let file = fsops::open_to_read(scope.route(&path), links(params.follow_symlinks), limit)?;
            Ok(Opened { file, limit })
        })
    }

    /// `fs/writeFile`.
    pub async fn write_file(&self, params: WriteFileParams) -> Result<Empty> {
        let path = params.path.to_native_path()?;
        let atomic = match params.atomic {
            None => Atomic::Prefer,
            Some(true) => Atomic::Require,
            Some(false) => Atomic::Never,
        };
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let mut content = params.data_base64.into_bytes();
            let content = STANDARD.decode_inplace(&mut content).map_err(|_| {
                FsError::invalid(
                    FileErrorKind::Other,
                    "invalid base64 in dataBase64: standard alphabet with padding is required",
                )
            })?;
            let scope = scope()?;
            fsops::write_file(scope.route(&path), content, atomic, links(params.follow_symlinks))
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/open`. What refuses an id is decided before the file is touched.
    pub async fn open(&self, params: OpenParams) -> Result<OpenResponse> {
        let path = params.path.to_native_path()?;
        let slot = self.handles.reserve(&params.handle_id)?;
        let handles = Arc::clone(&self.handles);
        let purpose = match params.mode {
            OpenMode::Read => Purpose::Reading,
            OpenMode::Replace => Purpose::Changing,
        };
        let scope = self.scope(params.sandbox, purpose);
        // The slot is filled or given back even if nobody waits for the answer any more.
        blocking(move || {
            let opened = scope().and_then(|scope| match params.mode {
                OpenMode::Read => fsops::open_for_reading(scope.route(&path)),
                OpenMode::Replace => fsops::open_for_replacing(scope.route(&path)),
            });
            match opened {
                Ok(file) => {
                    let _ = slot.set(file);
                    Ok(OpenResponse { handle_id: params.handle_id })
                }
                Err(error) => {
                    handles.release(&params.handle_id, &slot);
                    Err(error)
                }
            }
        })
        .await
    }

    /// `fs/readBlock`.
    pub async fn read_block(&self, params: ReadBlockParams) -> Result<ReadBlockResponse> {
        let slot = self.handles.get(&params.handle_id)?;
        blocking(move || {
            let file = slot.get().ok_or_else(|| FsError::unknown_handle(&params.handle_id))?;
            let block = fsops::read_block(file, &params.handle_id, params.offset, params.len)?;
            let eof = (block.len() as u64) < params.len;
            Ok(ReadBlockResponse { chunk: block.into(), eof })
        })
        .await
    }

    /// `fs/writeBlock`.
    pub async fn write_block(&self, params: WriteBlockParams) -> Result<Empty> {
        let slot = self.handles.get(&params.handle_id)?;
        blocking(move || {
            let file = slot.get().ok_or_else(|| FsError::unknown_handle(&params.handle_id))?;
            fsops::write_block(file, &params.handle_id, params.offset, params.chunk.as_slice())?;
            Ok(Empty {})
        })
        .await
    }

    /// `fs/close`.
    pub async fn close(&self, params: CloseParams) -> Result<Empty> {
        let slot = self.handles.close(&params.handle_id)?;
        // Closing may write what a network file system held back.
        blocking(move || {
            drop(slot);
            Ok(Empty {})
        })
        .await
    }

    /// Closes a handle without waiting. One that is not open is no error.
    pub fn forget(&self, handle_id: &str) {
        let Ok(Some(slot)) = self.handles.close(handle_id) else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(slot))),
            Err(_) => drop(slot),
        }
    }

    /// `fs/createDirectory`.
    pub async fn create_directory(&self, params: CreateDirectoryParams) -> Result<Empty> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let scope = scope()?;
            fsops::create_directory(scope.route(&path), params.recursive, links(params.follow_symlinks))
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/getMetadata`.
    pub async fn get_metadata(&self, params: GetMetadataParams) -> Result<Metadata> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Reading);
        let info = blocking(move || {
            let scope = scope()?;
            fsops::metadata(scope.route(&path), links(params.follow_symlinks))
        });
        info.await.map(describe)
    }

    /// `fs/getMetadata`, where the answer is in memory: it does not block. `None`: [`Self::get_metadata`] knows.
    #[must_use]
    pub fn get_metadata_at_once(&self, params: &GetMetadataParams) -> Option<Result<Metadata>> {
        if params.sandbox.is_some() || !params.follow_symlinks {
            return None;
        }
        let path = params.path.to_native_path().ok()?;
        fsops::cached_metadata(&path).map(|outcome| outcome.map(describe))
    }

    /// `fs/canonicalize`.
    pub async fn canonicalize(&self, params: CanonicalizeParams) -> Result<CanonicalizeResponse> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Reading);
        let resolved = blocking(move || {
            let scope = scope()?;
            fsops::canonicalize(scope.route(&path))
        })
        .await?;
        Ok(CanonicalizeResponse { path: PathUri::from_native_path(&resolved).map_err(FsError::failed)? })
    }

    /// `fs/readDirectory`.
    pub async fn read_directory(&self, params: ReadDirectoryParams) -> Result<ReadDirectoryResponse> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Reading);
        blocking(move || {
            let scope = scope()?;
            let entries = fsops::read_directory(scope.route(&path), params.links)?;
            let entries = entries.into_iter().map(|entry| list_entry(&path, entry));
            Ok(ReadDirectoryResponse { entries: entries.collect() })
        })
        .await
    }

    /// `fs/walk`.
    pub async fn walk(&self, params: WalkParams) -> Result<WalkResponse> {
        let path = params.path.to_native_path()?;
        let options = params.options;
        let limits = WalkLimits {
            max_depth: options.max_depth,
            max_directories: options.max_directories,
            max_entries: options.max_entries,
            follow_directory_symlinks: options.follow_directory_symlinks,
            prune_hidden_directories: options.prune_hidden_directories,
        };
        let scope = self.scope(params.sandbox, Purpose::Reading);
        let outcome = blocking(move || {
            let scope = scope()?;
            fsops::walk(scope.route(&path), &limits)
        })
        .await?;
        Ok(WalkResponse {
            entries: outcome.found.into_iter().map(walk_entry).collect(),
            errors: outcome
                .unreadable
                .into_iter()
                .map(|unreadable| WalkError { path: unreadable.path, message: unreadable.message })
                .collect(),
            truncated: outcome.truncated,
        })
    }

    /// `fs/remove`.
    pub async fn remove(&self, params: RemoveParams) -> Result<Empty> {
        let path = params.path.to_native_path()?;
        let options = RemoveOptions {
            recursive: params.recursive,
            force: params.force,
            links: links(params.follow_symlinks),
        };
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let scope = scope()?;
            fsops::remove(scope.route(&path), options)
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/copy`.
    pub async fn copy(&self, params: CopyParams) -> Result<Empty> {
        let source = params.source_path.to_native_path()?;
        let destination = params.destination_path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let scope = scope()?;
            fsops::copy(scope.route(&source), scope.route(&destination), params.recursive)
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/watchMissing`. The id is not looked at; `None` is the answer that nothing is watched.
    pub async fn watch_missing(&self, params: WatchMissingParams) -> Option<Watch> {
        Watch::new(params).await
    }

    /// `fs/rename`.
    pub async fn rename(&self, params: RenameParams) -> Result<Empty> {
        let source = params.source_path.to_native_path()?;
        let destination = params.destination_path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let scope = scope()?;
            fsops::rename(scope.route(&source), scope.route(&destination), params.replace)
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/setPermissions`.
    pub async fn set_permissions(&self, params: SetPermissionsParams) -> Result<Empty> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let scope = scope()?;
            if scope.is_limited() && params.mode.bits() & SET_ID != 0 {
                return Err(FsError::invalid(
                    FileErrorKind::Other,
                    "a sandboxed call cannot set setuid or setgid bits",
                ));
            }
            fsops::set_permissions(scope.route(&path), params.mode.bits())
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/createSymlink`.
    pub async fn create_symlink(&self, params: CreateSymlinkParams) -> Result<Empty> {
        let path = params.path.to_native_path()?;
        let scope = self.scope(params.sandbox, Purpose::Changing);
        blocking(move || {
            let scope = scope()?;
            fsops::create_symlink(scope.route(&path), &params.target)
        })
        .await?;
        Ok(Empty {})
    }
}

/// A file that `fs/readFile` is to read.
#[derive(Debug)]
pub struct Opened {
    file: fsops::Opened,
    limit: u64,
}

/// What came of reading an open file.
#[derive(Debug)]
pub enum Read {
    /// All of it.
    Whole(ReadFileResponse),
    /// It has more than there was room for, and may be read again with more.
    Larger(Opened),
}

impl Opened {
    /// Bytes, as far as the file says: it may grow, and one of `/proc` says 0.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads it into room for so many bytes.
    ///
    /// # Errors
    /// It has grown above what can be read at once, or the system refuses.
    pub async fn read(self, room: u64) -> Result<Read> {
        blocking(move || self.read_now(room)).await
    }

    fn read_now(self, room: u64) -> Result<Read> {
        match self.file.read(room.min(self.limit)) {
            Ok(content) => Ok(Read::Whole(ReadFileResponse { data_base64: content.into() })),
            Err(error) if error.kind() == FileErrorKind::TooLarge && room < self.limit => {
                Ok(Read::Larger(self))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads on until the buffer is full or the file has ended; how much was read. It blocks.
    ///
    /// # Errors
    /// The system refuses.
    pub fn read_on(&self, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_on(buffer)
    }
}

async fn blocking<T: Send + 'static>(operation: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(operation).await {
        Ok(result) => result,
        Err(error) => Err(FsError::failed(format_args!("the file operation was not finished: {error}"))),
    }
}

fn links(follow: bool) -> Links {
    if follow { Links::Follow } else { Links::Refuse }
}

fn describe(info: FileInfo) -> Metadata {
    Metadata {
        is_directory: info.is_directory,
        is_file: info.is_file,
        is_symlink: info.link_target.is_some(),
        size: info.size,
        created_at_ms: info.created_at_ms,
        modified_at_ms: info.modified_at_ms,
        mode: Some(FileMode::from_bits(info.mode)),
        uid: Some(info.uid),
        gid: Some(info.gid),
        inode: Some(info.inode.to_string()),
        link_target: info.link_target.map(|target| target.to_string_lossy().into_owned()),
    }
}

fn list_entry(directory: &Path, entry: fsops::Entry) -> DirectoryEntry {
    let (is_directory, is_file) = (entry.is_directory, entry.is_file);
    let (file_name, path) = match entry.name.into_string() {
        Ok(name) => (name, None),
        Err(raw) => {
            let exact = PathUri::from_native_path(&directory.join(&raw)).ok();
            (raw.to_string_lossy().into_owned(), exact)
        }
    };
    let link_target = entry.link_target.map(|target| target.to_string_lossy().into_owned());
    DirectoryEntry { file_name, is_directory, is_file, path, link_target }
}

fn walk_entry(found: fsops::Found) -> WalkEntry {
    let kind = if found.is_directory { WalkKind::Directory } else { WalkKind::File };
    WalkEntry { path: found.path, kind }
}
