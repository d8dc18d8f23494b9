//! All sessions of a server.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::attachment::{Attachment, LONGEST_DETACHED, Role};
use super::{Executor, Session};
use crate::protocol::process::ProcessState;
use crate::protocol::session::{SessionListResponse, SessionSummary};
use crate::telemetry::Limit;

/// Why there is no session to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It never was, has ended, or is spelled differently.
    #[error("unknown session id {0}")]
    Unknown(String),
    /// Another connection holds it.
    #[error("session {0} is attached to another connection")]
    Attached(String),
    /// No further session.
    #[error("the limit of {0} sessions (server.max_sessions) is reached")]
    TooMany(usize),
}

/// See the module's description.
#[derive(Debug)]
pub struct SessionRegistry {
    executor: Arc<Executor>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    max_sessions: NonZeroUsize,
    detached: Duration,
}

impl SessionRegistry {
    /// An empty registry; detached sessions live for `detached`.
    #[must_use]
    pub fn new(executor: Arc<Executor>, max_sessions: NonZeroUsize, detached: Duration) -> Arc<Self> {
        Arc::new(Self {
            executor,
            sessions: Mutex::default(),
            max_sessions,
            detached: detached.min(LONGEST_DETACHED),
        })
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session and attaches its holder.
    ///
    /// # Errors
    /// When there are too many.
    pub fn create(self: &Arc<Self>, client_name: &str) -> Result<Attachment, SessionError> {
        let mut sessions = self.sessions();
        if sessions.len() >= self.max_sessions.get() {
            self.executor.telemetry().runs.limits.of(Limit::Sessions).increment();
            return Err(SessionError::TooMany(self.max_sessions.get()));
        }
        let session = Session::new(client_name, Arc::clone(&self.executor));
        sessions.insert(session.id().to_owned(), Arc::clone(&session));
        drop(sessions);
        let attachment = session.attach(Role::Holder, Arc::downgrade(self));
        attachment.ok_or_else(|| SessionError::Attached(session.id().to_owned()))
    }

    /// Attaches to a session that exists.
    ///
    /// # Errors
    /// When it does not exist, or a holder is wanted and there is one.
    pub fn attach(self: &Arc<Self>, id: &str, role: Role) -> Result<Attachment, SessionError> {
        // Under the lock, so that a session that is just expiring is either gone or not going to.
        let sessions = self.sessions();
        let session = sessions.get(id).ok_or_else(|| SessionError::Unknown(id.to_owned()))?;
        session.attach(role, Arc::downgrade(self)).ok_or_else(|| SessionError::Attached(id.to_owned()))
    }

    pub(super) fn detached_lifetime(&self) -> Duration {
        self.detached
    }

    pub(super) async fn expire(&self, session: &Arc<Session>, expiry: &CancellationToken) {
        {
            let mut sessions = self.sessions();
            if !session.is_abandoned(expiry) {
                return;
            }
            sessions.remove(session.id());
        }
        tracing::info!(session = session.id(), "a detached session has expired");
        session.end(self.executor.settings().grace).await;
    }

    /// Ends one session at once, as when its only possible connection has gone.
    pub async fn end(&self, session: &Arc<Session>) {
        self.sessions().remove(session.id());
        session.end(self.executor.settings().grace).await;
    }

    /// Ends all sessions.
    pub async fn end_all(&self, grace: Duration) {
        let sessions: Vec<Arc<Session>> = self.sessions().drain().map(|(_, session)| session).collect();
        join_all(sessions.iter().map(|session| session.end(grace))).await;
    }

    /// How many sessions and processes there are. It looks at each of them.
    #[must_use]
    pub fn census(&self) -> Census {
        let sessions: Vec<Arc<Session>> = self.sessions().values().map(Arc::clone).collect();
        let mut census = Census::default();
        sessions.iter().for_each(|session| session.count_into(&mut census));
        census
    }

    /// What runs the processes of the sessions.
    #[must_use]
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// All sessions, in order of creation.
    #[must_use]
    pub fn list(&self) -> SessionListResponse {
        let sessions: Vec<Arc<Session>> = self.sessions().values().map(Arc::clone).collect();
        let mut sessions: Vec<SessionSummary> = sessions.iter().map(|session| session.summary()).collect();
        sessions.sort_by(|a, b| (a.created_at_ms, &a.session_id).cmp(&(b.created_at_ms, &b.session_id)));
        SessionListResponse { sessions }
    }
}

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Sessions with a holder.
    pub attached: u64,
    /// Sessions that wait for one.
    pub detached: u64,
    /// Processes that run.
    pub running: u64,
    /// Processes that have ended while something holds their streams.
    pub exited: u64,
    /// Records of processes that are over.
    pub closed: u64,
}

impl Session {
    fn count_into(&self, census: &mut Census) {
        let holder = self.attached().has_holder();
        *if holder { &mut census.attached } else { &mut census.detached } += 1;
        for row in self.table().present() {
            *match super::state_of(&row.process.log().status()) {
                ProcessState::Running => &mut census.running,
                ProcessState::Exited => &mut census.exited,
                ProcessState::Closed => &mut census.closed,
            } += 1;
        }
    }

    fn summary(&self) -> SessionSummary {
        let processes = self.process_count();
        let attached = self.attached();
        SessionSummary {
            session_id: self.id.clone(),
            client_name: self.client_name.clone(),
            attached: attached.has_holder(),
            observers: attached.observers(),
            processes,
            created_at_ms: self.created_at_ms,
            detached_at_ms: attached.detached_at_ms(),
        }
    }
}
