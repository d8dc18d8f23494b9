//! Which limits a run can be held to here.

use super::surroundings::{Container, Surroundings};
use super::{Check, Status};
use crate::protocol::limits::ProcessLimit;
use crate::spawn::cgroup::{self, Home, Need, Survey};

const NAME: &str = "process limits";

/// Looks where a server with this choice would make cgroups; makes none.
pub(super) fn check(choice: Result<&Home, &str>, place: &Surroundings) -> Check {
    judge(choice.map_err(str::to_owned).and_then(cgroup::survey), place)
}

fn judge(found: Result<Survey, String>, place: &Surroundings) -> Check {
    let Survey { base, missing } = match found {
        Ok(found) => found,
        Err(reason) => {
            let message = format!(
                "Runs can be held to {}; not to {}, and they are owned by marks and parentage, not by cgroups: {reason}.",
                names(|need| need == Need::Nothing),
                names(|need| need != Need::Nothing),
            );
            return Check::new(NAME, Status::Info, message).fix(delegation(place));
        }
    };
    let why_not = |need| match need {
        Need::Controller(controller) => missing.why_not(controller),
        Need::Nothing | Need::Group => None,
    };
    let lacking = ProcessLimit::ALL.into_iter().filter_map(|limit| Some((limit, why_not(Need::of(limit))?)));
    let lacking: String = lacking.map(|(limit, reason)| format!("; not to {limit}: {reason}")).collect();
    if lacking.is_empty() {
        let message =
            format!("Each run can have a cgroup of its own in {}, and all limits hold.", base.display());
        return Check::ok(NAME, message);
    }
    let message = format!(
        "Each run can have a cgroup of its own in {}; they can be held to {}{lacking}.",
        base.display(),
        names(|need| why_not(need).is_none()),
    );
    Check::new(NAME, Status::Info, message).fix("Delegate=memory pids in the unit of the service, or cgroup_no_v1=all on the kernel's command line where old hierarchies have them")
}

/// The limits that take such things.
fn names(is_meant: impl Fn(Need) -> bool) -> String {
    let meant = ProcessLimit::ALL.into_iter().filter(|limit| is_meant(Need::of(*limit)));
    meant.map(ProcessLimit::name).collect::<Vec<_>>().join(", ")
}

fn delegation(place: &Surroundings) -> &'static str {
    match place.container {
        Some(Container::Kubernetes) => "A pod gets no cgroup of its own to divide; limit its containers.",
        Some(_) => "Run the container with --cgroupns=private and a writable /sys/fs/cgroup.",
        None => {
            "Delegate=yes in the unit of the service, systemd-run --user --scope -p Delegate=yes …, or limits.cgroup"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What is found in a cgroup with these controllers.
    fn found(controllers: &str) -> Result<Survey, String> {
        let dir = tempfile::tempdir().unwrap();
        for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.events", "cgroup.kill"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        cgroup::survey(&Home::At(dir.path().to_owned()))
    }

    #[test]
    fn what_cannot_be_enforced_is_named_with_its_reason() {
        let place = Surroundings::default();
        let all = judge(found("cpu memory pids"), &place);
        assert_eq!((all.status, all.fixes.len()), (Status::Ok, 0));
        let some = judge(found("memory"), &place);
        assert!(
            some.message
                .contains("held to memoryBytes, cpuMs, wallMs, outputBytes, openFiles; not to processes: /")
        );
        assert!(some.message.ends_with(" has no pids controller."), "{some:?}");
        let none = judge(Err("no cgroup v2".to_owned()), &place);
        assert!(none.message.contains("not to memoryBytes, processes, cpuMs,"), "{none:?}");
        assert!(
            none.message.ends_with("no cgroup v2.") && none.fixes[0].contains("Delegate=yes"),
            "{none:?}"
        );
        let pod = Surroundings { container: Some(Container::Kubernetes), ..place };
        assert!(judge(Err(String::new()), &pod).fixes[0].contains("pod"));
    }
}
