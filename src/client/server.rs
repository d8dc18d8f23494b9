//! A server as it was named: checked, and not yet dialled.

use std::fmt;
use std::time::Duration;

use super::address::{Address, Headers};
use super::dial::dial;
use super::program::ProgramCommand;
use crate::backend::{ExecServerError, Result};
use crate::outbound::HttpClientFactory;
use crate::rpc::Transport;

/// How a server is reached. Shown, it names no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server(Way);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Socket(Address, Headers),
    Program(ProgramCommand),
}

impl Server {
    /// A server at a URL, and what the upgrade carries.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] with what is wrong: the form of the URL, an empty token, headers for another
    /// machine without TLS.
    pub(crate) fn at(url: &str, bearer_token: Option<&str>, request_id: Option<&str>) -> Result<Self> {
        let address = Address::parse(url)?;
        let headers = Headers::new(bearer_token, request_id, &address)?;
        Ok(Self(Way::Socket(address, headers)))
    }

    /// A program, started anew for every connection. Space around its name does not count.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] for an empty program.
    pub(crate) fn program(command: ProgramCommand) -> Result<Self> {
        let program = command.program.trim().to_owned();
        if program.is_empty() {
            return Err(ExecServerError::Protocol("program must not be empty".into()));
        }
        Ok(Self(Way::Program(ProgramCommand { program, ..command })))
    }

    /// Whether its sessions end with their connection.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self.0, Way::Program(_))
    }

    /// Opens a transport. Cancel-safe. The limit is one of dialling.
    ///
    /// # Errors
    /// [`ExecServerError::ConnectTimeout`], [`ExecServerError::Connect`].
    pub(super) async fn open(
        &self,
        outbound: &HttpClientFactory,
        limit: Duration,
    ) -> Result<Box<dyn Transport>> {
        match &self.0 {
            Way::Socket(address, headers) => dial(address, headers, outbound, limit).await,
            Way::Program(command) => command.start().await,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Socket(address, _) => address.fmt(f),
            Way::Program(command) => command.fmt(f),
        }
    }
}
