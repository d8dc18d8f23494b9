//! Settings of environments that have been read, before anything is made of them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use super::file::{self, Configured, Settings};
use super::{
    Definition, Environment, EnvironmentManager, ExecServerRuntimePaths, LOCAL_ENVIRONMENT_ID,
    REMOTE_ENVIRONMENT_ID, RemoteEnvironmentOptions,
};
use crate::backend::{ExecServerError, Result};
use crate::outbound::HttpClientFactory;

/// Names the server where there is no file.
pub(super) const VARIABLE: &str = "CODEX_EXEC_SERVER_URL";

/// Environments that are known and checked; nothing is dialled, and no program started.
#[derive(Debug)]
pub struct PreparedEnvironmentManager {
    settings: Settings,
}

impl PreparedEnvironmentManager {
    /// Reads `environments.toml` of a settings directory; without it the value of the variable counts.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] with the file or the variable and what is wrong with it.
    pub(super) async fn read(directory: &Path, server_url: Option<OsString>) -> Result<Self> {
        let directory = directory.to_owned();
        let read = tokio::task::spawn_blocking(move || file::read(&directory)).await;
        match read.unwrap_or_else(|error| Err(ExecServerError::Protocol(error.to_string())))? {
            Some(settings) => Ok(Self { settings }),
            None => match server_url.map(OsString::into_string) {
                None => Self::from_server_url(None),
                Some(Ok(url)) => Self::from_server_url(Some(&url)).map_err(of_variable),
                Some(Err(_)) => Err(of_variable(ExecServerError::Protocol("it is not UTF-8".to_owned()))),
            },
        }
    }

    /// What one URL means instead of a file: nothing or blank is this machine alone, `none` no environment at all,
    /// anything else one server by the name [`REMOTE_ENVIRONMENT_ID`], which is the default.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] for a URL that is none of a server.
    pub fn from_server_url(url: Option<&str>) -> Result<Self> {
        let (default, environments) = match url.map(str::trim) {
            None | Some("") => (Some(LOCAL_ENVIRONMENT_ID), Vec::new()),
            Some(none) if none.eq_ignore_ascii_case("none") => (None, Vec::new()),
            Some(url) => (Some(REMOTE_ENVIRONMENT_ID), vec![remote(url)?]),
        };
        let include_local = default == Some(LOCAL_ENVIRONMENT_ID);
        Ok(Self { settings: Settings { default: default.map(str::to_owned), include_local, environments } })
    }

    /// Whether the default environment is a server, so that a host can leave out what only this machine needs.
    #[must_use]
    pub fn default_environment_is_remote(&self) -> bool {
        self.settings.default.as_deref().is_some_and(|id| id != LOCAL_ENVIRONMENT_ID)
    }

    /// Makes the environments. Within a tokio runtime, servers that have a URL are connected to in the background from
    /// now on; without one, and for programs, at the first use.
    ///
    /// # Errors
    /// [`ExecServerError::Protocol`] when this machine is one of them and `paths` are missing.
    pub fn build(
        self,
        paths: Option<ExecServerRuntimePaths>,
        http: HttpClientFactory,
    ) -> Result<EnvironmentManager> {
        let Settings { default, include_local, environments } = self.settings;
        let local = match (include_local, paths) {
            (false, _) => None,
            (true, Some(paths)) => Some(Environment::local(paths, &http)),
            (true, None) => {
                let why =
                    "the local environment needs runtime paths: give them, or set `include_local = false`";
                return Err(ExecServerError::Protocol(why.to_owned()));
            }
        };
        let manager = EnvironmentManager::new(http, default, local);
        let mut required = HashMap::new();
        for Configured { id, definition, required_skills } in environments {
            required.insert(id.clone(), required_skills);
            manager.put(id, definition);
        }
        Ok(manager.requiring(required))
    }
}

fn remote(url: &str) -> Result<Configured> {
    let options = RemoteEnvironmentOptions { url: url.to_owned(), ..RemoteEnvironmentOptions::default() };
    let definition = Definition::remote(options)?;
    Ok(Configured { id: REMOTE_ENVIRONMENT_ID.to_owned(), definition, required_skills: Vec::new() })
}

fn of_variable(error: ExecServerError) -> ExecServerError {
    ExecServerError::Protocol(format!("{VARIABLE}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use pretty_assertions::assert_eq;
    use test_case::test_case;

    async fn read(file: Option<&str>, variable: &[u8]) -> Result<PreparedEnvironmentManager> {
        let home = tempfile::tempdir().unwrap();
        if let Some(text) = file {
            std::fs::write(home.path().join("environments.toml"), text).unwrap();
        }
        PreparedEnvironmentManager::read(home.path(), Some(OsString::from_vec(variable.to_vec()))).await
    }

    #[test_case(None, b"ws://h", true; "the variable counts")]
    #[test_case(Some(""), b"ws://h", false; "but for the file, be it empty")]
    #[test_case(Some(""), b"http://h", false; "which is not even looked at")]
    #[tokio::test]
    async fn the_file_comes_first(file: Option<&str>, variable: &[u8], remote: bool) {
        let prepared = read(file, variable).await.unwrap();
        assert_eq!(prepared.default_environment_is_remote(), remote);
    }

    #[test_case(b"http://h", "CODEX_EXEC_SERVER_URL: environment url `http://h` must use ws:// or wss://")]
    #[test_case(b"ws://\xff", "CODEX_EXEC_SERVER_URL: it is not UTF-8"; "not UTF-8")]
    #[tokio::test]
    async fn errors_name_the_variable(variable: &[u8], why: &str) {
        assert_eq!(read(None, variable).await.unwrap_err().to_string(), why);
    }
}
