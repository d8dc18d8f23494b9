//! From a URL or a program to an initialized connection.

use std::fmt;
use std::sync::Arc;

use serde_json::json;
use tokio::time::timeout;

use super::ClientOptions;
use super::address::{Address, Headers};
use super::connection::{Connection, Notified};
use super::dial::dial;
use super::pending::Priority;
use super::program::ProgramCommand;
use crate::backend::{ExecServerError, Result};
use crate::protocol::session::{Initialize, InitializeParams, InitializeResult, Initialized};

/// A server and how to talk to it.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    way: Way,
    pub(super) options: ClientOptions,
}

/// Checks URL and options of a server; dials nothing.
///
/// # Errors
/// [`ExecServerError::Protocol`] with what is wrong.
pub fn check_destination(url: &str, options: &ClientOptions) -> Result<()> {
    Destination::new(url, options.clone()).map(drop)
}

/// How a server is reached.
#[derive(Debug, Clone)]
enum Way {
    Socket(Address, Headers),
    Program(ProgramCommand),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address, _) => address.fmt(f),
            Self::Program(command) => command.fmt(f),
        }
    }
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
        Ok(Self { way: Way::Socket(address, headers), options })
    }

    /// A program, started anew for every connection.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] for an empty program.
    pub(super) fn program(command: ProgramCommand, options: ClientOptions) -> Result<Self> {
        if command.program.is_empty() {
            return Err(ExecServerError::Protocol("the program of an environment must not be empty".into()));
        }
        Ok(Self { way: Way::Program(command), options })
    }

    /// Whether another connection can reach the same session.
    pub(super) fn can_resume(&self) -> bool {
        matches!(self.way, Way::Socket(..))
    }

    /// Connects; nothing is initialized.
    ///
    /// # Errors
    /// [`ExecServerError::ConnectTimeout`], [`ExecServerError::Connect`].
    pub(super) async fn connect(&self, notified: Arc<dyn Notified>) -> Result<Connection> {
        let ClientOptions { connect_timeout, outbound, .. } = &self.options;
        let transport = match &self.way {
            Way::Socket(address, headers) => dial(address, headers, outbound, *connect_timeout).await?,
            Way::Program(command) => command.start().await?,
        };
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
                let (url, reason) = (self.way.to_string(), connection.ended().await.to_string());
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
