use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::fsops::FsError;
use crate::protocol::failure::FileErrorKind;

const MAX_HANDLES: usize = 128;
const MAX_ID_BYTES: usize = 32;

/// An id that is taken; the file comes when it has been opened.
type Slot = Arc<OnceLock<File>>;

/// The open files of one connection.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<HashMap<String, Slot>>);

impl Handles {
    /// Takes an id, before the file is touched.
    pub(super) fn reserve(&self, id: &str) -> Result<Slot, FsError> {
        check_id(id)?;
        let mut slots = self.slots();
        if slots.contains_key(id) {
            return Err(FsError::invalid(
                FileErrorKind::Limit,
                format_args!("file handle `{id}` is open already"),
            ));
        }
        if slots.len() >= MAX_HANDLES {
            let message = format!("{MAX_HANDLES} file handles are open on this connection; close one first");
            return Err(FsError::invalid(FileErrorKind::Limit, message));
        }
        let slot = Slot::default();
        slots.insert(id.to_owned(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Gives back an id whose file could not be opened.
    pub(super) fn release(&self, id: &str, slot: &Slot) {
        let mut slots = self.slots();
        if slots.get(id).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            slots.remove(id);
        }
    }

    /// The slot of an open file.
    pub(super) fn get(&self, id: &str) -> Result<Slot, FsError> {
        check_id(id)?;
        self.slots().get(id).cloned().ok_or_else(|| FsError::unknown_handle(id))
    }

    /// Forgets an id. The file closes when its last use ends.
    pub(super) fn close(&self, id: &str) -> Result<Option<Slot>, FsError> {
        check_id(id)?;
        Ok(self.slots().remove(id))
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_id(id: &str) -> Result<(), FsError> {
    if id.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    Err(FsError::invalid(
        FileErrorKind::Limit,
        format_args!("a file handle id has at most {MAX_ID_BYTES} bytes, not {}", id.len()),
    ))
}
