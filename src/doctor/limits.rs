//! Which limits a run can be held to here.

use std::path::{Path, PathBuf};

use super::surroundings::{Container, Surroundings};
use super::{Check, Status};
use crate::spawn::cgroup::{self, Controller, Home};

const NAME: &str = "process limits";
/// Those that need nothing of the machine.
const HELD_ANYWHERE: &str = "wallMs, outputBytes, openFiles";

/// Looks where a server with this choice would make cgroups; makes none.
pub(super) fn check(choice: Result<&Home, &str>, place: &Surroundings) -> Check {
    let base = choice.map_err(str::to_owned).and_then(cgroup::base);
    judge(base.map(|base| (cgroup::controllers(&base), base)), place)
}

fn judge(found: Result<(Vec<String>, PathBuf), String>, place: &Surroundings) -> Check {
    let (controllers, base) = match found {
        Ok(found) => found,
        Err(reason) => {
            let message = format!(
                "Runs can be held to {HELD_ANYWHERE}; not to memoryBytes, processes, cpuMs, and they are owned by marks and \
                 parentage, not by cgroups: {reason}."
            );
            return Check::new(NAME, Status::Info, message).fix(delegation(place));
        }
    };
    let missing = Controller::ALL.map(|controller| missing(controller, &controllers, &base));
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    if missing.is_empty() {
        let message =
            format!("Each run can have a cgroup of its own in {}, and all limits hold.", base.display());
        return Check::ok(NAME, message);
    }
    let message = format!(
        "Each run can have a cgroup of its own in {}; they can be held to {HELD_ANYWHERE}, cpuMs{}.",
        base.display(),
        missing.concat()
    );
    Check::new(NAME, Status::Info, message).fix("Delegate=memory pids in the unit of the service, or cgroup_no_v1=all on the kernel's command line where old hierarchies have them")
}

fn missing(controller: Controller, controllers: &[String], base: &Path) -> Option<String> {
    let limit = match controller {
        Controller::Memory => "memoryBytes",
        Controller::Pids => "processes",
    };
    let name = controller.name();
    let is_there = controllers.iter().any(|known| known == name);
    (!is_there).then(|| format!("; not to {limit}: {} has no {name} controller", base.display()))
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
    use super::*;

    fn controllers(names: &[&str]) -> Result<(Vec<String>, PathBuf), String> {
        Ok((names.iter().map(|name| (*name).to_owned()).collect(), "/sys/fs/cgroup/x".into()))
    }

    #[test]
    fn what_cannot_be_enforced_is_named_with_its_reason() {
        let place = Surroundings::default();
        let all = judge(controllers(&["cpu", "memory", "pids"]), &place);
        assert_eq!((all.status, all.fixes.len()), (Status::Ok, 0));
        let some = judge(controllers(&["memory"]), &place);
        assert!(
            some.message.contains("cpuMs; not to processes: /sys/fs/cgroup/x has no pids controller"),
            "{some:?}"
        );
        let none = judge(Err("no cgroup v2".to_owned()), &place);
        assert!(none.message.contains("not to memoryBytes, processes, cpuMs"), "{none:?}");
        assert!(
            none.message.ends_with("no cgroup v2.") && none.fixes[0].contains("Delegate=yes"),
            "{none:?}"
        );
        let pod = Surroundings { container: Some(Container::Kubernetes), ..place };
        assert!(judge(Err(String::new()), &pod).fixes[0].contains("pod"));
    }
}
