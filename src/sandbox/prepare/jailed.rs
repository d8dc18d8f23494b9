//! With namespaces: a private view, and a network of its own where the host's is not meant.

use std::sync::Arc;

use super::cwd::Cwd;
use super::{Absence, Held, Jail, Measures, Prepared, Promise, Reach};
use crate::policy::FilePolicy;
use crate::protocol::sandbox::SandboxBackend;
use crate::sandbox::ground::Ground;
use crate::sandbox::plan::{MAX_PORTS, PrivateNetwork};
use crate::sandbox::probe::UserNamespace;
use crate::sandbox::seccomp::{Filter, Sockets};
use crate::sandbox::{SandboxError, Sandboxes, grants, view};
use crate::spawn::isolation::Namespaces;

pub(super) fn prepare(
    sandboxes: &Sandboxes,
    ground: &Ground,
    policy: &FilePolicy,
    (user, reach): (UserNamespace, Reach<'_>),
    cwd: Cwd,
) -> Result<Prepared, SandboxError> {
    let (sockets, network) = networking(reach)?;
    let stand_in = cwd.hidden.then_some(cwd.path.as_path());
    let own = sandboxes.exposed_state(ground);
    let (view, lease) = view::compose(ground, policy, &sandboxes.placeholders, stand_in, own)?;
    let shows_files = ground.rules().iter().any(|(_, rule)| rule.access.reads());
    let is_on_host = matches!(reach, Reach::Host);
    let entrance = network.is_some().then(Promise::new);
    let helper = sandboxes.helper().map_err(SandboxError::unavailable)?;
    let jail = Jail {
        view,
        grants: grants::in_a_view(ground),
        network,
        filter: Filter { sockets, fixed_metadata: false },
        namespaces: Namespaces { user: user == UserNamespace::Used, network: !is_on_host },
        cwd: cwd.path,
        absence: if shows_files { Absence::Fails } else { Absence::Ends },
        helper,
    };
    // All of a view ends with its init.
    let run = is_on_host.then(|| Arc::new(sandboxes.networked.begin(false)));
    Ok(Prepared {
        backend: Some(SandboxBackend::Namespaces),
        gaps: Vec::new(),
        measures: Measures::View(Box::new(jail)),
        held: Some(Held { lease: Some(lease), run: run.clone() }),
        run,
        entrance,
    })
}

fn networking(reach: Reach<'_>) -> Result<(Sockets, Option<PrivateNetwork>), SandboxError> {
    match reach {
        Reach::Host => Ok((Sockets::Network, None)),
        Reach::Nothing => Ok((Sockets::Supervised, None)),
        Reach::Private(network) if network.ports.len() > MAX_PORTS => Err(SandboxError::Preparation(
            format!("a private network can have {MAX_PORTS} proxy endpoints, not {}", network.ports.len()),
        )),
        Reach::Private(network) => {
            Ok((Sockets::Private { routing: network.transparent }, Some(network.clone())))
        }
        Reach::Ports(_) => Err(SandboxError::Preparation(
            "the way in which networks are isolated here has changed; start the process again".to_owned(),
        )),
    }
}
