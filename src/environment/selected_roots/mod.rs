//! Capability roots that somebody has selected, of several environments: which can be used now, which handle each is
//! bound to, and what was discovered in them.
//!
//! Who knows environments by name is asked through a function from id to handle, so nothing here holds a registry.

mod cache;
mod fetch;
mod resolve;

use std::collections::HashSet;
use std::sync::Arc;

pub use self::cache::{CapabilityDiscoverySnapshot, ExecutorCapabilityDiscoveryCache, SelectedRootDiscovery};
pub use self::resolve::{ResolvedSelectedCapabilityRoot, resolve_selected_capability_roots};
use super::Environment;
use crate::client::Readiness;
use crate::path_uri::PathUri;

/// A selected root. Ids are unique and not empty; an environment has at most 256.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SelectedCapabilityRoot {
    /// Chosen by whoever selected it.
    pub id: String,
    /// Where it is.
    pub location: CapabilityRootLocation,
}

/// Where a selected root is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CapabilityRootLocation {
    /// A directory of an environment.
    Environment {
        /// The environment.
        environment_id: String,
        /// The directory.
        path: PathUri,
    },
}

impl SelectedCapabilityRoot {
    /// The environment that it belongs to.
    #[must_use]
    pub fn environment_id(&self) -> &str {
        let CapabilityRootLocation::Environment { environment_id, .. } = &self.location;
        environment_id
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &PathUri {
        let CapabilityRootLocation::Environment { path, .. } = &self.location;
        path
    }
}

/// How selected roots stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SelectedCapabilityRootsStatus {
    /// Those that can be used now, in the order of the selection.
    pub ready_roots: Vec<SelectedCapabilityRoot>,
    /// What will not get better by itself, for people.
    pub warnings: Vec<String>,
}

/// Which selected roots can be used now. It only looks: a root whose environment is being connected or recovered is left
/// out without a word. A root of an unknown environment gives a warning, a failed environment gives one for all its roots.
pub fn inspect_selected_capability_roots(
    roots: &[SelectedCapabilityRoot],
    lookup: impl Fn(&str) -> Option<Arc<Environment>>,
) -> SelectedCapabilityRootsStatus {
    let mut status = SelectedCapabilityRootsStatus::default();
    let mut failed = HashSet::new();
    for root in roots {
        let id = root.environment_id();
        match lookup(id).map(|environment| environment.readiness()) {
            None => status.warnings.push(format!(
                "selected capability root `{}` references unavailable environment `{id}`",
                root.id
            )),
            Some(Readiness::Ready) => status.ready_roots.push(root.clone()),
            Some(Readiness::Starting | Readiness::Recovering) => {}
            Some(Readiness::Failed(error)) => {
                if failed.insert(id) {
                    status.warnings.push(format!("environment `{id}` is not available: {error}"));
                }
            }
        }
    }
    status
}
