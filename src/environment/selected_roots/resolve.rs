use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::SelectedCapabilityRoot;
use crate::client::Readiness;
use crate::environment::Environment;

/// A selected root, bound to an environment: whatever takes the environment's id later, this is where it is read.
#[derive(Clone)]
pub struct ResolvedSelectedCapabilityRoot {
    /// The root.
    pub selected_root: SelectedCapabilityRoot,
    /// The environment.
    pub environment: Arc<Environment>,
}

/// Binds selected roots to environments, in their order. What `captured` says of an environment counts: its handle,
/// whatever state that is in, or that there is none. For others the handle that `lookup` knows is taken if it is ready:
/// one that has failed gets one new attempt, one that was never used is started for the next time. Roots without a handle
/// are left out. Cancel-safe.
pub async fn resolve_selected_capability_roots(
    roots: &[SelectedCapabilityRoot],
    captured: &HashMap<String, Option<Arc<Environment>>>,
    lookup: impl Fn(&str) -> Option<Arc<Environment>>,
) -> Vec<ResolvedSelectedCapabilityRoot> {
    let mut known: HashMap<&str, Option<Arc<Environment>>> = HashMap::new();
    for root in roots {
        let id = root.environment_id();
        known.entry(id).or_insert_with(|| captured.get(id).cloned().unwrap_or_else(|| lookup(id)));
    }
    let handles = join_all(known.into_iter().map(|(id, handle)| async move {
        let handle = match handle {
            Some(handle) if captured.contains_key(id) => Some(handle),
            Some(handle) => ready(handle).await,
            None => None,
        };
        (id, handle)
    }));
    let handles: HashMap<&str, Option<Arc<Environment>>> = handles.await.into_iter().collect();
    let bound = |root: &SelectedCapabilityRoot| {
        let environment = handles.get(root.environment_id())?.clone()?;
        Some(ResolvedSelectedCapabilityRoot { selected_root: root.clone(), environment })
    };
    roots.iter().filter_map(bound).collect()
}

async fn ready(environment: Arc<Environment>) -> Option<Arc<Environment>> {
    match environment.readiness() {
        Readiness::Ready => Some(environment),
        Readiness::Recovering => None,
        Readiness::Starting => {
            environment.start_connecting();
            None
        }
        Readiness::Failed(_) => environment.wait_until_ready().await.ok().map(|()| environment),
    }
}
