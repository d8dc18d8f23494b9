use std::sync::Arc;

use super::{ResolvedSelectedCapabilityRoot, SelectedCapabilityRoot};
use crate::backend::ExecServerError;
use crate::environment::Environment;
use crate::path_uri::PathUri;
use crate::protocol::discovery::{
    CapabilityRootDiscoverRequest, CapabilityRootDiscovery, CapabilityRootsDiscoverParams,
    MAX_CAPABILITY_ROOTS,
};
use crate::protocol::sandbox::SandboxContext;

/// What is known of a root: what was found, or why nothing was.
pub(super) type Found = Result<Arc<CapabilityRootDiscovery>, String>;

/// A root to be discovered.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) root: SelectedCapabilityRoot,
    pub(super) sandbox: Option<SandboxContext>,
    pub(super) environment: Arc<Environment>,
}

impl Wanted {
    pub(super) fn new(resolved: &ResolvedSelectedCapabilityRoot, sandbox: Option<&SandboxContext>) -> Self {
        let ResolvedSelectedCapabilityRoot { selected_root, environment } = resolved;
        Self { root: selected_root.clone(), sandbox: sandbox.cloned(), environment: Arc::clone(environment) }
    }
}

/// What came of asking for a root.
pub(super) struct Outcome {
    /// The place of the root among those that are wanted.
    pub(super) index: usize,
    pub(super) found: Found,
    /// The executor said so, and would say so again. What did not reach it may go better the next time.
    pub(super) is_final: bool,
}

/// One request: roots of one environment, with their places.
pub(super) struct Request {
    environment: Arc<Environment>,
    roots: Vec<(usize, CapabilityRootDiscoverRequest)>,
}

/// As few requests as cover the wanted roots, each to one environment.
pub(super) fn requests<'a>(missing: impl IntoIterator<Item = (usize, &'a Wanted)>) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for (index, Wanted { root, sandbox, environment }) in missing {
        let request = CapabilityRootDiscoverRequest {
            id: root.id.clone(),
            path: root.path().clone(),
            sandbox: sandbox.clone(),
        };
        let open = requests.iter_mut().find(|open| {
            Arc::ptr_eq(&open.environment, environment) && open.roots.len() < MAX_CAPABILITY_ROOTS
        });
        match open {
            Some(open) => open.roots.push((index, request)),
            None => {
                requests.push(Request { environment: Arc::clone(environment), roots: vec![(index, request)] })
            }
        }
    }
    requests
}

impl Request {
    /// Sends it, and says what came of each root.
    pub(super) async fn send(self) -> Vec<Outcome> {
        let roots: Vec<_> = self.roots.iter().map(|(_, root)| root.clone()).collect();
        let asked = self.roots.into_iter().map(|(index, root)| (index, root.id, root.path));
        match self.environment.discover_capability_roots(CapabilityRootsDiscoverParams { roots }).await {
            Ok(answer) if answer.roots.len() != asked.len() => {
                let why = format!(
                    "the executor answered {} capability roots where {} were asked for",
                    answer.roots.len(),
                    asked.len()
                );
                asked.map(|(index, ..)| Outcome::failure(index, why.clone(), true)).collect()
            }
            Ok(answer) => asked.zip(answer.roots).map(|(asked, root)| answered(asked, root)).collect(),
            Err(error) => {
                let is_final = matches!(error, ExecServerError::Server { .. });
                asked.map(|(index, ..)| Outcome::failure(index, error.to_string(), is_final)).collect()
            }
        }
    }
}

impl Outcome {
    fn failure(index: usize, why: String, is_final: bool) -> Self {
        Self { index, found: Err(why), is_final }
    }
}

/// An answer counts for the root that it names.
fn answered((index, id, path): (usize, String, PathUri), root: CapabilityRootDiscovery) -> Outcome {
    if root.id != id || root.path != path {
        let why = format!(
            "the executor answered capability root `{}` at {} where `{id}` at {path} was asked for",
            root.id, root.path
        );
        return Outcome::failure(index, why, true);
    }
    let found = match root.error {
        Some(error) => Err(error),
        None => Ok(Arc::new(root)),
    };
    Outcome { index, found, is_final: true }
}
