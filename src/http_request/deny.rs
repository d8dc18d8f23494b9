//! Hosts that no request may reach, by their names and by the addresses that are dialled.
//!
//! A name is looked up before each hop, so that it is checked where a proxy dials as well, and once more when it is
//! dialled from here, so that an answer that changes in between makes no difference.

use std::collections::HashSet;
use std::net::SocketAddr;

use reqwest::Url;

use super::HttpSettings;
use super::error::HttpError;
use crate::policy::hosts::{Denial, Host};
use crate::protocol::failure::HttpErrorKind;

/// An address that was about to be dialled, and must not be.
#[derive(Debug, thiserror::Error)]
#[error("http.deny does not let this server reach {host} (`{denial}`)")]
pub(super) struct Denied {
    host: String,
    denial: Denial,
}

/// What is out of bounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds {
    denials: Vec<Denial>,
    /// Named by the operator of this machine; what they are asked for is checked instead.
    proxies: HashSet<String>,
}

impl Bounds {
    pub(super) fn new(settings: &HttpSettings, proxies: HashSet<String>) -> Self {
        Self { denials: settings.deny.clone(), proxies }
    }

    /// Checks where a request goes.
    pub(super) async fn check(&self, url: &Url) -> Result<(), HttpError> {
        if self.denials.is_empty() {
            return Ok(());
        }
        let text = url.host_str().unwrap_or_default();
        let Ok(host) = text.parse::<Host>() else {
            return Err(HttpError::Invalid(format!("url is invalid: {text} names no host")));
        };
        self.check_host(text, &host).map_err(refused)?;
        if matches!(host, Host::Name(_)) && self.denials.iter().any(Denial::concerns_addresses) {
            let found = tokio::net::lookup_host((text, 0)).await.map_err(|error| unknown(text, &error))?;
            self.check_addresses(text, &found.collect::<Vec<_>>()).map_err(refused)?;
        }
        Ok(())
    }

    /// Checks what is about to be dialled for a name.
    pub(super) fn check_dialled(&self, name: &str, addresses: &[SocketAddr]) -> Result<(), Denied> {
        if self.proxies.contains(name) { Ok(()) } else { self.check_addresses(name, addresses) }
    }

    /// One that is out of bounds is enough: nobody chooses among them.
    fn check_addresses(&self, name: &str, addresses: &[SocketAddr]) -> Result<(), Denied> {
        addresses.iter().try_for_each(|address| self.check_host(name, &address.ip().into()))
    }

    fn check_host(&self, shown: &str, host: &Host) -> Result<(), Denied> {
        match self.denials.iter().find(|denial| denial.covers(host)) {
            None => Ok(()),
            Some(denial) => Err(Denied { host: shown.to_owned(), denial: denial.clone() }),
        }
    }
}

fn refused(denied: Denied) -> HttpError {
    HttpError::failed(HttpErrorKind::Denied, denied.to_string())
}

fn unknown(name: &str, error: &std::io::Error) -> HttpError {
    let message = format!("the host {name} is unknown ({error}), and http.deny has to know its addresses");
    HttpError::failed(HttpErrorKind::Dns, message)
}
