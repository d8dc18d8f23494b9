//! Files of this machine: the server's own file service, without a connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::{BoxFuture, ExecServerError, FileCall, FileCalls, OpenFile};
use crate::error_map::IntoErrorObject;
use crate::fs::{FileSystem, FsError};
use crate::path_uri::PathUri;
use crate::protocol::Method;
use crate::protocol::fs::{
    Canonicalize, CloseParams, Copy, CreateDirectory, CreateSymlink, GetMetadata, OpenMode, OpenParams,
    ReadBlockParams, ReadBlockResponse, ReadDirectory, ReadFile, Remove, Rename, SetPermissions, Walk,
    WriteBlockParams, WriteFile,
};
use crate::protocol::sandbox::SandboxContext;
use crate::sandbox::Sandboxes;

/// The files of this machine. Clones share the open files, of which there are 128 at most.
#[derive(Debug, Clone, Default)]
pub struct LocalFileSystem {
    service: Arc<FileSystem>,
    last_handle: Arc<AtomicU64>,
}

impl LocalFileSystem {
    /// Does not show the placeholders of these sandboxes to confined calls.
    #[must_use]
    pub fn beside(sandboxes: Arc<Sandboxes>) -> Self {
        Self { service: Arc::new(FileSystem::new().beside(sandboxes)), last_handle: Arc::default() }
    }
}

macro_rules! calls {
    ($($call:ident: $method:ty, $operation:ident;)*) => {
        $(
            fn $call(&self, params: <$method as Method>::Params) -> FileCall<'_, $method> {
                Box::pin(async move { self.service.$operation(params).await.map_err(io_error) })
            }
        )*
    };
}

impl FileCalls for LocalFileSystem {
    calls! {
        call_read_file: ReadFile, read_file;
        call_write_file: WriteFile, write_file;
        call_create_directory: CreateDirectory, create_directory;
        call_get_metadata: GetMetadata, get_metadata;
        call_canonicalize: Canonicalize, canonicalize;
        call_read_directory: ReadDirectory, read_directory;
        call_walk: Walk, walk;
        call_remove: Remove, remove;
        call_copy: Copy, copy;
        call_rename: Rename, rename;
        call_set_permissions: SetPermissions, set_permissions;
        call_create_symlink: CreateSymlink, create_symlink;
    }

    fn call_open(
        &self,
        path: PathUri,
        mode: OpenMode,
        sandbox: Option<SandboxContext>,
    ) -> BoxFuture<'_, io::Result<Arc<dyn OpenFile>>> {
        let handle_id = (self.last_handle.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        // Whoever gives up waiting gives the file back.
        let file = LocalFile { service: Arc::clone(&self.service), handle_id: handle_id.clone() };
        Box::pin(async move {
            let params = OpenParams { handle_id, path, mode, sandbox };
            file.service.open(params).await.map_err(io_error)?;
            Ok(Arc::new(file) as Arc<dyn OpenFile>)
        })
    }
}

struct LocalFile {
    service: Arc<FileSystem>,
    handle_id: String,
}

impl OpenFile for LocalFile {
    fn read_block(&self, offset: u64, len: u64) -> BoxFuture<'_, io::Result<ReadBlockResponse>> {
        let params = ReadBlockParams { handle_id: self.handle_id.clone(), offset, len };
        Box::pin(async move { self.service.read_block(params).await.map_err(io_error) })
    }

    fn write_block(&self, offset: u64, chunk: Vec<u8>) -> BoxFuture<'_, io::Result<()>> {
        let params = WriteBlockParams { handle_id: self.handle_id.clone(), offset, chunk: chunk.into() };
        Box::pin(async move { self.service.write_block(params).await.map(drop).map_err(io_error) })
    }

    fn close(&self) -> BoxFuture<'_, io::Result<()>> {
        let params = CloseParams { handle_id: self.handle_id.clone() };
        Box::pin(async move { self.service.close(params).await.map(drop).map_err(io_error) })
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        self.service.forget(&self.handle_id);
    }
}

/// The error that a server would answer.
fn io_error(error: FsError) -> io::Error {
    ExecServerError::from(error.into_error_object()).into()
}
