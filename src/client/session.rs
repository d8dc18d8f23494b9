//! A session on a server, whatever becomes of its connections.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;

use super::bodies::Bodies;
use super::connection::{CallError, Connection, Notified};
use super::handshake::{Destination, Purpose};
use super::pending::Priority;
use super::processes::Processes;
use super::recovery;
use super::remote::EnvironmentConnectionState;
use crate::backend::{ExecServerError, Result};
use crate::protocol::environment::{EnvironmentInfo, Info};
use crate::protocol::http::BodyDelta;
use crate::protocol::process::ProcessId;
use crate::protocol::session::InitializeResult;
use crate::protocol::{Method, NotificationMethod};

/// Time for `environment/info`. A server that takes longer is taken for broken.
const INFO_LIMIT: Duration = Duration::from_secs(30);

/// See the module's description. Dropping it closes its connection.
pub(super) struct Session {
    id: String,
    pub(super) destination: Arc<Destination>,
    pub(super) processes: Arc<Processes>,
    pub(super) bodies: Arc<Bodies>,
    /// Numbers for file handles and HTTP requests.
    numbers: AtomicU64,
    link: watch::Sender<Link>,
    /// Starts that wait for their answer.
    starting: watch::Sender<usize>,
    /// Starts whose answer was lost; what they started is to be ended.
    abandoned: Mutex<HashSet<ProcessId>>,
    announced: watch::Sender<EnvironmentConnectionState>,
    pub(super) runtime: Handle,
}

/// How the session stands.
#[derive(Clone)]
pub(super) enum Link {
    Connected(Arc<Live>),
    Recovering,
    /// Lost for good, for this reason.
    Failed(Arc<str>),
}

/// The connection of a session, and what is known as long as it lives.
pub(super) struct Live {
    pub(super) connection: Connection,
    info: OnceCell<EnvironmentInfo>,
}

impl Live {
    pub(super) fn new(connection: Connection, initialized: InitializeResult) -> Arc<Self> {
        Arc::new(Self { connection, info: OnceCell::new_with(initialized.environment_info) })
    }

    /// What the executor is: from `initialize`, or asked for once.
    pub(super) async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        let ask = async || {
            let answer = timeout(INFO_LIMIT, self.connection.call_without_params::<Info>()).await;
            answer.unwrap_or_else(|_| {
                self.connection.abort();
                let why = format!("the server did not answer `environment/info` within {INFO_LIMIT:?}");
                Err(CallError::Failed(ExecServerError::Protocol(why)))
            })
        };
        self.info.get_or_try_init(ask).await.cloned()
    }
}

impl Session {
    /// Opens a new session.
    ///
    /// # Errors
    /// As [`Destination::open`].
    pub(super) async fn open(
        destination: Arc<Destination>,
        announced: watch::Sender<EnvironmentConnectionState>,
    ) -> Result<Arc<Self>> {
        let (processes, bodies) = (Arc::<Processes>::default(), Arc::<Bodies>::default());
        let routes = Routes { processes: Arc::clone(&processes), bodies: Arc::clone(&bodies) };
        let (connection, initialized) = destination.open(Purpose::Open, Arc::new(routes)).await?;
        let ended = connection.ended();
        let id = initialized.session_id.clone();
        let session = Arc::new(Self {
            id,
            destination,
            processes,
            bodies,
            numbers: AtomicU64::new(1),
            link: watch::Sender::new(Link::Connected(Live::new(connection, initialized))),
            starting: watch::Sender::new(0),
            abandoned: Mutex::default(),
            announced,
            runtime: Handle::current(),
        });
        session.announced.send_replace(EnvironmentConnectionState::Connected);
        tokio::spawn(recovery::supervise(Arc::downgrade(&session), Box::pin(ended)));
        Ok(session)
    }

    /// Takes what the server tells on another connection of the session.
    pub(super) fn routes(&self) -> Arc<dyn Notified> {
        Arc::new(Routes { processes: Arc::clone(&self.processes), bodies: Arc::clone(&self.bodies) })
    }

    /// A number that no other handle or request of the session has.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The id by which it is resumed.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// How it stands now.
    pub(super) fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    /// Why it is lost for good, if it is.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        match &*self.link.borrow() {
            Link::Failed(why) => Some(Arc::clone(why)),
            Link::Connected(_) | Link::Recovering => None,
        }
    }

    /// The connection; waits while the session is being resumed. Cancel-safe.
    ///
    /// # Errors
    /// [`ExecServerError::Disconnected`] when the session is lost for good.
    pub(super) async fn live(&self) -> Result<Arc<Live>> {
        let mut link = self.link.subscribe();
        let settled = link.wait_for(|link| match link {
            // One that has ended is about to be replaced.
            Link::Connected(live) => !live.connection.has_ended(),
            Link::Recovering => false,
            Link::Failed(_) => true,
        });
        match settled.await.as_deref() {
            Ok(Link::Connected(live)) => Ok(Arc::clone(live)),
            Ok(Link::Failed(why)) => Err(ExecServerError::Disconnected(why.to_string())),
            Ok(Link::Recovering) | Err(_) => Err(ExecServerError::TransportDisconnected),
        }
    }

    /// Calls, again on each next connection until there is an answer: for calls that do no harm twice. Cancel-safe.
    ///
    /// # Errors
    /// The server's; [`ExecServerError::Disconnected`] when the session is lost for good.
    pub(super) async fn repeat<M: Method>(
        &self,
        params: &M::Params,
        priority: Priority,
    ) -> Result<M::Output> {
        loop {
            let live = self.live().await?;
            match live.connection.call::<M>(params, priority).await {
                Ok(result) => return Ok(result),
                Err(CallError::NotSent | CallError::Unanswered) => {}
                Err(CallError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Calls once. Cancel-safe.
    ///
    /// # Errors
    /// As [`Self::repeat`], and [`ExecServerError::TransportDisconnected`] when the answer was lost.
    pub(super) async fn once<M: Method>(&self, params: &M::Params) -> Result<M::Output> {
        loop {
            let live = self.live().await?;
            match live.connection.call::<M>(params, Priority::Regular).await {
                Err(CallError::NotSent) => {}
                other => return other.map_err(ExecServerError::from),
            }
        }
    }

    /// What the executor is.
    ///
    /// # Errors
    /// As [`Self::repeat`]; [`ExecServerError::Protocol`] when the server does not say in time.
    pub(super) async fn info(&self) -> Result<EnvironmentInfo> {
        loop {
            match self.live().await?.info().await {
                Ok(info) => return Ok(info),
                Err(CallError::NotSent | CallError::Unanswered) => {}
                Err(CallError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Counts a start that waits for its answer, until the guard is dropped.
    pub(super) fn start_in_flight(self: &Arc<Self>) -> StartInFlight {
        self.starting.send_modify(|count| *count += 1);
        StartInFlight(Arc::clone(self))
    }

    /// Waits until no start waits for its answer.
    pub(super) async fn starts_settled(&self) {
        // The sender lives as long as the session.
        let _ = self.starting.subscribe().wait_for(|count| *count == 0).await;
    }

    fn abandoned(&self) -> MutexGuard<'_, HashSet<ProcessId>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a start was lost: what it may have started is ended as soon as there is a connection.
    pub(super) fn abandon(&self, id: &ProcessId) {
        self.abandoned().insert(id.clone());
    }

    pub(super) fn abandoned_starts(&self) -> Vec<ProcessId> {
        self.abandoned().iter().cloned().collect()
    }

    pub(super) fn abandoned_start_ended(&self, id: &ProcessId) {
        self.abandoned().remove(id);
    }

    /// The connection is gone.
    pub(super) fn begin_recovery(&self) {
        self.link.send_replace(Link::Recovering);
        self.bodies.fail();
        self.announced.send_replace(EnvironmentConnectionState::Disconnected);
        for (_, events) in self.processes.all() {
            events.begin_recovery();
        }
    }

    /// There is a new connection and every gap is filled.
    pub(super) fn install(&self, live: Arc<Live>) {
        self.link.send_replace(Link::Connected(live));
        self.announced.send_replace(EnvironmentConnectionState::Connected);
    }

    /// Lost for good: so are its processes.
    pub(super) fn fail(&self, why: &Arc<str>) {
        self.link.send_replace(Link::Failed(Arc::clone(why)));
        self.processes.fail(why);
    }
}

/// Hands on what the server tells: events of processes, pieces of bodies.
struct Routes {
    processes: Arc<Processes>,
    bodies: Arc<Bodies>,
}

impl Notified for Routes {
    fn notification(&self, method: &str, params: Value) -> Result<(), serde_json::Error> {
        if method == BodyDelta::NAME {
            self.bodies.delta(serde_json::from_value(params)?);
            return Ok(());
        }
        self.processes.notification(method, params)
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.processes.poll_room(cx)
    }
}

/// See [`Session::start_in_flight`].
pub(super) struct StartInFlight(Arc<Session>);

impl Drop for StartInFlight {
    fn drop(&mut self) {
        self.0.starting.send_modify(|count| *count -= 1);
    }
}
