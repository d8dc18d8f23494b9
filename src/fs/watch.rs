//! Tells once when one of some missing paths appears, or when one that is there changes.
//!
//! [`registration`] puts inotify watches on every directory on the way, [`route`] remembers what was there, so that
//! a change of the mount table rings only where it leads a path elsewhere. One watch is one inotify instance and one
//! open mount table; it waits for their readiness and has no thread. The kernel's queue is the only one; that it
//! overflows counts as a change.

mod registration;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::fs::inotify::{Event, ReadFlags, Reader};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use self::registration::Registration;
use self::route::Route;
use crate::path_uri::PathUri;
use crate::protocol::fs::WatchMissingParams;
use crate::spawn::watched::watched;

/// Paths that one watch may list.
pub const MAX_WATCHED_PATHS: usize = 64;

/// Room for several events of the longest name.
const EVENT_BUFFER: usize = 4096;

/// What happens to an entry of a watched directory.
const ENTRY: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// What happens to the watched thing itself. Which of it is asked for is decided at the registration.
const ITSELF: ReadFlags = ReadFlags::MODIFY
    .union(ReadFlags::ATTRIB)
    .union(ReadFlags::DELETE_SELF)
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED);

/// By watch descriptor, the names in a directory that matter.
type Names = HashMap<i32, HashSet<OsString>>;

/// Why nothing is watched.
#[derive(Debug, thiserror::Error)]
enum Unwatchable {
    #[error("1 to {MAX_WATCHED_PATHS} missing paths can be watched, not {0}")]
    Count(usize),
    #[error("a path is not one of this system")]
    Foreign,
    #[error("a path has too many components")]
    TooDeep,
    #[error("a path that should be missing exists")]
    Exists,
    #[error("the path that should be present does not exist")]
    Missing,
    #[error("a symbolic link is on the way")]
    Link,
    #[error("changes on this file system are not all seen from here")]
    FileSystem,
    #[error(transparent)]
    System(#[from] Errno),
    #[error(transparent)]
    Runtime(#[from] io::Error),
}

/// A watch that has not rung.
pub struct Watch {
    id: u64,
    /// Always there until the drop.
    events: Option<AsyncFd<OwnedFd>>,
    names: Names,
    mounts: BoxFuture<'static, ()>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("id", &self.id).field("names", &self.names).finish_non_exhaustive()
    }
}

impl Watch {
    /// Watches what the params name; `None` where that is not possible, so that absence must not be relied on.
    pub(super) async fn new(params: WatchMissingParams) -> Option<Self> {
        let id = params.watch_id;
        match Self::register(params).await {
            Ok(watch) => Some(watch),
            Err(reason) => {
                tracing::debug!(id, %reason, "missing paths are not watched");
                None
            }
        }
    }

    async fn register(params: WatchMissingParams) -> Result<Self, Unwatchable> {
        let id = params.watch_id;
        let (missing, present) = native_paths(&params)?;
        let registering = spawn_blocking(move || Registration::of(missing, present));
        let registration = registering.await.map_err(io::Error::from)??;
        let mount_table = watched(registration.mount_table, Interest::PRIORITY)?;
        Ok(Self {
            id,
            events: Some(watched(registration.inotify, Interest::READABLE)?),
            names: registration.names,
            mounts: mounted_elsewhere(mount_table, registration.routes.into()).boxed(),
        })
    }

    /// The id that the client gave it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ready when something has changed; not to be polled again then.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.poll_events(cx).is_ready() {
            return Poll::Ready(());
        }
        self.mounts.poll_unpin(cx)
    }

    /// Whether something has changed that is in the queue already.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        let Some(events) = &self.events else { return false };
        loop {
            match self.read(events.get_ref()) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    fn poll_events(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(events) = &self.events else { return Poll::Pending };
        loop {
            // Without the runtime nothing would be told any more.
            let Ok(mut ready) = ready!(events.poll_read_ready(cx)) else { return Poll::Ready(()) };
            if let Ok(Ok(true) | Err(_)) = ready.try_io(|events| self.read(events.get_ref())) {
                return Poll::Ready(());
            }
        }
    }

    /// Takes what one read gives from the queue: whether a change is among it.
    ///
    /// # Errors
    /// When the queue is empty. Whatever else fails counts as a change.
    fn read(&self, events: &OwnedFd) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER];
        let mut reader = Reader::new(events, &mut buffer);
        loop {
            let counts = match reader.next() {
                Ok(event) => self.counts(&event),
                Err(Errno::INTR) => false,
                Err(Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(_) => true,
            };
            if counts || reader.is_buffer_empty() {
                return Ok(counts);
            }
        }
    }

    fn counts(&self, event: &Event<'_>) -> bool {
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        let Some(names) = self.names.get(&event.wd()) else { return false };
        match event.file_name() {
            // With the attributes of a directory come those of its entries, which do not matter.
            Some(name) => {
                event.events().intersects(ENTRY) && names.contains(OsStr::from_bytes(name.to_bytes()))
            }
            None => event.events().intersects(ITSELF),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The kernel waits for other processors before it lets go of watches.
        if let (Some(events), Ok(runtime)) = (self.events.take(), Handle::try_current()) {
            let events = events.into_inner();
            runtime.spawn_blocking(move || drop(events));
        }
    }
}

/// The paths that should be missing, and the one that should be present.
fn native_paths(params: &WatchMissingParams) -> Result<(Vec<PathBuf>, Option<PathBuf>), Unwatchable> {
    let count = params.missing.len();
    if !(1..=MAX_WATCHED_PATHS).contains(&count) {
        return Err(Unwatchable::Count(count));
    }
    let native = |path: &PathUri| path.to_native_path().map_err(|_| Unwatchable::Foreign);
    let missing = params.missing.iter().map(native).collect::<Result<_, _>>()?;
    Ok((missing, params.present.as_ref().map(native).transpose()?))
}

/// Waits until a change of the mount table leads one of the routes elsewhere.
async fn mounted_elsewhere(mount_table: AsyncFd<OwnedFd>, routes: Arc<[Route]>) {
    // The table reports each change as something urgent.
    while let Ok(mut ready) = mount_table.ready(Interest::PRIORITY).await {
        ready.clear_ready();
        let routes = Arc::clone(&routes);
        let looking = spawn_blocking(move || routes.iter().any(Route::leads_elsewhere));
        if looking.await.unwrap_or(true) {
            return;
        }
    }
}
