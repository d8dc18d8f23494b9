//! Capability discovery: the files that plugins and skills are made of below chosen directories
//! (`capabilityRoots/discoverV1`), and the inventory of what is installed for the user (`capabilities/discoverV2`).
//!
//! Data flows one way: `scan` finds, `bundle` reads, `inventory` parses with `manifest` and `skill`. Nothing is kept from
//! one request to the next, so an edit is in the next answer. Every path is opened under the sandbox of its root.
//!
//! Bounds: a scan ends at `scan::MAX_DIRECTORIES` and `scan::MAX_ENTRIES`; the files of a root weigh
//! `allowance::ROOT_BYTES` at most, those of an answer `allowance::ANSWER_BYTES`; `PARALLEL_ROOTS` are read at a time. Work
//! that nobody waits for any more ends at its next directory.

mod allowance;
mod bundle;
mod error;
mod inventory;
mod manifest;
mod notice;
mod place;
mod scan;
mod skill;
mod stop;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, TryStreamExt, stream};

use self::allowance::AnswerAllowance;
pub use self::error::DiscoveryError;
use self::inventory::Homes;
use self::place::Place;
use self::stop::{Stop, StopOnDrop};
use crate::fs::{FsError, Purpose, Scope};
use crate::protocol::discovery::{
    CapabilityRootDiscoverRequest, CapabilityRootDiscovery, CapabilityRootsDiscoverParams,
    CapabilityRootsDiscoverResponse, DiscoverV2CapabilitiesRequest, DiscoverV2CapabilitiesResponse,
    MAX_CAPABILITY_ROOTS,
};
use crate::protocol::sandbox::SandboxContext;
use crate::sandbox::Sandboxes;

/// Roots of a request that are read at a time.
const PARALLEL_ROOTS: usize = 8;

/// Looks for capabilities on this machine, for one user.
#[derive(Debug, Clone)]
pub struct Discovery {
    homes: Homes,
    sandboxes: Option<Arc<Sandboxes>>,
}

/// The scope of all roots with the same sandbox, laid by the first that needs it.
type SharedScope = Arc<OnceLock<Result<Scope, FsError>>>;

impl Discovery {
    /// For the user with this home and this settings directory.
    #[must_use]
    pub fn new(home: Option<&Path>, codex_home: Option<&Path>) -> Self {
        Self { homes: Homes::new(home, codex_home), sandboxes: None }
    }

    /// Does not show the placeholders of these sandboxes to confined requests.
    #[must_use]
    pub fn beside(self, sandboxes: Arc<Sandboxes>) -> Self {
        Self { sandboxes: Some(sandboxes), ..self }
    }

    /// Looks for what belongs to the whole machine below another directory than `/etc/codex`.
    #[must_use]
    pub fn with_system_dir(mut self, directory: PathBuf) -> Self {
        self.homes.system = directory;
        self
    }

    /// `capabilityRoots/discoverV1`, and the bytes that the answer weighs, roughly. Cancel-safe: it changes nothing.
    ///
    /// # Errors
    ///
    /// Too many roots. What is wrong with a single root is said in its result.
    pub async fn roots(
        &self,
        params: CapabilityRootsDiscoverParams,
    ) -> Result<(CapabilityRootsDiscoverResponse, usize), DiscoveryError> {
        let count = params.roots.len();
        if count > MAX_CAPABILITY_ROOTS {
            return Err(DiscoveryError::TooManyRoots(count));
        }
        let answer = Arc::new(AnswerAllowance::default());
        let stop = StopOnDrop::default();
        let jobs = scoped(params.roots).into_iter().map(|(request, scope)| {
            let (answer, stop, sandboxes) = (Arc::clone(&answer), stop.stop(), self.sandboxes.clone());
            blocking(move || root(request, &scope, sandboxes.as_deref(), &answer, &stop))
        });
        let roots = stream::iter(jobs).buffered(PARALLEL_ROOTS).try_collect().await?;
        Ok((CapabilityRootsDiscoverResponse { roots }, answer.taken()))
    }

    /// `capabilities/discoverV2`. Cancel-safe: it changes nothing.
    ///
    /// # Errors
    ///
    /// A sandbox that cannot be enforced.
    pub async fn inventory(
        &self,
        request: DiscoverV2CapabilitiesRequest,
    ) -> Result<DiscoverV2CapabilitiesResponse, DiscoveryError> {
        let (homes, sandboxes) = (self.homes.clone(), self.sandboxes.clone());
        let on_drop = StopOnDrop::default();
        let stop = on_drop.stop();
        blocking(move || {
            let scope = Scope::of(request.sandbox.as_ref(), Purpose::Reading, sandboxes.as_deref())?;
            Ok(inventory::take(&homes, &scope, &stop))
        })
        .await?
    }
}

/// The requests, each with a scope that it shares with those that have the same sandbox.
fn scoped(roots: Vec<CapabilityRootDiscoverRequest>) -> Vec<(CapabilityRootDiscoverRequest, SharedScope)> {
    let mut scopes: Vec<(Option<SandboxContext>, SharedScope)> = Vec::new();
    let with_scope = |root: CapabilityRootDiscoverRequest| {
        let known = scopes.iter().find(|(sandbox, _)| *sandbox == root.sandbox);
        let scope = known.map(|(_, scope)| Arc::clone(scope)).unwrap_or_else(|| {
            let scope = SharedScope::default();
            scopes.push((root.sandbox.clone(), Arc::clone(&scope)));
            scope
        });
        (root, scope)
    };
    roots.into_iter().map(with_scope).collect()
}

/// The result of one root.
fn root(
    request: CapabilityRootDiscoverRequest,
    scope: &SharedScope,
    sandboxes: Option<&Sandboxes>,
    answer: &AnswerAllowance,
    stop: &Stop,
) -> CapabilityRootDiscovery {
    let CapabilityRootDiscoverRequest { id, path, sandbox } = request;
    let scope = scope.get_or_init(|| Scope::of(sandbox.as_ref(), Purpose::Reading, sandboxes));
    let found = scope.as_ref().map_err(ToString::to_string).and_then(|scope| {
        let place = Place::new(path.clone()).map_err(|error| error.to_string())?;
        bundle::gather(&place, scope, answer, stop)
    });
    match found {
        Ok(bundle) => bundle.into_discovery(id, path, answer),
        Err(reason) => CapabilityRootDiscovery {
            error: Some(format!("cannot scan capability root {path}: {reason}")),
            id,
            path,
            plugin: None,
            skills: Vec::new(),
            namespace_manifests: Vec::new(),
            warnings: Vec::new(),
        },
    }
}

/// What a text says, read as each kind of file, for the fuzz targets: name, description and short description of a skill;
/// kinds and names of the tools that it needs; the names on the way to each file that a manifest declares.
pub(crate) fn read_for_fuzzing(text: &str) -> (Option<[String; 3]>, Vec<String>, Vec<Vec<String>>) {
    let head = skill::Frontmatter::of(text, "directory")
        .map(|head| [head.name, head.description, head.short_description.unwrap_or_default()]);
    let tools = skill::Metadata::of(text).dependencies.map(|needed| needed.tools).unwrap_or_default();
    let tools = tools.into_iter().flat_map(|tool| [tool.r#type, tool.value]).collect();
    let declared = manifest::Declarations::of(text);
    let paths = [&declared.mcp_servers, &declared.apps].into_iter().filter_map(|declared| match declared {
        manifest::Declared::File(path) => manifest::declared_names(path).ok(),
        manifest::Declared::Nowhere | manifest::Declared::Inline => None,
    });
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    (head, tools, paths.map(owned).collect())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, DiscoveryError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| DiscoveryError::Interrupted(error.to_string()))
}
