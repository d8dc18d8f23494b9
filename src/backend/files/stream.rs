//! Content of any size, in blocks, a few of which are on their way at a time.

use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};

use super::OpenFile;
use crate::backend::BoxFuture;
use crate::protocol::fs::ReadBlockResponse;

/// The largest block, in bytes.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Blocks on their way at a time: enough to keep a connection busy while a block is read or written.
const IN_FLIGHT: usize = 4;

/// Reads a file from its beginning to its end. What has been asked for ahead is bounded by 4 MiB.
pub struct FileReadStream {
    file: Arc<dyn OpenFile>,
    ahead: FuturesOrdered<BoxFuture<'static, io::Result<ReadBlockResponse>>>,
    /// Where the next block begins.
    offset: u64,
    ended: bool,
}

impl FileReadStream {
    pub(super) fn new(file: Arc<dyn OpenFile>) -> Self {
        Self { file, ahead: FuturesOrdered::new(), offset: 0, ended: false }
    }

    /// The next bytes, never none; `None` at the end. A file that grows meanwhile ends where the end was met.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The file cannot be read, or the connection was lost; nothing follows then.
    pub async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        while !self.ended && self.ahead.len() < IN_FLIGHT {
            self.ask();
        }
        if self.ended {
            return Ok(None);
        }
        let block = match self.ahead.next().await {
            Some(Ok(block)) => block,
            Some(Err(error)) => return Err(self.fail(error)),
            None => return Ok(None),
        };
        if block.eof {
            self.end().await;
        }
        let bytes = block.chunk.into_inner();
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    fn ask(&mut self) {
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        self.offset += BLOCK_BYTES as u64;
        self.ahead.push_back(Box::pin(async move { file.read_block(offset, BLOCK_BYTES as u64).await }));
    }

    /// Forgets what was asked for behind the end: if the file has grown, it does not follow what was read.
    async fn end(&mut self) {
        self.ended = true;
        self.ahead.clear();
        // All has been read; a handle that cannot be closed any more is closed already.
        let _ = self.file.close().await;
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        self.ended = true;
        self.ahead.clear();
        error
    }
}

/// Writes a file from its beginning to its end. What is on its way is bounded by 4 MiB.
pub struct FileWriteStream {
    file: Arc<dyn OpenFile>,
    on_the_way: FuturesUnordered<BoxFuture<'static, io::Result<()>>>,
    /// Where the next block begins.
    offset: u64,
    incomplete: bool,
}

impl FileWriteStream {
    pub(super) fn new(file: Arc<dyn OpenFile>) -> Self {
        Self { file, on_the_way: FuturesUnordered::new(), offset: 0, incomplete: false }
    }

    /// Appends bytes, any number of them. It returns while some are still on their way: only [`Self::finish`] says
    /// that all are written. If the future is dropped, part of the bytes may have been appended.
    ///
    /// # Errors
    /// These or earlier bytes could not be written; the content is incomplete then, whatever follows.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for block in bytes.chunks(BLOCK_BYTES) {
            self.make_room(IN_FLIGHT - 1).await?;
            let (file, offset, block) = (Arc::clone(&self.file), self.offset, block.to_vec());
            self.offset += block.len() as u64;
            self.on_the_way.push(Box::pin(async move { file.write_block(offset, block).await }));
        }
        Ok(())
    }

    /// Waits until everything is written, and closes the file. Cancel-safe: it can be called again.
    ///
    /// # Errors
    /// Something could not be written; the content is incomplete.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.make_room(0).await?;
        if self.incomplete {
            return Err(io::Error::other("an earlier write failed, so the content is incomplete"));
        }
        self.file.close().await
    }

    /// Writes a block anywhere, and waits until it is written; gaps read as zeros. Cancel-safe.
    ///
    /// # Errors
    /// It is empty or larger than [`BLOCK_BYTES`], or could not be written.
    pub async fn write_block(&mut self, offset: u64, block: &[u8]) -> io::Result<()> {
        self.file.write_block(offset, block.to_vec()).await
    }

    async fn make_room(&mut self, most: usize) -> io::Result<()> {
        while self.on_the_way.len() > most {
            if let Some(Err(error)) = self.on_the_way.next().await {
                self.incomplete = true;
                return Err(error);
            }
        }
        Ok(())
    }
}
