//! From what a client asks for to what a start needs: chooses the backend, and refuses what none can enforce.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::SandboxError;
use super::ground::{self, Ground};
use super::networked::NetworkedRun;
use super::placeholders::Lease;
use super::plan::{Absence, Grant, View};
use super::probe::{Host, UserNamespace};
use super::seccomp::{Filter, Sockets};
use super::{Sandboxes, gaps, grants, landlock, view};
use crate::policy::{FilePolicy, Files, Policy, Surroundings};
use crate::protocol::sandbox::{NetworkPermission, SandboxBackend, SandboxContext, SandboxGap};
use crate::spawn::isolation::{Namespaces, Restrictions};

/// What a start is about, as far as its sandbox depends on it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What the client asks for.
    pub context: SandboxContext,
    /// The program's working directory.
    pub cwd: PathBuf,
    /// What `TMPDIR` names in the program's environment.
    pub temporary_directory: Option<PathBuf>,
}

/// A sandbox that is ready for a start.
#[derive(Debug)]
pub struct Prepared {
    /// What enforces the policy, if there is something to enforce.
    pub backend: Option<SandboxBackend>,
    /// What it leaves open.
    pub gaps: Vec<SandboxGap>,
    pub(super) measures: Measures,
    /// To be told its first process.
    pub(super) run: Option<Arc<NetworkedRun>>,
    pub(super) held: Option<Held>,
}

/// What must be held until everything in the sandbox has ended.
#[derive(Debug, Default)]
pub struct Held {
    lease: Option<Lease>,
    run: Option<Arc<NetworkedRun>>,
}

impl Held {
    /// Gives it back. Blocks on the file system of the placeholders.
    pub fn release(self) {
        let Self { lease, run } = self;
        if let Some(lease) = lease {
            lease.release();
        }
        drop(run);
    }
}

/// How a policy is enforced.
#[derive(Debug)]
pub(super) enum Measures {
    /// There is nothing to enforce.
    None,
    /// By rules that the program itself is bound by.
    Rules(Restrictions),
    /// By a private view.
    View(Box<Jail>),
}

/// What a private view is made of.
#[derive(Debug)]
pub(super) struct Jail {
    pub(super) view: View,
    pub(super) grants: Vec<Grant>,
    pub(super) filter: Filter,
    pub(super) namespaces: Namespaces,
    /// Without links.
    pub(super) cwd: PathBuf,
    pub(super) absence: Absence,
}

impl Prepared {
    /// Whether what the program starts could outlive it: without namespaces nothing ends that by itself.
    #[must_use]
    pub fn leaves_children(&self) -> bool {
        self.backend == Some(SandboxBackend::Landlock)
    }

    /// Whether the program has an init of its own, which is one more process of the run.
    #[must_use]
    pub fn has_init(&self) -> bool {
        matches!(self.measures, Measures::View(_))
    }

    /// Takes what must be held until everything in the sandbox has ended.
    pub fn take_held(&mut self) -> Option<Held> {
        self.held.take()
    }

    fn by_rules(backend: SandboxBackend, gaps: Vec<SandboxGap>, rules: Restrictions) -> Self {
        Self { backend: Some(backend), gaps, measures: Measures::Rules(rules), run: None, held: None }
    }
}

impl Sandboxes {
    /// Decides how a policy is enforced, and takes what that needs. Blocks on the file system.
    ///
    /// # Errors
    /// [`SandboxError`]: nothing is weaker than what was asked for.
    pub fn prepare(&self, wanted: &Wanted) -> Result<Prepared, SandboxError> {
        let surroundings = Surroundings {
            cwd: Some(&wanted.cwd),
            temporary_directory: wanted.temporary_directory.as_deref(),
        };
        let Policy { files, network } = Policy::of(&wanted.context, &surroundings)?;
        match (files, network) {
            (Files::Unlimited, NetworkPermission::Enabled) => Ok(Prepared {
                backend: None,
                gaps: Vec::new(),
                measures: Measures::None,
                run: None,
                held: None,
            }),
            (Files::Unlimited, NetworkPermission::Restricted) => no_network(),
            (Files::Limited(policy), network) => self.limited(&policy, network, wanted),
        }
    }

    fn limited(
        &self,
        policy: &FilePolicy,
        network: NetworkPermission,
        wanted: &Wanted,
    ) -> Result<Prepared, SandboxError> {
        if policy.wants_legacy_landlock() {
            return Err(SandboxError::unavailable(
                "`useLegacyLandlock` cannot enforce a policy with entries",
            ));
        }
        let ground = Ground::lay(policy);
        let cwd = Cwd::of(&ground, wanted)?;
        let host = self.host();
        match (self.settings.backend, &host.namespaces) {
            (Some(SandboxBackend::Landlock), _) => self.landlocked(&ground, network, &host),
            (_, Ok(user)) => {
                let user = *user == UserNamespace::Used;
                self.jailed(&ground, policy, Namespaces { user, network: is_restricted(network) }, cwd)
            }
            (Some(_), Err(reason)) => Err(SandboxError::unavailable(format!(
                "sandbox.backend is `namespaces`, which this server cannot use ({reason})"
            ))),
            (None, Err(_)) => self.landlocked(&ground, network, &host),
        }
    }

    fn jailed(
        &self,
        ground: &Ground,
        policy: &FilePolicy,
        namespaces: Namespaces,
        cwd: Cwd,
    ) -> Result<Prepared, SandboxError> {
        let stand_in = cwd.hidden.then_some(cwd.path.as_path());
        let own = self.exposed_state(ground);
        let (view, lease) = view::compose(ground, policy, &self.placeholders, stand_in, own)?;
        let shows_files = ground.rules().iter().any(|(_, rule)| rule.access.reads());
        let sockets = if namespaces.network { Sockets::Supervised } else { Sockets::Network };
        let jail = Jail {
            view,
            grants: grants::in_a_view(ground),
            filter: Filter { sockets, fixed_metadata: false },
            namespaces,
            cwd: cwd.path,
            absence: if shows_files { Absence::Fails } else { Absence::Ends },
        };
        // All of a view ends with its init.
        let run = (!namespaces.network).then(|| Arc::new(self.networked.begin(false)));
        Ok(Prepared {
            backend: Some(SandboxBackend::Namespaces),
            gaps: Vec::new(),
            measures: Measures::View(Box::new(jail)),
            held: Some(Held { lease: Some(lease), run: run.clone() }),
            run,
        })
    }

    fn landlocked(
        &self,
        ground: &Ground,
        network: NetworkPermission,
        host: &Host,
    ) -> Result<Prepared, SandboxError> {
        if let Err(reason) = &host.landlock {
            return Err(SandboxError::unavailable(match &host.namespaces {
                Err(also) => {
                    format!("this server can use neither namespaces ({also}) nor Landlock ({reason})")
                }
                Ok(_) => format!("sandbox.backend is `landlock`, which this server cannot use ({reason})"),
            }));
        }
        let gaps = gaps::of(ground, &self.settings.accepted_gaps)?;
        let scopes = landlock::Scopes { abstract_sockets: is_restricted(network) };
        let ruleset =
            landlock::ruleset(&grants::on_the_host(ground), scopes).map_err(SandboxError::unavailable)?;
        let sockets = if is_restricted(network) { Sockets::Pairs } else { Sockets::Network };
        let filter = Filter { sockets, fixed_metadata: !gaps.contains(&SandboxGap::OutsideMetadata) };
        let rules =
            Restrictions { ruleset: Some(ruleset), filter: Some(compiled(filter)?), no_capabilities: true };
        let run = (!is_restricted(network)).then(|| Arc::new(self.networked.begin(true)));
        let held = Some(Held { lease: None, run: run.clone() });
        Ok(Prepared { run, held, ..Prepared::by_rules(SandboxBackend::Landlock, gaps, rules) })
    }
}

/// Files are free: what the program is, it stays, but for the network.
fn no_network() -> Result<Prepared, SandboxError> {
    let filter = Filter { sockets: Sockets::Pairs, fixed_metadata: false };
    let rules = Restrictions { ruleset: None, filter: Some(compiled(filter)?), no_capabilities: false };
    Ok(Prepared::by_rules(SandboxBackend::Seccomp, Vec::new(), rules))
}

fn compiled(filter: Filter) -> Result<Vec<libc::sock_filter>, SandboxError> {
    Ok(filter.compile().map_err(SandboxError::unavailable)?.into_instructions())
}

fn is_restricted(network: NetworkPermission) -> bool {
    network == NetworkPermission::Restricted
}

/// The working directory as a run finds it.
struct Cwd {
    /// Without links. One that does not exist is the start's to report.
    path: PathBuf,
    /// The program sees an empty directory there.
    hidden: bool,
}

impl Cwd {
    /// A directory that the policy hides is no place to run, unless the policy is about that very directory: clients
    /// name it as the policy's own and may grant nothing in it.
    fn of(ground: &Ground, wanted: &Wanted) -> Result<Self, SandboxError> {
        let Some(path) = ground::real_directory(&wanted.cwd) else {
            return Ok(Self { path: wanted.cwd.clone(), hidden: false });
        };
        let hidden = !ground.access(&path).reads();
        if hidden && own_cwd(&wanted.context).is_none_or(|own| own != path) {
            return Err(SandboxError::Preparation(format!(
                "the working directory {} is hidden by the sandbox policy: give it a read entry",
                wanted.cwd.display()
            )));
        }
        Ok(Self { path, hidden })
    }
}

/// The directory that a context names as its own, without links.
fn own_cwd(context: &SandboxContext) -> Option<PathBuf> {
    let own = context.policy_context.as_ref().map_or(&context.cwd, |context| &context.cwd);
    ground::real_directory(&own.as_ref()?.to_native_path().ok()?)
}
