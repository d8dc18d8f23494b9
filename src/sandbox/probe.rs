//! What this machine can do, found out by doing it once.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::plan::{Base, Failure, Grant, GrantAccess, Plan, PrivateNetwork, Program, Skeleton, View};
use super::seccomp::{Filter, Sockets};
use super::{WORD, gaps, landlock, launch};
use crate::protocol::sandbox::{BackendReport, SandboxBackend, SandboxReport};
use crate::spawn::isolation::Namespaces;
use crate::spawn::{Inherited, SpawnError, Stdio, Tree};

/// The backends of this machine: what they are made of, or why they cannot be had.
#[derive(Debug, Clone)]
pub struct Host {
    /// Whether a private view needs a user namespace.
    pub(super) namespaces: Result<UserNamespace, String>,
    /// The version of Landlock.
    pub(super) landlock: Result<i32, String>,
    /// Whether connections can be redirected in a private network.
    transparent: Result<(), String>,
}

/// How a private view is come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserNamespace {
    Used,
    /// This server has the capabilities itself.
    NotNeeded,
}

impl Host {
    /// Tries everything once, with this helper if there is one. Blocks for some milliseconds.
    #[must_use]
    pub fn probe(helper: Result<CString, String>) -> Self {
        let (namespaces, transparent) = match helper.and_then(|helper| namespaces(&helper)) {
            Ok((user, transparent)) => (Ok(user), transparent),
            Err(reason) => (Err(reason.clone()), Err(reason)),
        };
        Self { namespaces, landlock: landlock(), transparent }
    }

    /// Whether connections can be redirected in a private network, or why not.
    pub(super) fn transparent(&self) -> Result<(), &str> {
        self.transparent.as_ref().copied().map_err(String::as_str)
    }

    /// What there is, for clients. The default is the one that is forced, or the first that there is.
    #[must_use]
    pub fn report(&self, forced: Option<SandboxBackend>) -> SandboxReport {
        let backend = |name, reason: Option<&String>| BackendReport {
            name,
            available: reason.is_none(),
            reason: reason.cloned(),
        };
        let backends = vec![
            backend(SandboxBackend::Namespaces, self.namespaces.as_ref().err()),
            backend(SandboxBackend::Landlock, self.landlock.as_ref().err()),
        ];
        let may_be = |name| forced.is_none_or(|forced| forced == name);
        let default = backends
            .iter()
            .find(|backend| backend.available && may_be(backend.name))
            .map(|backend| backend.name);
        SandboxReport { backends, default }
    }
}

/// How a private view is come by, and whether connections can be redirected in it. Everything is tried first: where it
/// works, so does less, and clients wait for one trial alone.
fn namespaces(helper: &CString) -> Result<(UserNamespace, Result<(), String>), String> {
    let tried = |user: UserNamespace, transparent: bool| {
        let namespaces = Namespaces { user: user == UserNamespace::Used, network: true };
        let network = transparent.then(|| PrivateNetwork { ports: Vec::new(), transparent });
        run(helper, namespaces, network)
    };
    let transparent = tried(UserNamespace::Used, true);
    if transparent.is_ok() {
        return Ok((UserNamespace::Used, transparent));
    }
    let Err(reason) = tried(UserNamespace::Used, false) else {
        return Ok((UserNamespace::Used, transparent));
    };
    match tried(UserNamespace::NotNeeded, false) {
        Ok(()) => Ok((UserNamespace::NotNeeded, tried(UserNamespace::NotNeeded, true))),
        Err(_) => Err(reason),
    }
}

fn landlock() -> Result<i32, String> {
    match landlock::version() {
        0 => Err("the kernel has no Landlock, or does not let this server use it".to_owned()),
        version if version < gaps::LEAST_VERSION => {
            Err(format!("Landlock is of version {version}, and version {} is needed", gaps::LEAST_VERSION))
        }
        version => Ok(version),
    }
}

/// Builds a read-only view without the machine's network and runs something in it: the helper's program, which ends at
/// once.
fn run(helper: &CString, namespaces: Namespaces, network: Option<PrivateNetwork>) -> Result<(), String> {
    let streams = streams(helper).map_err(|error| error.to_string())?;
    match launch::launch(&plan(network), streams, namespaces, helper.clone()) {
        Ok(launched) => {
            launched.child.wait().then_some(()).ok_or_else(|| "a sandbox did not work".to_owned())
        }
        Err(launch::LaunchError::Spawn(SpawnError { source, .. })) => {
            Err(format!("namespaces cannot be made: {source}"))
        }
        Err(launch::LaunchError::Failed(failure)) => Err(in_words(&failure)),
    }
}

/// What a helper could not do.
pub(super) fn in_words(failure: &Failure) -> String {
    match failure.errno {
        0 => failure.what.clone(),
        errno => format!("{}: {}", failure.what, std::io::Error::from_raw_os_error(errno)),
    }
}

fn streams(helper: &CString) -> std::io::Result<launch::Streams> {
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    Ok(launch::Streams {
        stdio: Stdio::Separate { stdin: null()?, stdout: null()?, stderr: null()? },
        inherited: vec![Inherited {
            fd: Arc::new(File::open(OsStr::from_bytes(helper.as_bytes()))?.into()),
            number: 3,
        }],
        tree: Tree::none(),
    })
}

fn plan(network: Option<PrivateNetwork>) -> Plan {
    let words = |words: &[&str]| words.iter().filter_map(|word| CString::new(*word).ok()).collect();
    Plan {
        view: View {
            base: Base::Host { writable: false },
            layers: Vec::new(),
            shared_memory: Skeleton::default(),
        },
        network,
        grants: vec![Grant { path: std::path::Path::new("/").into(), access: GrantAccess::Read }],
        filter: Filter { sockets: Sockets::Supervised, fixed_metadata: false },
        program: Program {
            candidates: words(&["/proc/self/fd/3"]),
            argv: words(&["exec-server: probe", WORD]),
            env: Vec::new(),
            cwd: c"/".to_owned(),
            terminal: false,
            absence: None,
            inherited: vec![3],
            open_files: None,
        },
    }
}
