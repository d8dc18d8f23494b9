//! Values made of files, read anew when a file changes.
//!
//! A change that cannot be used is logged once, and what was read before stays in force: a failed rotation neither opens
//! nor closes anything.

use std::fmt::{Debug, Display};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Files, and what they mean.
pub(super) trait Source: Debug {
    /// What is made of them.
    type Value;
    /// Why nothing can be made of them.
    type Error: Display;

    /// What it is called in the log.
    const NAME: &str;

    fn files(&self) -> Vec<&Path>;

    fn read(&self) -> Result<Self::Value, Self::Error>;
}

/// A value that follows the changes of its files. It blocks on the disk.
#[derive(Debug)]
pub(super) struct Followed<S: Source> {
    source: S,
    content: Mutex<Content<S::Value>>,
}

#[derive(Debug)]
struct Content<V> {
    stamps: Vec<Option<Stamp>>,
    value: Arc<V>,
}

/// What changes when a file does: device, inode, size, modification and change time.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl<S: Source> Followed<S> {
    /// Reads it for the first time.
    pub(super) fn open(source: S) -> Result<Self, S::Error> {
        let stamps = stamps(&source);
        let value = Arc::new(source.read()?);
        Ok(Self { source, content: Mutex::new(Content { stamps, value }) })
    }

    /// The value, of the files as they are now if they can be used.
    pub(super) fn current(&self) -> Arc<S::Value> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut content);
        Arc::clone(&content.value)
    }

    /// The stamps are taken before the content, so that a write in between is seen the next time; and they are kept
    /// after a failure, so that one bad version is reported once.
    fn refresh(&self, content: &mut Content<S::Value>) {
        let current = stamps(&self.source);
        if current == content.stamps {
            return;
        }
        content.stamps = current;
        let (what, files) = (S::NAME, self.source.files());
        match self.source.read() {
            Ok(value) => {
                content.value = Arc::new(value);
                tracing::info!(what, ?files, "read a changed file");
            }
            Err(error) => {
                tracing::warn!(what, ?files, %error, "kept what was read before: a changed file is unusable");
            }
        }
    }
}

fn stamps(source: &impl Source) -> Vec<Option<Stamp>> {
    source.files().into_iter().map(|path| stamp(path).ok()).collect()
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let data = std::fs::metadata(path)?;
    let modified = (data.mtime(), data.mtime_nsec());
    Ok((data.dev(), data.ino(), data.size(), modified, (data.ctime(), data.ctime_nsec())))
}
