//! Placeholders: empty directories that keep a protected path that does not exist from being created in a sandbox.
//!
//! A sandbox can hide or write-protect only what is there, by a mount on it. So a protected path that is missing gets
//! a directory for as long as a sandbox needs it. When the directory goes, the mount on it goes too, in every sandbox
//! at once; therefore each has one owner, who counts the sandboxes that use it and removes it after the last.
//!
//! * A placeholder is always a directory, also where a file is to be kept away: only a directory is removed by one
//!   step that fails if somebody has put something into it meanwhile.
//! * It is known by its mode (`spot`), which it has from its first moment. What is not marked so, or is not empty,
//!   is never removed.
//! * Several servers may share one. Each holds a shared lock on the directory, and only who gets the exclusive lock
//!   removes it.
//! * Its path is in a journal (`journal`) before it exists and until it is gone. The guard has the journal too and
//!   outlives the server; where the state directory can be written, the next server finds it as well.
//!
//! Everything here blocks, on the file system of the path; call it where blocking is allowed.

mod journal;
mod leftovers;
mod spot;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::journal::{Journal, Record};
use self::leftovers::Job;
pub use self::leftovers::sweep;
pub use self::spot::Identity;
use self::spot::{Cleared, Found, Spot};

/// How long another server may take to let go of a placeholder that it is removing.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// The owner of all placeholders of a server.
#[derive(Debug)]
pub struct Placeholders(Owner);

#[derive(Debug, Clone)]
struct Owner {
    shared: Arc<Shared>,
    /// Work for the thread, which ends after the last sender.
    later: Sender<Job>,
}

#[derive(Debug)]
struct Shared {
    journal: Journal,
    slots: Mutex<HashMap<PathBuf, Arc<Mutex<Slot>>>>,
    /// Those that this server holds.
    known: Mutex<HashSet<Identity>>,
}

/// One path. Locked while its files are worked on, so that a slow file system holds up nobody else.
#[derive(Debug, Default)]
struct Slot {
    users: usize,
    holding: Option<Holding>,
    /// There is one from before the directory exists.
    record: Option<Record>,
}

#[derive(Debug)]
struct Holding {
    /// Carries the shared lock.
    directory: OwnedFd,
    identity: Identity,
}

/// The right of one sandbox to its placeholders. Dropping it gives them back later, on a thread of the owner;
/// [`Lease::release`] does it at once.
#[derive(Debug)]
pub struct Lease {
    protections: Vec<Protection>,
    uses: Vec<Use>,
    owner: Owner,
}

/// What stands at a path that a sandbox must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Something of the host. It is to be protected as it is.
    Existing(PathBuf),
    /// A placeholder, at the path or at its first ancestor that is missing. It is to be covered.
    Placeholder(PathBuf, Identity),
}

/// A path cannot be kept from being created.
#[derive(Debug, thiserror::Error)]
#[error("the protected path {} cannot be held: {source}", .path.display())]
pub struct PlaceholderError {
    /// The path that was asked for.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

enum Joined {
    Yes(Protection),
    /// Somebody else made it, and the host has put something in.
    Filled,
    /// Whoever made it is removing it.
    Going,
}

/// One count of one placeholder.
#[derive(Debug)]
struct Use {
    key: PathBuf,
    slot: Arc<Mutex<Slot>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Placeholders {
    /// An owner with a journal in this directory, or one in memory. Begins to remove what servers that were killed have
    /// left.
    #[must_use]
    pub fn new(state_dir: Option<&Path>) -> Self {
        let journal = Journal::open(state_dir);
        let orphans = journal.take_over();
        let shared = Arc::new(Shared { journal, slots: Mutex::default(), known: Mutex::default() });
        let owner = Owner { later: leftovers::start(Arc::clone(&shared)), shared };
        for record in orphans {
            owner.later(Job::Clear(record));
        }
        Self(owner)
    }

    /// The journal, for the helper that outlives the server and calls [`sweep`].
    ///
    /// # Errors
    /// When there is none, or no descriptor is left for it.
    pub fn journal(&self) -> io::Result<File> {
        self.0.shared.journal.file()?.try_clone()
    }

    /// Sees to it that something stands at each path until the lease ends: what is there, or a placeholder. The paths
    /// are absolute and real: a link on the way is an error. Paths that exist belong into the list as well, since a
    /// placeholder of another sandbox looks like an existing path, and has to be counted.
    ///
    /// # Errors
    /// [`PlaceholderError`] for the first path that cannot be held; nothing is left behind.
    pub fn acquire(&self, paths: &[PathBuf]) -> Result<Lease, PlaceholderError> {
        let mut lease = Lease { protections: Vec::new(), uses: Vec::new(), owner: self.0.clone() };
        for path in paths {
            match self.0.hold(path) {
                Ok((protection, taken)) => {
                    lease.protections.push(protection);
                    lease.uses.extend(taken);
                }
                Err(source) => {
                    lease.release();
                    return Err(PlaceholderError { path: path.clone(), source });
                }
            }
        }
        Ok(lease)
    }

    /// Whether this is a placeholder that a listing under a sandbox should not show.
    #[must_use]
    pub fn is_placeholder(&self, identity: Identity) -> bool {
        lock(&self.0.shared.known).contains(&identity)
    }
}

impl Lease {
    /// What stands at each path, in the order of the request.
    #[must_use]
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// Gives the placeholders back and removes those that nobody uses any more.
    pub fn release(mut self) {
        for taken in std::mem::take(&mut self.uses) {
            self.owner.clear_later(self.owner.shared.give_back(taken));
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.uses.is_empty() {
            self.owner.later(Job::GiveBack(std::mem::take(&mut self.uses)));
        }
    }
}

impl Owner {
    fn later(&self, job: Job) {
        // It fails only if the thread has panicked; the journal is still there for the guard.
        let _ = self.later.send(job);
    }

    fn clear_later(&self, left: Option<Record>) {
        if let Some(record) = left {
            self.later(Job::Clear(record));
        }
    }

    fn hold(&self, path: &Path) -> io::Result<(Protection, Option<Use>)> {
        let spot = Spot::find(path)?;
        let key = spot.path.clone();
        let slot = Arc::clone(lock(&self.shared.slots).entry(key.clone()).or_default());
        let outcome = self.shared.occupy(&spot, &mut lock(&slot));
        let taken = Use { key, slot };
        if let Ok(Some(protection)) = outcome {
            return Ok((protection, Some(taken)));
        }
        self.clear_later(self.shared.settle(taken));
        outcome.map(|_| (Protection::Existing(path.to_owned()), None))
    }
}

impl Shared {
    /// Makes or joins the placeholder of a spot; `None` where something of the host stands.
    fn occupy(&self, spot: &Spot, slot: &mut Slot) -> io::Result<Option<Protection>> {
        let deadline = Instant::now() + PATIENCE;
        let mut made = false;
        while Instant::now() < deadline {
            match spot.look()? {
                Found::Missing => {
                    if slot.record.is_none() {
                        slot.record = Some(self.journal.add(&spot.path)?);
                    }
                    made = spot.make()?;
                }
                Found::Other if made => {
                    spot.remove()?;
                    return Err(io::Error::other("its file system does not keep the mode of a directory"));
                }
                Found::Other => return Ok(None),
                Found::Placeholder(directory, identity) => {
                    match self.join(spot, slot, directory, identity)? {
                        Joined::Yes(protection) => {
                            slot.users += 1;
                            return Ok(Some(protection));
                        }
                        Joined::Filled => return Ok(None),
                        Joined::Going => std::thread::sleep(PAUSE),
                    }
                }
            }
        }
        Err(io::Error::other("it is locked by another process"))
    }

    /// Takes part in a placeholder. One that the host has filled meanwhile is the host's, but what is held stays held.
    fn join(
        &self,
        spot: &Spot,
        slot: &mut Slot,
        directory: OwnedFd,
        identity: Identity,
    ) -> io::Result<Joined> {
        let is_empty = spot::is_empty(&directory)?;
        if slot.holding.as_ref().is_none_or(|holding| holding.identity != identity) {
            if !is_empty {
                return Ok(Joined::Filled);
            }
            if !spot::lock_shared(&directory) || !spot.names(identity) {
                return Ok(Joined::Going);
            }
            if slot.record.is_none() {
                slot.record = Some(self.journal.add(&spot.path)?);
            }
            self.keep(slot, Holding { directory, identity });
        }
        let path = spot.path.clone();
        Ok(Joined::Yes(if is_empty {
            Protection::Placeholder(path, identity)
        } else {
            Protection::Existing(path)
        }))
    }

    fn keep(&self, slot: &mut Slot, holding: Holding) {
        let mut known = lock(&self.known);
        known.insert(holding.identity);
        // What was held before has been removed or moved away from outside.
        if let Some(lost) = slot.holding.replace(holding) {
            known.remove(&lost.identity);
            tracing::warn!("a placeholder was removed from outside while a sandbox needed it");
        }
    }

    /// Ends one use. What cannot be removed yet comes back.
    fn give_back(&self, taken: Use) -> Option<Record> {
        lock(&taken.slot).users -= 1;
        self.settle(taken)
    }

    /// Clears what nobody uses.
    fn settle(&self, Use { key, slot }: Use) -> Option<Record> {
        let left = {
            let mut slot = lock(&slot);
            if slot.users > 0 {
                return None;
            }
            let path = slot.holding.take().map_or_else(|| key.clone(), |holding| self.let_go(holding, &key));
            slot.record.take().and_then(|record| self.clear(record, &path))
        };
        let mut slots = lock(&self.slots);
        // Nobody else has it, and nobody can get it while the table is locked.
        if Arc::strong_count(&slot) == 2 {
            slots.remove(&key);
        }
        left
    }

    /// Drops the lock; where the directory is now, for one that was renamed with its workspace.
    fn let_go(&self, holding: Holding, key: &Path) -> PathBuf {
        lock(&self.known).remove(&holding.identity);
        spot::unlock(&holding.directory);
        spot::current_path(&holding.directory).unwrap_or_else(|| key.to_owned())
    }

    /// Removes a placeholder and its record, or keeps the record.
    fn clear(&self, record: Record, path: &Path) -> Option<Record> {
        match spot::clear(path) {
            Cleared::Done => {
                self.journal.remove(record);
                None
            }
            Cleared::NotYet => Some(record.at(path)),
        }
    }
}
