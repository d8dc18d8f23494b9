//! Files of an environment: what users call, and what this process and a server carry out for it.

mod options;
mod stream;

use std::io;
use std::sync::Arc;

pub use self::options::{
    CopyOptions, CreateDirectoryOptions, GetMetadataOptions, ReadFileOptions, RemoveOptions, RenameOptions,
    WriteFileOptions,
};
pub use self::stream::{BLOCK_BYTES, FileReadStream, FileWriteStream};
use super::BoxFuture;
use crate::path_uri::PathUri;
use crate::protocol::Method;
use crate::protocol::fs::{
    Canonicalize, CanonicalizeParams, Copy, CopyParams, CreateDirectory, CreateDirectoryParams,
    CreateSymlink, CreateSymlinkParams, DirectoryEntry, FileMode, GetMetadata, GetMetadataParams, Metadata,
    OpenMode, ReadBlockResponse, ReadDirectory, ReadDirectoryParams, ReadFile, ReadFileParams, Remove,
    RemoveParams, Rename, RenameParams, SetPermissions, SetPermissionsParams, Walk, WalkOptions, WalkParams,
    WalkResponse, WriteFile, WriteFileParams,
};
use crate::protocol::sandbox::SandboxContext;

/// The result of a call of [`FileCalls`].
pub type FileCall<'a, M> = BoxFuture<'a, io::Result<<M as Method>::Output>>;

macro_rules! file_calls {
    ($($(#[$doc:meta])* $call:ident: $method:ty;)*) => {
        /// File calls as they are on the wire. Users call [`ExecutorFileSystem`], which builds on it.
        pub trait FileCalls: Send + Sync {
            $(
                $(#[$doc])*
                fn $call(&self, params: <$method as Method>::Params) -> FileCall<'_, $method>;
            )*

            /// `fs/open`, with a handle that closes when it is dropped.
            fn call_open(
                &self,
                path: PathUri,
                mode: OpenMode,
                sandbox: Option<SandboxContext>,
            ) -> BoxFuture<'_, io::Result<Arc<dyn OpenFile>>>;
        }
    };
}

file_calls! {
    /// `fs/readFile`.
    call_read_file: ReadFile;
    /// `fs/writeFile`.
    call_write_file: WriteFile;
    /// `fs/createDirectory`.
    call_create_directory: CreateDirectory;
    /// `fs/getMetadata`.
    call_get_metadata: GetMetadata;
    /// `fs/canonicalize`.
    call_canonicalize: Canonicalize;
    /// `fs/readDirectory`.
    call_read_directory: ReadDirectory;
    /// `fs/walk`.
    call_walk: Walk;
    /// `fs/remove`.
    call_remove: Remove;
    /// `fs/copy`.
    call_copy: Copy;
    /// `fs/rename`.
    call_rename: Rename;
    /// `fs/setPermissions`.
    call_set_permissions: SetPermissions;
    /// `fs/createSymlink`.
    call_create_symlink: CreateSymlink;
}

/// An open file. It belongs to the connection on which it was opened: when that is lost, so is the file, and every
/// call fails with [`io::ErrorKind::BrokenPipe`]. Dropping it closes it. All calls are cancel-safe.
pub trait OpenFile: Send + Sync {
    /// Reads `len` bytes from `offset`, 1 to [`BLOCK_BYTES`]; fewer only at the end of the file.
    fn read_block(&self, offset: u64, len: u64) -> BoxFuture<'_, io::Result<ReadBlockResponse>>;

    /// Writes all of 1 to [`BLOCK_BYTES`] bytes at `offset`.
    fn write_block(&self, offset: u64, chunk: Vec<u8>) -> BoxFuture<'_, io::Result<()>>;

    /// Closes it. May be repeated.
    fn close(&self) -> BoxFuture<'_, io::Result<()>>;
}

/// Files of an environment. Without a sandbox context a call has the rights of the executor.
///
/// Errors have these kinds, and a [`super::ExecServerError`] inside: [`io::ErrorKind::NotFound`] for what is not
/// there, `InvalidInput` for what cannot be right or is not permitted, `Unsupported` for what the server lacks (nothing
/// is sent), `BrokenPipe` for a connection that was lost, `NotConnected` for one that could not be made, `Other` for
/// every other failure, with the executor's words. `data.kind` of the error inside tells these apart.
///
/// All calls are cancel-safe: one that is dropped before its answer may or may not take effect. While a lost
/// connection is being recovered they wait. Calls that only read are repeated after it; one that changes something
/// and whose answer was lost is not, fails with `BrokenPipe`, and may or may not have taken effect.
pub trait ExecutorFileSystem: FileCalls {
    /// The whole content of a regular file, 512 MiB at most, over a connection about 44 MiB.
    fn read_file<'a>(
        &'a self,
        path: &PathUri,
        options: ReadFileOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<Vec<u8>>> {
        let params = ReadFileParams {
            path: path.clone(),
            follow_symlinks: options.follow_symlinks,
            sandbox: sandbox.cloned(),
        };
        let call = self.call_read_file(params);
        Box::pin(async move { Ok(call.await?.data_base64.into_inner()) })
    }

    /// Reads a regular file of any size in blocks.
    fn read_file_stream<'a>(
        &'a self,
        path: &PathUri,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<FileReadStream>> {
        let open = self.call_open(path.clone(), OpenMode::Read, sandbox.cloned());
        Box::pin(async move { Ok(FileReadStream::new(open.await?)) })
    }

    /// Makes this the whole content of a file, which is created if need be; its directory must exist.
    fn write_file<'a>(
        &'a self,
        path: &PathUri,
        content: Vec<u8>,
        options: WriteFileOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        let params = WriteFileParams {
            path: path.clone(),
            data_base64: base64_simd::STANDARD.encode_to_string(content),
            atomic: options.atomic,
            follow_symlinks: options.follow_symlinks,
            sandbox: sandbox.cloned(),
        };
        empty(self.call_write_file(params))
    }

    /// Opens a regular file for a new content of any size; it is created, or empty from now on.
    fn open_for_replacement<'a>(
        &'a self,
        path: &PathUri,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<FileWriteStream>> {
        let open = self.call_open(path.clone(), OpenMode::Replace, sandbox.cloned());
        Box::pin(async move { Ok(FileWriteStream::new(open.await?)) })
    }

    /// Creates a directory.
    fn create_directory<'a>(
        &'a self,
        path: &PathUri,
        options: CreateDirectoryOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        empty(self.call_create_directory(CreateDirectoryParams {
            path: path.clone(),
            recursive: options.recursive,
            follow_symlinks: options.follow_symlinks,
            sandbox: sandbox.cloned(),
        }))
    }

    /// Describes what a path names; a link by its target.
    fn get_metadata<'a>(
        &'a self,
        path: &PathUri,
        options: GetMetadataOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<Metadata>> {
        self.call_get_metadata(GetMetadataParams {
            path: path.clone(),
            follow_symlinks: options.follow_symlinks,
            sandbox: sandbox.cloned(),
        })
    }

    /// The path without links; every component must exist.
    fn canonicalize<'a>(
        &'a self,
        path: &PathUri,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<PathUri>> {
        let params = CanonicalizeParams { path: path.clone(), sandbox: sandbox.cloned() };
        let call = self.call_canonicalize(params);
        Box::pin(async move { Ok(call.await?.path) })
    }

    /// Lists a directory, in no order; a link by the kind of its target, none that leads nowhere.
    fn read_directory<'a>(
        &'a self,
        path: &PathUri,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<Vec<DirectoryEntry>>> {
        entries(self.call_read_directory(ReadDirectoryParams {
            path: path.clone(),
            links: false,
            sandbox: sandbox.cloned(),
        }))
    }

    /// Lists a directory, in no order; every link as a link, with its text.
    fn read_directory_with_links<'a>(
        &'a self,
        path: &PathUri,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<Vec<DirectoryEntry>>> {
        entries(self.call_read_directory(ReadDirectoryParams {
            path: path.clone(),
            links: true,
            sandbox: sandbox.cloned(),
        }))
    }

    /// Lists a tree.
    fn walk<'a>(
        &'a self,
        path: &PathUri,
        options: WalkOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<WalkResponse>> {
        self.call_walk(WalkParams { path: path.clone(), options, sandbox: sandbox.cloned() })
    }

    /// Removes a file, a directory, or a link itself.
    fn remove<'a>(
        &'a self,
        path: &PathUri,
        options: RemoveOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        empty(self.call_remove(RemoveParams {
            path: path.clone(),
            recursive: options.recursive,
            force: options.force,
            follow_symlinks: options.follow_symlinks,
            sandbox: sandbox.cloned(),
        }))
    }

    /// Copies within the executor; a link as a link.
    fn copy<'a>(
        &'a self,
        source: &PathUri,
        destination: &PathUri,
        options: CopyOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        empty(self.call_copy(CopyParams {
            source_path: source.clone(),
            destination_path: destination.clone(),
            recursive: options.recursive,
            sandbox: sandbox.cloned(),
        }))
    }

    /// Gives a path another name on the same file system, atomically; a link itself is moved.
    fn rename<'a>(
        &'a self,
        source: &PathUri,
        destination: &PathUri,
        options: RenameOptions,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        empty(self.call_rename(RenameParams {
            source_path: source.clone(),
            destination_path: destination.clone(),
            replace: options.replace,
            sandbox: sandbox.cloned(),
        }))
    }

    /// Sets permission bits; a final link is followed.
    fn set_permissions<'a>(
        &'a self,
        path: &PathUri,
        mode: FileMode,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        let params = SetPermissionsParams { path: path.clone(), mode, sandbox: sandbox.cloned() };
        empty(self.call_set_permissions(params))
    }

    /// Creates a symbolic link with this text.
    fn create_symlink<'a>(
        &'a self,
        path: &PathUri,
        target: &str,
        sandbox: Option<&SandboxContext>,
    ) -> BoxFuture<'a, io::Result<()>> {
        let (path, target) = (path.clone(), target.to_owned());
        empty(self.call_create_symlink(CreateSymlinkParams { path, target, sandbox: sandbox.cloned() }))
    }
}

impl<T: FileCalls> ExecutorFileSystem for T {}

fn empty<T: Send + 'static>(call: BoxFuture<'_, io::Result<T>>) -> BoxFuture<'_, io::Result<()>> {
    Box::pin(async move { call.await.map(drop) })
}

fn entries(call: FileCall<'_, ReadDirectory>) -> BoxFuture<'_, io::Result<Vec<DirectoryEntry>>> {
    Box::pin(async move { Ok(call.await?.entries) })
}
