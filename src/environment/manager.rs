//! The environments of a host program, by name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::definition::{Definition, check_id};
use super::prepared::VARIABLE;
use super::{
    Environment, ExecServerRuntimePaths, LOCAL_ENVIRONMENT_ID, PreparedEnvironmentManager,
    RemoteEnvironmentOptions, ResolvedSelectedCapabilityRoot, SelectedCapabilityRoot,
    SelectedCapabilityRootsStatus, inspect_selected_capability_roots, resolve_selected_capability_roots,
};
use crate::backend::Result;
use crate::outbound::HttpClientFactory;

/// A registry of environments. Replacing one leaves handles of the old one as they are: they keep its address and its
/// connection.
pub struct EnvironmentManager {
    http: HttpClientFactory,
    default: Option<String>,
    environments: Mutex<HashMap<String, Arc<Environment>>>,
    required_skills: HashMap<String, Vec<String>>,
}

impl EnvironmentManager {
    /// Reads `environments.toml` of a settings directory, or without it the variable `CODEX_EXEC_SERVER_URL`, and checks
    /// everything. Dials nothing. Needs a tokio runtime. Cancel-safe.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`] with the file and the culprit.
    pub async fn prepare_from_codex_home(directory: impl AsRef<Path>) -> Result<PreparedEnvironmentManager> {
        PreparedEnvironmentManager::read(directory.as_ref(), std::env::var_os(VARIABLE)).await
    }

    /// The server at a URL, which is the default and is connected to in the background; or without one this machine.
    ///
    /// # Panics
    /// When the URL is wrong: a test that has no environment cannot go on.
    #[expect(clippy::unused_async, reason = "the interface that callers know; it needs a runtime")]
    pub async fn create_for_tests(url: Option<String>, paths: Option<ExecServerRuntimePaths>) -> Self {
        let http = HttpClientFactory::default();
        let prepared = PreparedEnvironmentManager::from_server_url(url.as_deref());
        let built = prepared.and_then(|prepared| prepared.build(Some(paths.unwrap_or_default()), http));
        built.unwrap_or_else(|error| panic!("{error}"))
    }

    /// This machine alone, which is the default.
    #[must_use]
    pub fn default_for_tests() -> Self {
        let http = HttpClientFactory::default();
        let local = Environment::local(ExecServerRuntimePaths::itself(), &http);
        Self::new(http, Some(LOCAL_ENVIRONMENT_ID.to_owned()), Some(local))
    }

    /// No environment, until some are added.
    #[must_use]
    pub fn without_environments(http: HttpClientFactory) -> Self {
        Self::new(http, None, None)
    }

    pub(super) fn new(http: HttpClientFactory, default: Option<String>, local: Option<Environment>) -> Self {
        let local = local.map(|local| (LOCAL_ENVIRONMENT_ID.to_owned(), Arc::new(local)));
        let environments = Mutex::new(local.into_iter().collect());
        Self { http, default, environments, required_skills: HashMap::new() }
    }

    pub(super) fn requiring(self, required_skills: HashMap<String, Vec<String>>) -> Self {
        Self { required_skills, ..self }
    }

    /// The environment that is used where none is named.
    #[must_use]
    pub fn default_environment(&self) -> Option<Arc<Environment>> {
        self.get_environment(self.default.as_deref()?)
    }

    /// The environment that has this id now.
    #[must_use]
    pub fn get_environment(&self, id: &str) -> Option<Arc<Environment>> {
        self.environments().get(id).map(Arc::clone)
    }

    /// Which selected roots can be used now; see [`inspect_selected_capability_roots`].
    #[must_use]
    pub fn inspect_selected_capability_roots(
        &self,
        roots: &[SelectedCapabilityRoot],
    ) -> SelectedCapabilityRootsStatus {
        inspect_selected_capability_roots(roots, |id| self.get_environment(id))
    }

    /// Binds selected roots to environments; see [`resolve_selected_capability_roots`]. Cancel-safe.
    pub async fn resolve_selected_capability_roots(
        &self,
        roots: &[SelectedCapabilityRoot],
        captured: &HashMap<String, Option<Arc<Environment>>>,
    ) -> Vec<ResolvedSelectedCapabilityRoot> {
        resolve_selected_capability_roots(roots, captured, |id| self.get_environment(id)).await
    }

    /// Skills that the settings require of an environment before a task starts, by name.
    #[must_use]
    pub fn required_skills(&self, id: &str) -> &[String] {
        self.required_skills.get(id).map_or(&[], Vec::as_slice)
    }

    /// Adds a server, or puts another one in the place of an id. Within a tokio runtime it is connected to in the
    /// background from now on, otherwise at the first use.
    ///
    /// # Errors
    /// As [`Self::upsert_environment_with_options`].
    pub fn upsert_environment(
        &self,
        id: String,
        url: String,
        connect_timeout: Option<Duration>,
    ) -> Result<()> {
        let options =
            RemoteEnvironmentOptions { url, connect_timeout, ..RemoteEnvironmentOptions::default() };
        self.upsert_environment_with_options(id, options)
    }

    /// Like [`Self::upsert_environment`], with a token and time limits.
    ///
    /// # Errors
    /// [`crate::backend::ExecServerError::Protocol`] for whatever `environments.toml` could not say; nothing is changed.
    pub fn upsert_environment_with_options(
        &self,
        id: String,
        options: RemoteEnvironmentOptions,
    ) -> Result<()> {
        check_id(&id)?;
        self.put(id, Definition::remote(options)?);
        Ok(())
    }

    pub(super) fn put(&self, id: String, definition: Definition) {
        let waits_for_a_use = definition.is_program();
        let environment = definition.build(self.http.clone());
        if !waits_for_a_use && Handle::try_current().is_ok() {
            environment.start_connecting();
        }
        // The old one may be the last handle; it ends outside of the lock.
        let _replaced = self.environments().insert(id, Arc::new(environment));
    }

    fn environments(&self) -> MutexGuard<'_, HashMap<String, Arc<Environment>>> {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ids alone.
impl std::fmt::Debug for EnvironmentManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<String> = self.environments().keys().cloned().collect();
        f.debug_struct("EnvironmentManager")
            .field("default", &self.default)
            .field("environments", &ids)
            .finish_non_exhaustive()
    }
}
