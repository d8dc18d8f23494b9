use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::join_all;

use super::fetch::{Found, Outcome, Wanted, requests};
use super::{ResolvedSelectedCapabilityRoot, SelectedCapabilityRoot};
use crate::environment::Environment;
use crate::protocol::discovery::{CapabilityRootDiscovery, CapabilityTextFile};
use crate::protocol::sandbox::SandboxContext;

/// Results that are kept.
const MAX_KEPT: usize = 1_024;
/// Bytes of text that are kept.
const MAX_KEPT_BYTES: usize = 256 << 20;

/// Remembers what was discovered in selected roots; made for one conversation.
///
/// A result counts for the root, the sandbox and the very handle that it came through. What an executor has answered is
/// kept, be it a failure; what did not reach it is tried again by the next snapshot. At most 1,024 results and 256 MiB are
/// kept: those used last, in the order in which snapshots name them.
#[derive(Default)]
pub struct ExecutorCapabilityDiscoveryCache {
    state: Mutex<State>,
}

/// What is known of selected roots at one moment.
#[derive(Debug, Clone)]
pub struct CapabilityDiscoverySnapshot {
    roots: Vec<SelectedRootDiscovery>,
}

/// What is known of one selected root.
#[derive(Debug, Clone)]
pub struct SelectedRootDiscovery {
    /// The root.
    pub selected_root: SelectedCapabilityRoot,
    /// What was found, or why nothing was, for people.
    pub result: Result<Arc<CapabilityRootDiscovery>, String>,
}

impl CapabilityDiscoverySnapshot {
    /// One entry for each root that was asked for, in that order.
    #[must_use]
    pub fn roots(&self) -> &[SelectedRootDiscovery] {
        &self.roots
    }
}

#[derive(Default)]
struct State {
    kept: HashMap<SelectedCapabilityRoot, Vec<Kept>>,
    /// Roots whose last discovery, through whatever handle, failed, and when: as many of the last as results are kept.
    failed: HashMap<SelectedCapabilityRoot, u64>,
    recovered: bool,
    /// Counts uses, each result on its own.
    clock: u64,
}

struct Kept {
    sandbox: Option<SandboxContext>,
    /// Does not keep the environment; while it is here, no other environment has its address.
    environment: Weak<Environment>,
    found: Found,
    bytes: usize,
    used: u64,
}

impl ExecutorCapabilityDiscoveryCache {
    /// What is in these roots; `sandboxes` has the sandbox of each environment, by its id. What is not known is asked for,
    /// of all environments at the same time. Cancel-safe: what has been answered by then is lost, and asked for again.
    pub async fn snapshot(
        &self,
        roots: &[ResolvedSelectedCapabilityRoot],
        sandboxes: &HashMap<String, SandboxContext>,
    ) -> CapabilityDiscoverySnapshot {
        let wanted: Vec<Wanted> = roots
            .iter()
            .map(|root| Wanted::new(root, sandboxes.get(root.selected_root.environment_id())))
            .collect();
        let mut found = self.state().known(&wanted);
        let missing = wanted.iter().enumerate().filter(|(index, _)| found[*index].is_none());
        let outcomes = join_all(requests(missing).into_iter().map(|request| request.send())).await;
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        self.state().note_all(&wanted, &outcomes);
        for outcome in outcomes {
            found[outcome.index] = Some(outcome.found);
        }
        let discovered = |(wanted, found): (Wanted, Option<Found>)| SelectedRootDiscovery {
            selected_root: wanted.root,
            result: found.unwrap_or_else(|| Err("the executor did not answer".to_owned())),
        };
        CapabilityDiscoverySnapshot { roots: wanted.into_iter().zip(found).map(discovered).collect() }
    }

    /// Whether a root that had failed has been discovered since, be it through another handle; true once. What depends on
    /// the roots is to be built again then.
    pub fn take_recovered_discovery(&self) -> bool {
        std::mem::take(&mut self.state().recovered)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is kept of the wanted roots.
    fn known(&mut self, wanted: &[Wanted]) -> Vec<Option<Found>> {
        wanted.iter().map(|wanted| self.recall(wanted)).collect()
    }

    fn recall(&mut self, wanted: &Wanted) -> Option<Found> {
        let kept = self.kept.get_mut(&wanted.root)?.iter_mut().find(|kept| kept.is_for(wanted))?;
        self.clock += 1;
        kept.used = self.clock;
        Some(kept.found.clone())
    }

    fn note_all(&mut self, wanted: &[Wanted], outcomes: &[Outcome]) {
        for outcome in outcomes {
            self.clock += 1;
            self.note(&wanted[outcome.index], outcome);
        }
        if !outcomes.is_empty() {
            self.forget();
        }
    }

    fn note(&mut self, wanted: &Wanted, outcome: &Outcome) {
        if outcome.found.is_err() {
            self.failed.insert(wanted.root.clone(), self.clock);
        } else if self.failed.remove(&wanted.root).is_some() {
            self.recovered = true;
        }
        if outcome.is_final {
            let kept = self.kept.entry(wanted.root.clone()).or_default();
            kept.retain(|kept| !kept.is_for(wanted));
            kept.push(Kept::new(wanted, &outcome.found, self.clock));
        }
    }

    /// Drops what nobody can ask for any more, and what there is too much of.
    fn forget(&mut self) {
        let mut all: Vec<(u64, usize)> = Vec::new();
        for kept in self.kept.values_mut() {
            kept.retain(|kept| kept.environment.strong_count() > 0);
            all.extend(kept.iter().map(|kept| (kept.used, kept.bytes)));
        }
        let oldest = oldest_kept(all);
        for kept in self.kept.values_mut() {
            kept.retain(|kept| kept.used >= oldest);
        }
        self.kept.retain(|_, kept| !kept.is_empty());
        let oldest = oldest_kept(self.failed.values().map(|failed| (*failed, 0)).collect());
        self.failed.retain(|_, failed| *failed >= oldest);
    }
}

/// The use from which on results are kept.
fn oldest_kept(mut all: Vec<(u64, usize)>) -> u64 {
    all.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    for (count, (used, more)) in all.into_iter().enumerate() {
        bytes += more;
        if count == MAX_KEPT || bytes > MAX_KEPT_BYTES {
            return used + 1;
        }
    }
    0
}

impl Kept {
    fn new(wanted: &Wanted, found: &Found, used: u64) -> Self {
        Self {
            sandbox: wanted.sandbox.clone(),
            environment: Arc::downgrade(&wanted.environment),
            found: found.clone(),
            bytes: found.as_ref().map_or_else(String::len, |root| weight(root)),
            used,
        }
    }

    fn is_for(&self, wanted: &Wanted) -> bool {
        std::ptr::eq(self.environment.as_ptr(), Arc::as_ptr(&wanted.environment))
            && self.sandbox == wanted.sandbox
    }
}

/// Bytes of text in a result, roughly.
fn weight(root: &CapabilityRootDiscovery) -> usize {
    let file = |file: &CapabilityTextFile| file.path.as_str().len() + file.contents.len();
    let skills = root.skills.iter().flat_map(|skill| [Some(&skill.instructions), skill.metadata.as_ref()]);
    let plugin = root
        .plugin
        .iter()
        .flat_map(|plugin| [Some(&plugin.manifest), plugin.mcp_config.as_ref(), plugin.apps_config.as_ref()]);
    let files = skills.chain(plugin).flatten().chain(&root.namespace_manifests).map(file);
    files.chain(root.warnings.iter().map(String::len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_used_last_are_kept() {
        assert_eq!(oldest_kept(vec![(1, 10), (2, 10)]), 0);
        let many = (0..MAX_KEPT as u64 + 3).map(|used| (used, 1)).collect();
        assert_eq!(oldest_kept(many), 3);
        assert_eq!(oldest_kept(vec![(1, 1), (2, MAX_KEPT_BYTES), (3, 1)]), 3);
        assert_eq!(oldest_kept(vec![(1, MAX_KEPT_BYTES + 1)]), 2);
    }
}
