//! What Landlock leaves open of a policy, and which policies it cannot enforce at all.

use std::path::Path;

use super::error::SandboxError;
use super::ground::{Ground, METADATA, Origin, Presence, Rule};
use super::landlock;
use crate::policy::Access;
use crate::protocol::sandbox::SandboxGap;

/// The first version that covers truncation; before it any file of the user could be emptied.
pub(super) const LEAST_VERSION: i32 = 3;

/// What a run stays open to, in the order of the contract.
///
/// # Errors
/// For a policy that Landlock cannot enforce, or only with gaps that are not accepted.
pub(super) fn of(ground: &Ground, accepted: &[SandboxGap]) -> Result<Vec<SandboxGap>, SandboxError> {
    if let Some(reason) = not_expressible(ground) {
        return Err(SandboxError::unavailable(reason));
    }
    let gaps = left_open(ground);
    let refused: Vec<_> =
        gaps.iter().copied().filter(|gap| must_be_accepted(*gap) && !accepted.contains(gap)).collect();
    if refused.is_empty() {
        return Ok(gaps);
    }
    let names = refused.iter().map(|gap| format!("\"{}\"", gap.name())).collect::<Vec<_>>().join(", ");
    let message = format!(
        "the writable roots of this sandbox policy need namespaces, which this server cannot use; Landlock alone would \
         leave open {}: to run with it all the same, put {names} into sandbox.accept_gaps",
        refused.iter().map(|gap| described(*gap)).collect::<Vec<_>>().join(" and "),
    );
    Err(SandboxError::Unavailable { message, gaps: refused })
}

/// What a program stays open to whose network is limited to ports.
///
/// # Errors
/// Where Landlock does not know ports, or the gap is not accepted.
pub(super) fn of_ports(accepted: &[SandboxGap]) -> Result<SandboxGap, SandboxError> {
    let gap = SandboxGap::ProxyPortAnyHost;
    if landlock::version() < landlock::PORTS_VERSION {
        return Err(SandboxError::unavailable(format!(
            "to enforce a managed network this server needs namespaces, which it cannot use, or Landlock of version {}, \
             where it has version {}",
            landlock::PORTS_VERSION,
            landlock::version()
        )));
    }
    if accepted.contains(&gap) {
        return Ok(gap);
    }
    let message = format!(
        "an enforced managed network needs namespaces, which this server cannot use; Landlock alone would leave open {}: to \
         run with it all the same, put \"{}\" into sandbox.accept_gaps",
        described(gap),
        gap.name()
    );
    Err(SandboxError::Unavailable { message, gaps: vec![gap] })
}

fn left_open(ground: &Ground) -> Vec<SandboxGap> {
    let rules = || ground.rules().iter();
    let mut gaps = Vec::new();
    if !ground.access(Path::new("/")).reads() {
        gaps.push(SandboxGap::OutsideNames);
    }
    gaps.push(SandboxGap::HostView);
    if rules().any(|(_, rule)| rule.access == Access::Write) {
        gaps.push(SandboxGap::OutsideMetadata);
    }
    if rules().any(|(path, _)| is_in_writable(ground, path)) {
        gaps.push(SandboxGap::ProtectedMetadata);
    }
    gaps
}

fn must_be_accepted(gap: SandboxGap) -> bool {
    !matches!(gap, SandboxGap::OutsideNames | SandboxGap::HostView)
}

fn described(gap: SandboxGap) -> &'static str {
    match gap {
        SandboxGap::OutsideNames => "names of files outside",
        SandboxGap::HostView => "the host's processes and devices",
        SandboxGap::OutsideMetadata => "mode, owner, times and attributes of files outside",
        SandboxGap::ProtectedMetadata => "the protected names .git, .codex, .agents and .aws",
        SandboxGap::ProxyPortAnyHost => "the proxy's port at any address",
    }
}

/// A rule that takes writing back from below a writable root.
fn is_in_writable(ground: &Ground, path: &Path) -> bool {
    let above = path.parent().map_or(Access::Hidden, |parent| ground.access(parent));
    above == Access::Write && ground.access(path) != Access::Write
}

/// The part of a policy that no list of what is allowed can say.
fn not_expressible(ground: &Ground) -> Option<String> {
    if let Some(glob) = ground.globs().first() {
        return Some(format!(
            "the deny glob `{}` needs namespaces, which this server cannot use",
            glob.pattern()
        ));
    }
    let (path, rule) = ground.rules().iter().find(|(path, rule)| is_not_expressible(ground, path, rule))?;
    let what = if rule.access == Access::Deny { "deny" } else { "read" };
    let path = path.display();
    Some(format!("the {what} entry for {path} needs namespaces, which this server cannot use"))
}

fn is_not_expressible(ground: &Ground, path: &Path, rule: &Rule) -> bool {
    match rule.access {
        Access::Deny => true,
        Access::Read => is_in_writable(ground, path) && !is_metadata(path, rule),
        Access::Write | Access::Hidden => false,
    }
}

/// Whether the rule is about a protected name, or what such a name stands for.
fn is_metadata(path: &Path, rule: &Rule) -> bool {
    let named = METADATA.iter().any(|name| path.file_name().is_some_and(|last| last == *name));
    named || (rule.origin == Origin::Protected && rule.presence != Presence::Link)
}
