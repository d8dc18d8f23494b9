//! Looks at what runs on a server, without taking anything over.

use std::sync::Arc;

use serde_json::Value;

use super::ClientOptions;
use super::connection::{Connection, Notified};
use super::gate::require;
use super::handshake::{Destination, Purpose};
use super::pending::Priority;
use crate::backend::{ExecServerError, Result};
use crate::protocol::Method;
use crate::protocol::process::{
    AccountedRead, Empty, List, ListResponse, Read, ReadParams, Signal, SignalParams, Terminate,
    TerminateParams,
};
use crate::protocol::session::{List as SessionList, SessionListResponse};

/// A connection to a server, without a session. It is not recovered when it breaks.
pub struct Observer {
    destination: Destination,
    connection: Connection,
}

impl Observer {
    /// Connects. Cancel-safe.
    ///
    /// # Errors
    /// A URL or options that are wrong; no connection.
    pub async fn connect(url: &str, options: ClientOptions) -> Result<Self> {
        let destination = Destination::new(url, options)?;
        let connection = destination.connect(Arc::new(Uninterested)).await?;
        Ok(Self { destination, connection })
    }

    /// The sessions of the server. Cancel-safe.
    ///
    /// # Errors
    /// A server that cannot list them; no connection.
    pub async fn sessions(&self) -> Result<SessionListResponse> {
        call::<SessionList>(&self.connection, &Empty {}).await
    }

    /// Looks on at a session, beside whoever holds it. Cancel-safe.
    ///
    /// # Errors
    /// An unknown session; [`ExecServerError::Unsupported`] when the server gives a session of its own instead.
    pub async fn observe(self, session_id: &str) -> Result<ObservedSession> {
        let result = self.destination.initialize(&self.connection, Purpose::Observe(session_id)).await?;
        require(result.observer, "looking on at sessions", "sessionObserve")?;
        Ok(ObservedSession { connection: self.connection })
    }
}

/// A session of someone else.
pub struct ObservedSession {
    connection: Connection,
}

impl ObservedSession {
    /// Its processes, in order of start. Cancel-safe.
    ///
    /// # Errors
    /// No connection.
    pub async fn list(&self) -> Result<ListResponse> {
        call::<List>(&self.connection, &Empty {}).await
    }

    /// Reads output of a process. Cancel-safe.
    ///
    /// # Errors
    /// An unknown process; no connection.
    pub async fn read(&self, params: ReadParams) -> Result<AccountedRead> {
        call::<Read>(&self.connection, &params).await
    }

    /// Sends a signal; true if somebody got it.
    ///
    /// # Errors
    /// A target that the process does not have; no connection.
    pub async fn signal(&self, params: SignalParams) -> Result<bool> {
        Ok(call::<Signal>(&self.connection, &params).await?.delivered)
    }

    /// Ends the tree of a process; true if something was left to end.
    ///
    /// # Errors
    /// No connection.
    pub async fn terminate(&self, params: TerminateParams) -> Result<bool> {
        Ok(call::<Terminate>(&self.connection, &params).await?.running)
    }
}

async fn call<M: Method>(connection: &Connection, params: &M::Params) -> Result<M::Output> {
    connection.call::<M>(params, Priority::Regular).await.map_err(ExecServerError::from)
}

/// Observers poll.
struct Uninterested;

impl Notified for Uninterested {
    fn notification(&self, _method: &str, _params: Value) -> Result<(), serde_json::Error> {
        Ok(())
    }
}
