//! The file service of one connection: takes the params of `fs/*`, answers their results.
//!
//! It owns the open files of the connection, which close when it is dropped; a [`Watch`] belongs to whoever asked for
//! it. The work is done on blocking threads, so that no call holds another up. A call that is to be confined is refused, never run open.

mod handles;
#[cfg(test)]
mod tests;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use base64_simd::STANDARD;

use self::handles::Handles;
pub use self::watch::{MAX_WATCHED_PATHS, Watch};
use crate::fsops::{self, Atomic, FileInfo, Links, MAX_READ_BYTES, RemoveOptions, WalkLimits};
pub use crate::fsops::{ErrorClass, FsError};
use crate::path_uri::PathUri;
use crate::protocol::fs::{
    CanonicalizeParams, CanonicalizeResponse, CloseParams, CopyParams, CreateDirectoryParams,
    CreateSymlinkParams, DirectoryEntry, FileMode, GetMetadataParams, Metadata, OpenMode, OpenParams,
    OpenResponse, ReadBlockParams, ReadBlockResponse, ReadDirectoryParams, ReadDirectoryResponse,
    ReadFileParams, ReadFileResponse, RemoveParams, RenameParams, SetPermissionsParams, WalkEntry, WalkError,
    WalkKind, WalkParams, WalkResponse, WatchMissingParams, WriteBlockParams, WriteFileParams,
};
use crate::protocol::process::Empty;
use crate::protocol::sandbox::SandboxContext;

/// Result of a file call.
pub type Result<T> = std::result::Result<T, FsError>;

/// The file service of one connection.
#[derive(Debug)]
pub struct FileSystem {
    handles: Arc<Handles>,
    read_limit: u64,
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
        Self { handles: Arc::default(), read_limit: bytes.min(MAX_READ_BYTES) }
    }

    /// `fs/readFile`.
    pub async fn read_file(&self, params: ReadFileParams) -> Result<ReadFileResponse> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        let limit = self.read_limit;
        let content = blocking(move || fsops::read_file(&path, links(params.follow_symlinks), limit)).await?;
        Ok(ReadFileResponse { data_base64: content.into() })
    }

    /// `fs/writeFile`.
    pub async fn write_file(&self, params: WriteFileParams) -> Result<Empty> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        let atomic = match params.atomic {
            None => Atomic::Prefer,
            Some(true) => Atomic::Require,
            Some(false) => Atomic::Never,
        };
        blocking(move || {
            let mut content = params.data_base64.into_bytes();
            let content = STANDARD.decode_inplace(&mut content).map_err(|_| {
                FsError::invalid(
                    "other",
                    "invalid base64 in dataBase64: standard alphabet with padding is required",
                )
            })?;
            fsops::write_file(&path, content, atomic, links(params.follow_symlinks))
        })
        .await?;
        Ok(Empty {})
    }

    /// `fs/open`. What refuses an id is decided before the file is touched.
    pub async fn open(&self, params: OpenParams) -> Result<OpenResponse> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        let slot = self.handles.reserve(&params.handle_id)?;
        let handles = Arc::clone(&self.handles);
        // The slot is filled or given back even if nobody waits for the answer any more.
        blocking(move || {
            let opened = match params.mode {
                OpenMode::Read => fsops::open_for_reading(&path),
                OpenMode::Replace => fsops::open_for_replacing(&path),
            };
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
        let path = target(&params.path, params.sandbox.as_ref())?;
        blocking(move || fsops::create_directory(&path, params.recursive, links(params.follow_symlinks)))
            .await?;
        Ok(Empty {})
    }

    /// `fs/getMetadata`.
    pub async fn get_metadata(&self, params: GetMetadataParams) -> Result<Metadata> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        blocking(move || fsops::metadata(&path, links(params.follow_symlinks))).await.map(describe)
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
        let path = target(&params.path, params.sandbox.as_ref())?;
        let resolved = blocking(move || fsops::canonicalize(&path)).await?;
        Ok(CanonicalizeResponse { path: PathUri::from_native_path(&resolved).map_err(FsError::failed)? })
    }

    /// `fs/readDirectory`.
    pub async fn read_directory(&self, params: ReadDirectoryParams) -> Result<ReadDirectoryResponse> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        blocking(move || {
            let entries = fsops::read_directory(&path, params.links)?;
            let entries = entries.into_iter().map(|entry| list_entry(&path, entry));
            Ok(ReadDirectoryResponse { entries: entries.collect() })
        })
        .await
    }

    /// `fs/walk`.
    pub async fn walk(&self, params: WalkParams) -> Result<WalkResponse> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        let options = params.options;
        let limits = WalkLimits {
            max_depth: options.max_depth,
            max_directories: options.max_directories,
            max_entries: options.max_entries,
            follow_directory_symlinks: options.follow_directory_symlinks,
            prune_hidden_directories: options.prune_hidden_directories,
        };
        let outcome = blocking(move || fsops::walk(&path, &limits)).await?;
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
        let path = target(&params.path, params.sandbox.as_ref())?;
        let options = RemoveOptions {
            recursive: params.recursive,
            force: params.force,
            links: links(params.follow_symlinks),
        };
        blocking(move || fsops::remove(&path, options)).await?;
        Ok(Empty {})
    }

    /// `fs/copy`.
    pub async fn copy(&self, params: CopyParams) -> Result<Empty> {
        let source = target(&params.source_path, params.sandbox.as_ref())?;
        let destination = target(&params.destination_path, params.sandbox.as_ref())?;
        blocking(move || fsops::copy(&source, &destination, params.recursive)).await?;
        Ok(Empty {})
    }

    /// `fs/watchMissing`. The id is not looked at; `None` is the answer that nothing is watched.
    pub async fn watch_missing(&self, params: WatchMissingParams) -> Option<Watch> {
        Watch::new(params).await
    }

    /// `fs/rename`.
    pub async fn rename(&self, params: RenameParams) -> Result<Empty> {
        let source = target(&params.source_path, params.sandbox.as_ref())?;
        let destination = target(&params.destination_path, params.sandbox.as_ref())?;
        blocking(move || fsops::rename(&source, &destination, params.replace)).await?;
        Ok(Empty {})
    }

    /// `fs/setPermissions`.
    pub async fn set_permissions(&self, params: SetPermissionsParams) -> Result<Empty> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        blocking(move || fsops::set_permissions(&path, params.mode.bits())).await?;
        Ok(Empty {})
    }

    /// `fs/createSymlink`.
    pub async fn create_symlink(&self, params: CreateSymlinkParams) -> Result<Empty> {
        let path = target(&params.path, params.sandbox.as_ref())?;
        blocking(move || fsops::create_symlink(&path, &params.target)).await?;
        Ok(Empty {})
    }
}

/// The native path of a call that may run unconfined.
fn target(path: &PathUri, sandbox: Option<&SandboxContext>) -> Result<PathBuf> {
    if sandbox.is_some_and(|sandbox| !sandbox.is_unconfined()) {
        return Err(FsError::sandbox_unavailable(
            "this server cannot confine file calls to a sandbox policy",
        ));
    }
    Ok(path.to_native_path()?)
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

fn list_entry(directory: &std::path::Path, entry: fsops::Entry) -> DirectoryEntry {
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
