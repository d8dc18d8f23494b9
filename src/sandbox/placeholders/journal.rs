//! The list of placeholders that outlives the server: a slot of fixed size for each, in a file of the state directory
//! or, where there is none, in memory that the guard holds too.
//!
//! A file is locked for as long as its server or the guard of that server lives, so one that can be locked is an
//! orphan. Nothing is synced to the disk: the journal is for processes that are killed, not for machines that are.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, MemfdFlags, OFlags, flock, memfd_create};

use super::lock;

/// A path and the zero that ends it.
const SLOT_BYTES: usize = 4096;
const DIRECTORY: &str = "placeholders";

#[derive(Debug)]
pub(super) struct Journal {
    /// Without one nothing is recorded, and so nothing made.
    file: Option<File>,
    /// Where it is on disk.
    path: Option<PathBuf>,
    /// Slots that are free again, and the first that was never used.
    free: Mutex<(Vec<u32>, u32)>,
}

/// A path that is in the journal.
#[derive(Debug)]
pub(super) struct Record {
    slot: u32,
    pub(super) path: PathBuf,
}

impl Record {
    /// The same, for a directory that has been moved.
    pub(super) fn at(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }
}

impl Journal {
    /// A new journal, on disk if that can be.
    pub(super) fn open(state_dir: Option<&Path>) -> Self {
        let on_disk = state_dir.and_then(|directory| create(&directory.join(DIRECTORY)).map_err(warn).ok());
        let (file, path) = match on_disk {
            Some((file, path)) => (Some(file), Some(path)),
            None => (in_memory().map_err(warn).ok(), None),
        };
        Self { file, path, free: Mutex::default() }
    }

    /// Makes the records of orphaned journals its own.
    pub(super) fn take_over(&self) -> Vec<Record> {
        let entries =
            self.path.as_deref().and_then(Path::parent).and_then(|path| std::fs::read_dir(path).ok());
        let orphans = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        orphans.flat_map(|path| self.take_over_one(&path).unwrap_or_default()).collect()
    }

    fn take_over_one(&self, path: &Path) -> io::Result<Vec<Record>> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        if !is_name(path) || !is_locked_by_us(&file, path) {
            return Ok(Vec::new());
        }
        let records = paths(&file).iter().map(|path| self.add(path)).collect::<io::Result<_>>()?;
        std::fs::remove_file(path)?;
        Ok(records)
    }

    pub(super) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other("there is no journal of placeholders"))
    }

    pub(super) fn add(&self, path: &Path) -> io::Result<Record> {
        let mut bytes = path.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        if bytes.len() > SLOT_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidFilename));
        }
        let (file, slot) = (self.file()?, self.take());
        match file.write_all_at(&bytes, offset(slot)) {
            Ok(()) => Ok(Record { slot, path: path.to_owned() }),
            Err(error) => {
                self.erase(slot);
                Err(error)
            }
        }
    }

    pub(super) fn remove(&self, record: Record) {
        self.erase(record.slot);
    }

    fn take(&self) -> u32 {
        let mut free = lock(&self.free);
        free.0.pop().unwrap_or_else(|| {
            free.1 += 1;
            free.1 - 1
        })
    }

    fn erase(&self, slot: u32) {
        // A record that stays names a directory that is gone, or is not marked: nothing would come of it.
        let _ = self.file().and_then(|file| file.write_all_at(&[0], offset(slot)));
        lock(&self.free).0.push(slot);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let (Some(file), Some(path)) = (&self.file, &self.path)
            && paths(file).is_empty()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * SLOT_BYTES as u64
}

fn warn(error: io::Error) {
    tracing::warn!(%error, "a journal of placeholders cannot be made");
}

fn in_memory() -> io::Result<File> {
    Ok(memfd_create("exec-server-placeholders", MemfdFlags::CLOEXEC)?.into())
}

fn create(directory: &Path) -> io::Result<(File, PathBuf)> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    loop {
        let path = directory.join(uuid::Uuid::new_v4().to_string());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        // Another server that is just starting may have taken it for an orphan.
        if is_locked_by_us(&file, &path) {
            return Ok((file, path));
        }
    }
}

fn is_locked_by_us(file: &File, path: &Path) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(file, path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
    let named = std::fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|own| named.is_ok_and(|named| named == own))
}

/// The paths in a journal.
pub(super) fn paths(file: &File) -> Vec<PathBuf> {
    let length = file.metadata().map_or(0, |data| data.len());
    let slots = u32::try_from(length.div_ceil(SLOT_BYTES as u64)).unwrap_or(0);
    (0..slots).filter_map(|slot| path_in(file, slot)).collect()
}

fn path_in(file: &File, slot: u32) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    while bytes.len() < SLOT_BYTES {
        let mut more = [0; SLOT_BYTES];
        let room = SLOT_BYTES - bytes.len();
        match file.read_at(&mut more[..room], offset(slot) + bytes.len() as u64) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&more[..count]),
        }
    }
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let path = PathBuf::from(OsStr::from_bytes(&bytes[..end]));
    path.is_absolute().then_some(path)
}

/// Removes a journal from the disk, if it is one and is there.
pub(super) fn discard(file: &File) {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(path) = std::fs::read_link(link) else { return };
    if is_name(&path) && file.metadata().is_ok_and(|data| data.is_file()) && is_at(file, &path) {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether a path is one that this module gives to journals.
fn is_name(path: &Path) -> bool {
    let is_id = |name: &OsStr| name.to_str().is_some_and(|name| uuid::Uuid::try_parse(name).is_ok());
    path.file_name().is_some_and(is_id) && path.parent().is_some_and(|parent| parent.ends_with(DIRECTORY))
}
