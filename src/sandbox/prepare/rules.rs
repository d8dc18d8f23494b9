//! Without namespaces: rules that the program itself is bound by.

use std::sync::Arc;

use super::{Held, Measures, Prepared, Reach};
use crate::protocol::sandbox::{SandboxBackend, SandboxGap};
use crate::sandbox::ground::Ground;
use crate::sandbox::plan::{Grant, GrantAccess};
use crate::sandbox::seccomp::{Filter, Sockets};
use crate::sandbox::{SandboxError, Sandboxes, gaps, grants, landlock};
use crate::spawn::isolation::Restrictions;

/// Files are free: what the program is, it stays, but for the network.
pub(super) fn no_network() -> Result<Prepared, SandboxError> {
    let filter = Filter { sockets: Sockets::Pairs, fixed_metadata: false };
    let rules = Restrictions { ruleset: None, filter: Some(compiled(filter)?), no_capabilities: false };
    Ok(prepared(SandboxBackend::Seccomp, Vec::new(), rules))
}

/// Files as the ground says.
pub(super) fn landlocked(
    sandboxes: &Sandboxes,
    ground: &Ground,
    reach: Reach<'_>,
) -> Result<Prepared, SandboxError> {
    let mut gaps = gaps::of(ground, &sandboxes.settings.accepted_gaps)?;
    gaps.extend(of_network(sandboxes, reach)?);
    let fixed_metadata = !gaps.contains(&SandboxGap::OutsideMetadata);
    by_landlock(sandboxes, &grants::on_the_host(ground), reach, gaps, fixed_metadata)
}

/// Files are free, and the network is limited to ports.
pub(super) fn ports_only(sandboxes: &Sandboxes, reach: Reach<'_>) -> Result<Prepared, SandboxError> {
    let gaps = of_network(sandboxes, reach)?.into_iter().collect();
    let all = Grant { path: std::path::Path::new("/").into(), access: GrantAccess::Write };
    by_landlock(sandboxes, &[all], reach, gaps, false)
}

fn of_network(sandboxes: &Sandboxes, reach: Reach<'_>) -> Result<Option<SandboxGap>, SandboxError> {
    match reach {
        Reach::Host | Reach::Nothing => Ok(None),
        Reach::Ports(_) => gaps::of_ports(&sandboxes.settings.accepted_gaps).map(Some),
        Reach::Private(_) => Err(SandboxError::unavailable(
            "a network of the process's own needs namespaces, which this server cannot use",
        )),
    }
}

fn by_landlock(
    sandboxes: &Sandboxes,
    grants: &[Grant],
    reach: Reach<'_>,
    gaps: Vec<SandboxGap>,
    fixed_metadata: bool,
) -> Result<Prepared, SandboxError> {
    let (sockets, tcp_ports) = match reach {
        Reach::Host => (Sockets::Network, None),
        Reach::Nothing | Reach::Private(_) => (Sockets::Pairs, None),
        Reach::Ports(ports) => (Sockets::Outgoing, Some(ports)),
    };
    let rules = landlock::Reach { scoped_sockets: sockets != Sockets::Network, tcp_ports };
    let ruleset = landlock::ruleset(grants, rules).map_err(SandboxError::unavailable)?;
    let filter = compiled(Filter { sockets, fixed_metadata })?;
    let rules = Restrictions { ruleset: Some(ruleset), filter: Some(filter), no_capabilities: true };
    let run = (sockets != Sockets::Pairs).then(|| Arc::new(sandboxes.networked.begin(true)));
    let held = Some(Held { lease: None, run: run.clone() });
    Ok(Prepared { run, held, ..prepared(SandboxBackend::Landlock, gaps, rules) })
}

fn prepared(backend: SandboxBackend, gaps: Vec<SandboxGap>, rules: Restrictions) -> Prepared {
    Prepared { backend: Some(backend), gaps, measures: Measures::Rules(rules), ..Prepared::unconfined() }
}

fn compiled(filter: Filter) -> Result<Vec<libc::sock_filter>, SandboxError> {
    Ok(filter.compile().map_err(SandboxError::unavailable)?.into_instructions())
}
