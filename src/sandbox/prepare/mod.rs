//! From what a client asks for to what a start needs: chooses the backend, and refuses what none can enforce.

mod cwd;
mod jailed;
mod rules;

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use self::cwd::Cwd;
use super::Sandboxes;
use super::entrance::Entrance;
use super::error::SandboxError;
use super::gaps;
use super::ground::Ground;
use super::networked::NetworkedRun;
use super::placeholders::Lease;
use super::plan::{Grant, PrivateNetwork, View};
use super::probe::{Host, UserNamespace};
use super::seccomp::Filter;
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
    /// What becomes of its network.
    pub network: WantedNetwork,
}

/// Which network a program gets. What takes the policy's place is enforced, also where the policy limits nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WantedNetwork {
    /// What the policy says.
    #[default]
    ByPolicy,
    /// One of its own, for [`NetworkIsolation::Private`].
    Private(PrivateNetwork),
    /// TCP to these ports of the machine's, for [`NetworkIsolation::Ports`].
    Ports(Vec<u16>),
}

/// How the network of a program can be limited to what the server offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkIsolation {
    /// It has a network of its own, in which the server listens.
    Private,
    /// It has the machine's, and Landlock lets it connect to ports that are named: at every address, which is a gap.
    Ports,
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
    /// What leads into its private network, once there is one.
    pub(super) entrance: Option<Promise>,
}

/// An entrance that there will be.
#[derive(Debug)]
pub(super) struct Promise {
    pub(super) give: oneshot::Sender<Entrance>,
    take: Option<oneshot::Receiver<Entrance>>,
}

impl Promise {
    fn new() -> Self {
        let (give, take) = oneshot::channel();
        Self { give, take: Some(take) }
    }
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
    pub(super) network: Option<PrivateNetwork>,
    pub(super) filter: Filter,
    pub(super) namespaces: Namespaces,
    /// Without links.
    pub(super) cwd: PathBuf,
    pub(super) absence: Absence,
    pub(super) helper: CString,
}

/// What becomes of a start whose program is not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It fails.
    Fails,
    /// The view shows no file at all, so there can be no program, and it has ended, as shells say it.
    Ends,
    /// The program is not looked for: this is why.
    Refused(String),
}

impl Prepared {
    /// Has the start succeed without its program, which has ended before it began and says why. False if this sandbox
    /// cannot do that.
    #[must_use]
    pub fn refuse(&mut self, why: &str) -> bool {
        let Measures::View(jail) = &mut self.measures else { return false };
        jail.absence = Absence::Refused(why.to_owned());
        true
    }

    /// Whether what the program starts could outlive it: without namespaces nothing ends that by itself.
    #[must_use]
    pub fn leaves_children(&self) -> bool {
        self.backend == Some(SandboxBackend::Landlock)
    }

    /// Takes what must be held until everything in the sandbox has ended.
    pub fn take_held(&mut self) -> Option<Held> {
        self.held.take()
    }

    /// Takes the promise of an [`Entrance`], where a private network was wanted. It is fulfilled when the program has
    /// been executed, and broken when the start fails.
    pub fn take_entrance(&mut self) -> Option<oneshot::Receiver<Entrance>> {
        self.entrance.as_mut()?.take.take()
    }

    fn unconfined() -> Self {
        Self {
            backend: None,
            gaps: Vec::new(),
            measures: Measures::None,
            run: None,
            held: None,
            entrance: None,
        }
    }
}

/// What a program may reach, by its policy and by what was wanted in its place.
#[derive(Debug, Clone, Copy)]
enum Reach<'a> {
    /// What the server reaches.
    Host,
    Nothing,
    Private(&'a PrivateNetwork),
    Ports(&'a [u16]),
}

impl<'a> Reach<'a> {
    fn of(wanted: &'a WantedNetwork, policy: NetworkPermission) -> Self {
        match (wanted, policy) {
            (WantedNetwork::ByPolicy, NetworkPermission::Enabled) => Self::Host,
            (WantedNetwork::ByPolicy, NetworkPermission::Restricted) => Self::Nothing,
            (WantedNetwork::Private(network), _) => Self::Private(network),
            (WantedNetwork::Ports(ports), _) => Self::Ports(ports),
        }
    }
}

/// The backend that enforces whatever needs one.
enum Chosen {
    Namespaces(UserNamespace),
    Landlock,
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
        match (files, Reach::of(&wanted.network, network)) {
            (Files::Unlimited, Reach::Host) => Ok(Prepared::unconfined()),
            (Files::Unlimited, Reach::Nothing) => rules::no_network(),
            (Files::Unlimited, reach) => self.network_only(reach, wanted),
            (Files::Limited(policy), reach) => self.limited(&policy, reach, wanted),
        }
    }

    /// How the network of a program can be limited here to what the server offers it, and connections that the program
    /// makes elsewhere be led to the server, where that is wanted. The first call may block for some milliseconds, as
    /// [`Self::host`] does.
    ///
    /// # Errors
    /// [`SandboxError::Unavailable`] where it cannot, or only with a gap that is not accepted.
    pub fn network_isolation(&self, transparent: bool) -> Result<NetworkIsolation, SandboxError> {
        let host = self.host();
        match self.chosen(&host)? {
            Chosen::Namespaces(_) if transparent => {
                host.transparent().map(|()| NetworkIsolation::Private).map_err(not_transparent)
            }
            Chosen::Namespaces(_) => Ok(NetworkIsolation::Private),
            Chosen::Landlock if transparent => Err(not_transparent("Landlock redirects nothing")),
            Chosen::Landlock => gaps::of_ports(&self.settings.accepted_gaps).map(|_| NetworkIsolation::Ports),
        }
    }

    fn limited(
        &self,
        policy: &FilePolicy,
        reach: Reach<'_>,
        wanted: &Wanted,
    ) -> Result<Prepared, SandboxError> {
        if policy.wants_legacy_landlock() {
            return Err(SandboxError::unavailable(
                "`useLegacyLandlock` cannot enforce a policy with entries",
            ));
        }
        let ground = Ground::lay(policy);
        let cwd = Cwd::of(&ground, wanted)?;
        match self.chosen(&self.host())? {
            Chosen::Namespaces(user) => jailed::prepare(self, &ground, policy, (user, reach), cwd),
            Chosen::Landlock => rules::landlocked(self, &ground, reach),
        }
    }

    /// Files are free, but the network is not: a view of everything around a network of its own, or rules on ports.
    fn network_only(&self, reach: Reach<'_>, wanted: &Wanted) -> Result<Prepared, SandboxError> {
        match self.chosen(&self.host())? {
            Chosen::Namespaces(user) => {
                let (ground, everything) = (Ground::everything(), FilePolicy::everything());
                let cwd = Cwd::of(&ground, wanted)?;
                jailed::prepare(self, &ground, &everything, (user, reach), cwd)
            }
            Chosen::Landlock => rules::ports_only(self, reach),
        }
    }

    fn chosen(&self, host: &Host) -> Result<Chosen, SandboxError> {
        match (self.settings.backend, &host.namespaces) {
            (Some(SandboxBackend::Landlock), _) | (None, Err(_)) => {
                host.landlock.as_ref().map(|_| Chosen::Landlock).map_err(|reason| no_landlock(host, reason))
            }
            (_, Ok(user)) => Ok(Chosen::Namespaces(*user)),
            (Some(_), Err(reason)) => Err(SandboxError::unavailable(format!(
                "sandbox.backend is `namespaces`, which this server cannot use ({reason})"
            ))),
        }
    }
}

fn not_transparent(reason: &str) -> SandboxError {
    SandboxError::unavailable(format!("connections cannot be redirected here ({reason})"))
}

fn no_landlock(host: &Host, reason: &str) -> SandboxError {
    SandboxError::unavailable(match &host.namespaces {
        Err(also) => format!("this server can use neither namespaces ({also}) nor Landlock ({reason})"),
        Ok(_) => format!("sandbox.backend is `landlock`, which this server cannot use ({reason})"),
    })
}
