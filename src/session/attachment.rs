//! Who looks at a session: one holder, any number of observers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

use super::{Session, SessionRegistry, executor};
use crate::network::desk;
use crate::process::Process;
use crate::process::feed::Feed;

/// How a connection is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It owns the session; processes wait for it, and the session lives as long as it does.
    Holder,
    /// It looks on and may end processes.
    Observer,
}

#[derive(Debug)]
struct Seat {
    feed: Arc<Feed>,
    role: Role,
    probe: Arc<Probe>,
}

/// Asks a connection whether its peer is alive.
#[derive(Debug, Default)]
struct Probe {
    asked: AtomicBool,
    connection: AtomicWaker,
}

/// The seats of a session.
#[derive(Debug, Default)]
pub(super) struct Attached {
    seats: Vec<Seat>,
    detached_at_ms: Option<u64>,
    /// Ends the wait for a new holder.
    expiry: Option<CancellationToken>,
}

impl Attached {
    pub(super) fn has_holder(&self) -> bool {
        self.seats.iter().any(|seat| seat.role == Role::Holder)
    }

    pub(super) fn observers(&self) -> usize {
        self.seats.iter().filter(|seat| seat.role == Role::Observer).count()
    }

    pub(super) fn detached_at_ms(&self) -> Option<u64> {
        self.detached_at_ms
    }
}

/// A connection's seat. Dropping it detaches: the session goes on for its detached time.
#[derive(Debug)]
pub struct Attachment {
    session: Arc<Session>,
    feed: Arc<Feed>,
    role: Role,
    probe: Arc<Probe>,
    /// Of the holder.
    desk: Option<desk::Seat>,
    /// Where the session is forgotten; gone for a session that nobody resumes.
    registry: Weak<SessionRegistry>,
}

impl Attachment {
    /// The session.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Events of the session's processes.
    #[must_use]
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// How this connection is attached.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Where the session's proxies ask its holder.
    #[must_use]
    pub fn desk(&self) -> Option<&desk::Seat> {
        self.desk.as_ref()
    }

    /// Ready when somebody else wants the session: find out whether the peer is alive. For the connection's task.
    pub fn poll_probed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.probe.connection.register(cx.waker());
        if self.probe.asked.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Session {
    /// Attaches a connection. `None` if another one holds the session; that one is then asked whether it is alive.
    ///
    /// Events come from now on: what was told before is read with `process/read`.
    pub(super) fn attach(
        self: &Arc<Self>,
        role: Role,
        registry: Weak<SessionRegistry>,
    ) -> Option<Attachment> {
        let feed = Feed::new(role == Role::Holder);
        let probe = Arc::new(Probe::default());
        let mut attached = self.attached();
        if role == Role::Holder {
            if let Some(holder) = attached.seats.iter().find(|seat| seat.role == Role::Holder) {
                holder.probe.asked.store(true, Ordering::Release);
                holder.probe.connection.wake();
                return None;
            }
            attached.detached_at_ms = None;
            if let Some(expiry) = attached.expiry.take() {
                expiry.cancel();
            }
        }
        let desk = (role == Role::Holder).then(|| self.desk.attach());
        attached.seats.push(Seat { feed: Arc::clone(&feed), role, probe: Arc::clone(&probe) });
        drop(attached);
        for process in self.table().processes() {
            process.log().watch(&feed, false);
        }
        Some(Attachment { session: Arc::clone(self), feed, role, probe, desk, registry })
    }

    /// Lets everybody attached have the events of a new process, from its first one on.
    pub(super) fn publish(&self, process: &Arc<Process>) {
        let feeds: Vec<Arc<Feed>> = self.attached().seats.iter().map(|seat| Arc::clone(&seat.feed)).collect();
        for feed in feeds {
            process.log().watch(&feed, true);
            // It may have detached meanwhile, after its last look at the table.
            if !self.attached().seats.iter().any(|seat| Arc::ptr_eq(&seat.feed, &feed)) {
                process.log().unwatch(&feed);
            }
        }
    }

    fn detach(self: &Arc<Self>, feed: &Arc<Feed>, role: Role, registry: &Weak<SessionRegistry>) {
        let mut attached = self.attached();
        attached.seats.retain(|seat| !Arc::ptr_eq(&seat.feed, feed));
        let expiry = (role == Role::Holder).then(CancellationToken::new);
        if let Some(expiry) = &expiry {
            attached.detached_at_ms = Some(executor::now_ms());
            attached.expiry = Some(expiry.clone());
        }
        drop(attached);
        for process in self.table().processes() {
            process.log().unwatch(feed);
        }
        if let (Some(expiry), Some(registry), Ok(runtime)) =
            (expiry, registry.upgrade(), tokio::runtime::Handle::try_current())
        {
            let (session, registry) = (Arc::downgrade(self), Arc::downgrade(&registry));
            runtime.spawn(expire(session, registry, expiry));
        }
    }
}

/// Ends a session that nobody has resumed in time.
async fn expire(session: Weak<Session>, registry: Weak<SessionRegistry>, resumed: CancellationToken) {
    let Some(lifetime) = registry.upgrade().map(|registry| registry.detached_lifetime()) else { return };
    tokio::select! {
        () = resumed.cancelled() => return,
        () = tokio::time::sleep(lifetime) => {}
    }
    if let (Some(session), Some(registry)) = (session.upgrade(), registry.upgrade()) {
        registry.expire(&session, &resumed).await;
    }
}

impl Session {
    /// Whether nobody holds the session since the detach that armed `expiry`.
    pub(super) fn is_abandoned(&self, expiry: &CancellationToken) -> bool {
        !self.attached().has_holder() && !expiry.is_cancelled()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Before the next holder can take its place.
        self.desk = None;
        self.session.detach(&self.feed, self.role, &self.registry);
    }
}

/// The longest wait of a detached session that makes sense to arm.
pub(super) const LONGEST_DETACHED: Duration = Duration::from_secs(30 * 24 * 3600);
