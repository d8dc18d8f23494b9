//! One server, connected when it is used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::ClientOptions;
use super::connection::CallError;
use super::gate;
use super::handshake::Destination;
use super::pending::Priority;
use super::program::ProgramCommand;
use super::server::Server;
use super::session::{Link, Live, Session};
use super::start;
use crate::backend::{BoxFuture, ExecBackend, ExecServerError, Result, StartedExecProcess};
use crate::protocol::environment::{
    ConfigRead, ConfigReadParams, ConfigReadResponse, EnvironmentInfo, Status,
};
use crate::protocol::process::{Empty, ExecParams, List, ListResponse, StartOptions};

/// Time for the answer to a passive question; the connection survives it.
const STATUS_LIMIT: Duration = Duration::from_secs(10);

/// Whether there is a connection to the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvironmentConnectionState {
    /// There is.
    Connected,
    /// There is none, be it not yet, for a while or for good.
    Disconnected,
}

/// What a look at an environment shows that does not touch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentObservedStatus {
    /// It can be used now.
    Ready,
    /// It was never used, or its first connection is being made.
    Pending,
    /// It cannot be used now.
    Disconnected {
        /// Why, for people.
        error: String,
    },
}

/// How far an environment is from use, as far as that can be seen without touching it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// There is a connection.
    Ready,
    /// It was never used, or a connection is being made.
    Starting,
    /// A lost connection is being recovered.
    Recovering,
    /// The last attempt to connect failed, or the connection is lost for good: why, for people. The next use makes a new
    /// attempt.
    Failed(String),
}

/// Processes on a server. Clones share the connection.
#[derive(Clone)]
pub struct RemoteBackend {
    shared: Arc<Shared>,
}

struct Shared {
    destination: Arc<Destination>,
    state: Mutex<State>,
    announced: watch::Sender<EnvironmentConnectionState>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Why the last attempt that has ended failed.
    failure: Option<Arc<ExecServerError>>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    Connecting(watch::Receiver<Option<Attempt>>),
    Open(Arc<Session>),
}

/// The outcome of an attempt, for all who waited for it.
type Attempt = Result<Arc<Session>, Arc<ExecServerError>>;

enum Use {
    Now(Arc<Session>),
    After(watch::Receiver<Option<Attempt>>),
}

impl RemoteBackend {
    /// Checks URL and options. Nothing is dialled before the first use.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] with what is wrong: the form of the URL, an empty token, a token for another
    /// machine without TLS.
    pub fn new(url: &str, options: ClientOptions) -> Result<Self> {
        Ok(Self::of(Destination::new(url, options)?))
    }

    /// A server that is started as a program at the first use, and again at the next use after it ended. Its processes
    /// fail when it ends.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] for an empty program.
    pub fn program(command: ProgramCommand, options: ClientOptions) -> Result<Self> {
        Ok(Self::at(Server::program(command)?, options))
    }

    /// A server that has been checked. Token and request id of the options do not count.
    pub(crate) fn at(server: Server, options: ClientOptions) -> Self {
        Self::of(Destination { server, options })
    }

    fn of(destination: Destination) -> Self {
        let announced = watch::Sender::new(EnvironmentConnectionState::Disconnected);
        let destination = Arc::new(destination);
        Self { shared: Arc::new(Shared { destination, state: Mutex::default(), announced }) }
    }

    /// Begins to connect and returns at once; nothing happens if a connection is there or being made. Needs a tokio
    /// runtime.
    pub fn start_connecting(&self) {
        self.shared.join();
    }

    /// Whether the first attempt to connect has ended, well or badly.
    #[must_use]
    pub fn startup_finished(&self) -> bool {
        let state = self.shared.state();
        state.failure.is_some() || matches!(state.phase, Phase::Open(_))
    }

    /// Waits until there is a connection; makes one attempt if none is being made. Cancel-safe.
    ///
    /// # Errors
    /// That of the attempt.
    pub async fn wait_until_ready(&self) -> Result<()> {
        self.session().await?.live().await.map(drop)
    }

    /// What the executor is; connects, and waits while the connection is being recovered. Cancel-safe.
    ///
    /// # Errors
    /// No connection; an executor that does not say.
    pub async fn info(&self) -> Result<EnvironmentInfo> {
        self.session().await?.info().await
    }

    /// How far it is from use. Nothing is dialled, asked or waited for.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let state = self.shared.state();
        match (&state.phase, &state.failure) {
            (Phase::Open(session), _) => match session.link() {
                Link::Connected(live) if !live.connection.has_ended() => Readiness::Ready,
                Link::Connected(_) | Link::Recovering => Readiness::Recovering,
                Link::Failed(why) => Readiness::Failed(why.to_string()),
            },
            (Phase::Idle, Some(failure)) => Readiness::Failed(failure.to_string()),
            (Phase::Idle, None) | (Phase::Connecting(_), _) => Readiness::Starting,
        }
    }

    /// Looks without connecting. Cancel-safe.
    pub async fn status(&self) -> EnvironmentObservedStatus {
        let disconnected = |error: String| EnvironmentObservedStatus::Disconnected { error };
        let link = {
            let state = self.shared.state();
            match (&state.phase, &state.failure) {
                (Phase::Open(session), _) => session.link(),
                (_, Some(failure)) => return disconnected(failure.to_string()),
                (Phase::Idle | Phase::Connecting(_), None) => return EnvironmentObservedStatus::Pending,
            }
        };
        let live = match link {
            Link::Connected(live) => live,
            Link::Recovering => return disconnected("environment is recovering".into()),
            Link::Failed(why) => return disconnected(why.to_string()),
        };
        match timeout(STATUS_LIMIT, live.connection.call_without_params::<Status>()).await {
            Ok(Ok(_)) => EnvironmentObservedStatus::Ready,
            Ok(Err(CallError::NotSent | CallError::Unanswered)) => {
                disconnected("environment is recovering".into())
            }
            Ok(Err(CallError::Failed(error))) => disconnected(error.to_string()),
            Err(_) => disconnected(format!("the server did not answer within {STATUS_LIMIT:?}")),
        }
    }

    /// Follows whether there is a connection.
    #[must_use]
    pub fn subscribe_connection_state(&self) -> watch::Receiver<EnvironmentConnectionState> {
        self.shared.announced.subscribe()
    }

    /// The connection there is; nothing is dialled and nothing waited for.
    ///
    /// # Errors
    /// [`ExecServerError::Disconnected`] when there is none.
    pub(super) fn connected(&self) -> Result<(Arc<Session>, Arc<Live>)> {
        let session = match &self.shared.state().phase {
            Phase::Open(session) => Some(Arc::clone(session)),
            Phase::Idle | Phase::Connecting(_) => None,
        };
        if let Some(session) = session
            && let Link::Connected(live) = session.link()
            && !live.connection.has_ended()
        {
            return Ok((session, live));
        }
        Err(ExecServerError::Disconnected("there is no connection to the exec-server".to_owned()))
    }

    /// Chosen keys of the settings of the executor's machine. Cancel-safe.
    ///
    /// # Errors
    /// [`ExecServerError::Unsupported`] where the server lacks it; no connection.
    pub async fn read_config(&self, params: &ConfigReadParams) -> Result<ConfigReadResponse> {
        let session = self.session().await?;
        let announced = session.info().await?.capabilities.environment_config_read;
        gate::require(announced, "reading its configuration", "environmentConfigRead")?;
        session.repeat::<ConfigRead>(params, Priority::Regular).await
    }

    /// The session; one attempt to open one if there is none. Shared by all who ask meanwhile. Cancel-safe.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        let mut attempt = match self.shared.join() {
            Use::Now(session) => return Ok(session),
            Use::After(attempt) => attempt,
        };
        match attempt.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(session))) => Ok(Arc::clone(session)),
            Ok(Some(Err(error))) => Err(ExecServerError::ConnectionAttempt(Arc::clone(error))),
            Ok(None) | Err(_) => {
                Err(ExecServerError::Disconnected("the attempt to connect was given up".into()))
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session there is, or the attempt that is being made, or a new one.
    fn join(self: &Arc<Self>) -> Use {
        let mut state = self.state();
        match &state.phase {
            Phase::Open(session) => match session.failure() {
                None => return Use::Now(Arc::clone(session)),
                Some(why) => state.failure = Some(Arc::new(ExecServerError::Disconnected(why.to_string()))),
            },
            Phase::Connecting(attempt) => return Use::After(attempt.clone()),
            Phase::Idle => {}
        }
        let (sender, attempt) = watch::channel(None);
        state.phase = Phase::Connecting(attempt.clone());
        drop(state);
        tokio::spawn(Arc::clone(self).attempt(sender));
        Use::After(attempt)
    }

    async fn attempt(self: Arc<Self>, done: watch::Sender<Option<Attempt>>) {
        let outcome = Session::open(Arc::clone(&self.destination), self.announced.clone()).await;
        let outcome = outcome.map_err(Arc::new);
        let mut state = self.state();
        match &outcome {
            Ok(session) => *state = State { phase: Phase::Open(Arc::clone(session)), failure: None },
            Err(error) => *state = State { phase: Phase::Idle, failure: Some(Arc::clone(error)) },
        }
        drop(state);
        done.send_replace(Some(outcome));
    }
}

impl ExecBackend for RemoteBackend {
    fn start_with(
        &self,
        params: ExecParams,
        options: StartOptions,
    ) -> BoxFuture<'_, Result<StartedExecProcess>> {
        Box::pin(async move {
            let session = self.session().await?;
            let params = gate::admit(&session, params, options).await?;
            start::start(session, params).await
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<ListResponse>> {
        Box::pin(async move {
            let session = self.session().await?;
            gate::require(
                session.info().await?.capabilities.process_list,
                "listing processes",
                "processList",
            )?;
            session.repeat::<List>(&Empty {}, Priority::Regular).await
        })
    }
}
