//! From a policy to its enforcement on this machine: prepares, and never touches this process.
//!
//! * [`ground`] is the one normal form: a policy on real paths. Everything that enforces one derives from it.
//! * [`Sandboxes::prepare`] decides how a policy is enforced; `probe` finds out what this machine can do. From the ground,
//!   `view` makes what a run sees, `grants` what it may open, and `gaps` says what Landlock alone leaves open.
//! * [`entrance`] is what the server holds of a run's private network.
//! * [`plan`] is what the helper is told about one run; [`launch`] starts a helper with it.
//! * [`placeholders`] keeps protected paths that do not exist from being created.
//! * [`landlock`] and [`seccomp`] build rules; the helper and the child apply them.
//! * [`peer_check`] lets in who belongs to one run.
//! * [`networked`] knows the runs that can reach the server, and [`origin`] refuses connections that come from them.

pub mod entrance;
mod error;
mod gaps;
mod grants;
pub mod ground;
pub mod landlock;
pub mod launch;
pub mod networked;
pub mod origin;
pub mod peer_check;
pub mod placeholders;
pub mod plan;
mod prepare;
mod probe;
pub mod seccomp;
mod sock_diag;
mod view;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use self::error::SandboxError;
use self::ground::Ground;
use self::networked::NetworkedRuns;
use self::placeholders::Placeholders;
pub use self::plan::PrivateNetwork;
pub use self::prepare::{Held, NetworkIsolation, Prepared, Wanted, WantedNetwork};
pub use self::probe::Host;
use crate::protocol::environment::EnvironmentInfo;
use crate::protocol::sandbox::{SandboxBackend, SandboxGap, SandboxReport};

/// The hidden first argument by which the program becomes the init of a sandbox.
pub const WORD: &str = "__exec-server-sandbox";

/// This program becomes a helper when it is asked to.
static REENTERED: AtomicBool = AtomicBool::new(false);

/// Says that this program looks for [`WORD`] before anything else. Without it there are no sandboxes: the program would
/// be run again, and not as a helper.
pub fn can_be_reentered() {
    REENTERED.store(true, Ordering::Relaxed);
}

/// How policies are enforced.
#[derive(Debug, Clone, Default)]
pub struct SandboxSettings {
    /// The only backend that may be used. None: the first that can enforce all of a policy.
    pub backend: Option<SandboxBackend>,
    /// What it may leave open where a policy would be refused otherwise.
    pub accepted_gaps: Vec<SandboxGap>,
    /// Where the journal of placeholders goes. None: into memory.
    pub state_dir: Option<PathBuf>,
    /// A program of this version that calls `exec_server::helper::dispatch` first, by its absolute path: it is run as
    /// the helper. None: this very program, if it does.
    pub helper: Option<PathBuf>,
    /// What the service manager has put into files for this server alone.
    pub credentials_dir: Option<PathBuf>,
}

/// What all sandboxes of one server share.
#[derive(Debug)]
pub struct Sandboxes {
    /// How they are made.
    pub settings: SandboxSettings,
    /// The owner of their placeholders.
    pub placeholders: Placeholders,
    /// Those that have a network.
    pub networked: Arc<NetworkedRuns>,
    /// Known once it was needed; forgotten when it turns out wrong.
    host: Mutex<Option<Arc<Host>>>,
    /// Directories of this server's own, and their real paths once they are there.
    own: Vec<(PathBuf, OnceLock<PathBuf>)>,
}

impl Sandboxes {
    /// Those of a server. Reads the state directory: it blocks for a moment.
    #[must_use]
    pub fn new(settings: SandboxSettings) -> Arc<Self> {
        let placeholders = Placeholders::new(settings.state_dir.as_deref());
        let own = [&settings.state_dir, &settings.credentials_dir];
        let own = own.into_iter().flatten().map(|path| (path.clone(), OnceLock::new())).collect();
        let (networked, host) = (Arc::default(), Mutex::default());
        Arc::new(Self { settings, placeholders, networked, host, own })
    }

    /// The directories of this server's own that a policy shows without meaning to: the token that it made is in one, and
    /// the tokens and keys that it was given in another. Blocks on the file system, for a short time.
    #[must_use]
    pub fn exposed_state(&self, ground: &Ground) -> Vec<PathBuf> {
        let rules = ground.rules();
        let is_meant = |path: &Path| rules.at(path).is_some() || rules.below(path).next().is_some();
        let is_exposed = |path: &PathBuf| ground.access(path).reads() && !is_meant(path);
        self.own_directories().filter(is_exposed).collect()
    }

    fn own_directories(&self) -> impl Iterator<Item = PathBuf> {
        self.own.iter().filter_map(|(path, real)| match real.get() {
            Some(real) => Some(real.clone()),
            None => ground::real_directory(path).map(|found| real.get_or_init(|| found).clone()),
        })
    }

    /// What this machine can do. The first call tries it out, which blocks for some milliseconds.
    #[must_use]
    pub fn host(&self) -> Arc<Host> {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(host.get_or_insert_with(|| Arc::new(Host::probe(self.helper()))))
    }

    /// The program that is run as the helper.
    ///
    /// # Errors
    /// Why there is none.
    fn helper(&self) -> Result<CString, String> {
        match &self.settings.helper {
            Some(path) if path.is_absolute() => CString::new(path.as_os_str().as_bytes())
                .map_err(|_| "the path of the sandbox helper holds a NUL byte".to_owned()),
            Some(path) => Err(format!("the path of the sandbox helper, {}, is not absolute", path.display())),
            None if REENTERED.load(Ordering::Relaxed) => Ok(c"/proc/self/exe".to_owned()),
            None => Err("this program does not call `exec_server::helper::dispatch` first, \
                         and no other is named as the sandbox helper"
                .to_owned()),
        }
    }

    /// Adds to what an executor says of itself what its sandboxes can do here. Blocks as [`Self::host`] does.
    #[must_use]
    pub fn described(&self, mut info: EnvironmentInfo) -> EnvironmentInfo {
        info.sandbox = Some(self.report());
        info.capabilities.network_proxy_transparent_tcp = self.network_isolation(true).is_ok();
        info
    }

    /// What there is, for clients, and what the settings make the default. Blocks as [`Self::host`] does.
    #[must_use]
    pub fn report(&self) -> SandboxReport {
        self.host().report(self.settings.backend)
    }

    /// What the machine could do it cannot do any more: the next start looks again.
    pub fn doubt_host(&self) {
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
