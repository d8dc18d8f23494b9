//! A running server follows its settings, as far as it can.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::SetupError;
use super::site::{Rules, Site};
use crate::config::Settings;
use crate::outbound::find;

/// New settings cannot be followed; those before stay in force.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReloadError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("TLS cannot be switched on or off while the server runs; restart it")]
    TlsSwitched,
}

/// Changes who is let in at the listeners of a server.
#[derive(Debug)]
pub struct Reloader {
    pub(super) sites: Vec<Arc<Site>>,
    pub(super) is_exposed: bool,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// That of the start, where the token is that clients know.
    pub(super) state_dir: Option<PathBuf>,
}

impl Reloader {
    /// Whoever connects from now on is judged by these settings; connections that are there live on. It blocks on the
    /// disk.
    ///
    /// # Errors
    /// What cannot be followed. Nothing has changed then.
    pub fn follow(&self, settings: &Settings) -> Result<(), ReloadError> {
        let mut settings = settings.clone();
        settings.config.server.state_dir.clone_from(&self.state_dir);
        let rules = Rules::new(&settings, self.is_exposed, |name| find(&self.environment, name))?;
        let has_tls = |site: &Arc<Site>| site.access().tls.is_some();
        if rules.has_tls() != self.sites.iter().any(has_tls) {
            return Err(ReloadError::TlsSwitched);
        }
        self.sites.iter().for_each(|site| site.follow(&rules));
        Ok(())
    }
}
