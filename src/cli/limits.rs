//! The limits of runs, as the settings say and this machine can hold them.

use std::sync::Arc;

use anyhow::anyhow;

use crate::config::{CgroupChoice, Config};
use crate::protocol::limits::ProcessLimits;
use crate::session::{LimitHost, LimitPolicy};
use crate::spawn::cgroup::{Controller, Hierarchy, Home};

/// Both tables of limits have the same keys.
macro_rules! limits {
    ($keys:expr) => {{
        let keys = $keys;
        ProcessLimits {
            memory_bytes: keys.memory_bytes,
            processes: keys.processes,
            cpu_ms: keys.cpu_ms,
            wall_ms: keys.wall_ms,
            output_bytes: keys.output_bytes,
            open_files: keys.open_files,
        }
    }};
}

/// Takes the cgroup of the settings, if there is one to be had, and reads the limits. Blocks for some milliseconds.
///
/// # Errors
/// A cgroup that was named and cannot be had, a limit that cannot be enforced.
pub(super) fn policy(config: &Config) -> anyhow::Result<LimitPolicy> {
    let host = match home(&config.limits.cgroup) {
        Ok(home) => match Hierarchy::set_up(&home) {
            Ok(groups) => with(groups),
            Err(reason) if home == Home::Own => {
                tracing::debug!(reason, "runs have no cgroups");
                LimitHost::without_cgroups(&reason)
            }
            Err(reason) => return Err(anyhow!("limits.cgroup: {reason}")),
        },
        Err(reason) => LimitHost::without_cgroups(reason),
    };
    LimitPolicy::new(limits!(&config.limits_default), limits!(&config.limits_max), host)
        .map_err(|error| anyhow!(error))
}

/// Which cgroup is wanted, or why none is.
pub(super) fn home(choice: &CgroupChoice) -> Result<Home, &'static str> {
    match choice {
        CgroupChoice::Auto => Ok(Home::Own),
        CgroupChoice::At(path) => Ok(Home::At(path.clone())),
        CgroupChoice::Off => Err("limits.cgroup is off"),
    }
}

fn with(groups: Arc<Hierarchy>) -> LimitHost {
    tracing::info!(cgroup = %groups.runs().dir().display(), "each run has a cgroup of its own");
    for reason in Controller::ALL.into_iter().filter_map(|controller| groups.why_not(controller)) {
        tracing::warn!(reason, "some limits cannot be enforced");
    }
    LimitHost::with(groups)
}
