//! From a URL or a program to an initialized connection.

use std::sync::Arc;

use serde_json::json;
use tokio::time::timeout;

use super::ClientOptions;
use super::connection::{Connection, Notified};
use super::pending::Priority;
use super::server::Server;
use crate::backend::{ExecServerError, Result};
use crate::protocol::session::{Initialize, InitializeParams, InitializeResult, Initialized};

/// A server and how to talk to it.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) server: Server,
    pub(super) options: ClientOptions,
}

/// What a connection is opened for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A new session.
    Open,
    /// A session that lost its connection.
    Resume(&'a str),
    /// A session of someone else, to look on.
    Observe(&'a str),
}

impl Destination {
    /// Checks URL and options; dials nothing.
    ///
    /// # Errors
    /// As [`Server::at`].
    pub(super) fn new(url: &str, options: ClientOptions) -> Result<Self> {
        let server = Server::at(url, options.bearer_token.as_deref(), options.request_id.as_deref())?;
        Ok(Self { server, options })
    }

    /// Whether another connection can reach the same session.
    pub(super) fn can_resume(&self) -> bool {
        !self.server.is_program()
    }

    /// Connects; nothing is initialized.
    ///
    /// # Errors
    /// [`ExecServerError::ConnectTimeout`], [`ExecServerError::Connect`].
    pub(super) async fn connect(&self, notified: Arc<dyn Notified>) -> Result<Connection> {
        let ClientOptions { connect_timeout, outbound, .. } = &self.options;
        let transport = self.server.open(outbound, *connect_timeout).await?;
        Ok(Connection::open(transport, &self.options, notified))
    }

    /// Connects and initializes.
    ///
    /// # Errors
    /// As [`Self::connect`] and [`Self::initialize`].
    pub(super) async fn open(
        &self,
        purpose: Purpose<'_>,
        notified: Arc<dyn Notified>,
    ) -> Result<(Connection, InitializeResult)> {
        let connection = self.connect(notified).await?;
        match self.initialize(&connection, purpose).await {
            Ok(result) => Ok((connection, result)),
            Err(ExecServerError::TransportDisconnected) => {
                let (url, reason) = (self.server.to_string(), connection.ended().await.to_string());
                Err(ExecServerError::Connect { url, reason, status: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Introduces this client on a new connection.
    ///
    /// # Errors
    /// [`ExecServerError::InitializeTimeout`]; [`ExecServerError::Server`] when the server refuses;
    /// [`ExecServerError::TransportDisconnected`].
    pub(super) async fn initialize(
        &self,
        connection: &Connection,
        purpose: Purpose<'_>,
    ) -> Result<InitializeResult> {
        let (resume, observe) = match purpose {
            Purpose::Open => (None, None),
            Purpose::Resume(id) => (Some(id), None),
            Purpose::Observe(id) => (None, Some(id)),
        };
        let params = InitializeParams {
            client_name: self.options.client_name.clone(),
            resume_session_id: resume.map(str::to_owned),
            observe_session_id: observe.map(str::to_owned),
        };
        let limit = self.options.initialize_timeout;
        let answer = timeout(limit, connection.call::<Initialize>(&params, Priority::Regular)).await;
        let result = answer.map_err(|_| ExecServerError::InitializeTimeout(limit))??;
        connection.notify::<Initialized>(&json!({})).await?;
        Ok(result)
    }
}
