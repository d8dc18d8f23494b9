//! From a URL to an initialized connection.

use std::sync::Arc;

use serde_json::json;
use tokio::time::timeout;

use super::ClientOptions;
use super::address::{Address, Headers};
use super::connection::{Connection, Notified};
use super::dial::dial;
use super::pending::Priority;
use crate::backend::{ExecServerError, Result};
use crate::protocol::session::{Initialize, InitializeParams, InitializeResult, Initialized};

/// A server and how to talk to it.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    address: Address,
    headers: Headers,
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
    /// [`ExecServerError::Protocol`] with what is wrong.
    pub(super) fn new(url: &str, options: ClientOptions) -> Result<Self> {
        let address = Address::parse(url)?;
        let headers = Headers::new(&options, &address)?;
        Ok(Self { address, headers, options })
    }

    /// Connects; nothing is initialized.
    ///
    /// # Errors
    /// [`ExecServerError::ConnectTimeout`], [`ExecServerError::Connect`].
    pub(super) async fn connect(&self, notified: Arc<dyn Notified>) -> Result<Connection> {
        let transport = dial(&self.address, &self.headers, self.options.connect_timeout).await?;
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
        let result = self.initialize(&connection, purpose).await?;
        Ok((connection, result))
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
