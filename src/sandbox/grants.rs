//! From a ground to Landlock grants.

use std::path::Path;

use super::ground::{Ground, Presence};
use super::plan::{Grant, GrantAccess};
use crate::policy::Access;

/// Harmless devices that every program may use.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

fn grant(path: &Path, access: GrantAccess) -> Grant {
    Grant { path: path.into(), access }
}

/// Under a private view: what the rules say, and the view's own parts.
pub(super) fn in_a_view(ground: &Ground) -> Vec<Grant> {
    let mut grants = of_rules(ground);
    if !ground.access(Path::new("/")).reads() {
        grants.push(grant(Path::new("/"), GrantAccess::List));
    }
    grants.push(grant(Path::new("/proc"), GrantAccess::Read));
    grants.push(grant(Path::new("/dev"), GrantAccess::Device));
    grants.push(grant(Path::new("/dev/shm"), GrantAccess::Write));
    grants
}

/// On the machine as it is. Other terminals of the same user are none of the program's, so there are no pairs to make.
pub(super) fn on_the_host(ground: &Ground) -> Vec<Grant> {
    let mut grants = of_rules(ground);
    grants.push(grant(Path::new("/proc"), GrantAccess::Read));
    grants.extend(DEVICES.map(|device| grant(Path::new(device), GrantAccess::Device)));
    grants
}

fn of_rules(ground: &Ground) -> Vec<Grant> {
    let present = ground
        .rules()
        .iter()
        .filter(|(_, rule)| matches!(rule.presence, Presence::Directory | Presence::File));
    let granted = present.filter_map(|(path, rule)| match rule.access {
        Access::Write => Some(grant(path, GrantAccess::Write)),
        Access::Read => Some(grant(path, GrantAccess::Read)),
        Access::Deny | Access::Hidden => None,
    });
    granted.collect()
}
