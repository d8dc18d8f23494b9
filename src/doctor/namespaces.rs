//! Why namespaces cannot be had, and what would allow them.

use super::surroundings::{Container, Surroundings};
use super::{Check, Status};

const NAME: &str = "namespaces";

/// What came of really building a sandbox.
pub(super) fn check(reason: Option<&str>, place: &Surroundings) -> Check {
    let Some(reason) = reason else {
        return Check::ok(NAME, "A private view of the system can be built; every policy can be enforced.");
    };
    let message = format!("A private view of the system cannot be built: {reason}.{}", why(place));
    let mut check = Check::new(NAME, Status::Missing, message);
    check.fixes = fixes(place);
    check
}

fn why(place: &Surroundings) -> String {
    let mut why = String::new();
    if !place.has_user_namespaces {
        why.push_str(" The kernel is built without user namespaces (CONFIG_USER_NS).");
    }
    if place.max_user_namespaces == Some(0) {
        why.push_str(" user.max_user_namespaces is 0.");
    }
    if place.debian_switch == Some(0) && !place.is_root {
        why.push_str(" kernel.unprivileged_userns_clone is 0.");
    }
    if place.ubuntu_switch.is_some_and(|value| value != 0) && !place.is_root {
        why.push_str(" AppArmor restricts user namespaces of programs that have no profile.");
    }
    if let Some(profile) = &place.apparmor {
        why.push_str(&format!(" AppArmor confines this program by the profile {profile}."));
    }
    if place.is_filtered {
        why.push_str(" A seccomp filter is in force that may refuse them.");
    }
    why
}

fn fixes(place: &Surroundings) -> Vec<String> {
    let mut fixes = Vec::new();
    if !place.has_user_namespaces {
        fixes.push("Use a kernel with CONFIG_USER_NS=y, or run the server with CAP_SYS_ADMIN.".to_owned());
    }
    if place.max_user_namespaces == Some(0) {
        fixes.push("sysctl -w user.max_user_namespaces=15000".to_owned());
    }
    if place.debian_switch == Some(0) && !place.is_root {
        fixes.push("sysctl -w kernel.unprivileged_userns_clone=1".to_owned());
    }
    if place.ubuntu_switch.is_some_and(|value| value != 0) && !place.is_root {
        fixes.push(format!("Give the program an AppArmor profile that allows them: {PROFILE}"));
    }
    if let Some(container) = place.container {
        fixes.push(container_fix(container).to_owned());
    } else if place.is_filtered && place.is_service {
        fixes.push(
            "In the unit of the service: RestrictNamespaces=no, and no SystemCallFilter= that leaves out \
             clone, unshare, mount and pivot_root; RestrictSUIDSGID=no, ProtectProc=default and ProcSubset=all."
                .to_owned(),
        );
    } else if place.is_filtered {
        fixes.push("Start the server without the seccomp filter that it inherits.".to_owned());
    }
    if fixes.is_empty() {
        fixes.push("Run the server with CAP_SYS_ADMIN, or where user namespaces are allowed.".to_owned());
    }
    fixes
}

/// What Ubuntu 23.10 and later want for every program that makes user namespaces.
const PROFILE: &str = "\
write `abi <abi/4.0>, include <tunables/global> profile exec-server /usr/local/bin/exec-server flags=(unconfined) { \
userns, }` (with the program's own path) to /etc/apparmor.d/exec-server and run \
`apparmor_parser -r /etc/apparmor.d/exec-server`; or, for all programs, \
`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`.";

fn container_fix(container: Container) -> &'static str {
    match container {
        Container::Docker => {
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined …"
        }
        Container::Podman => "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …",
        Container::Kubernetes => {
            "In the pod: securityContext.seccompProfile.type: Unconfined, appArmorProfile.type: Unconfined, \
             procMount: Unmasked with hostUsers: false."
        }
        Container::Other => {
            "Let the container make user namespaces and mount /proc: no seccomp filter against clone, unshare, mount \
             and pivot_root, and no masked paths below /proc."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn usual() -> Surroundings {
        Surroundings {
            has_user_namespaces: true,
            max_user_namespaces: Some(15000),
            ..Surroundings::default()
        }
    }

    #[test_case(Surroundings { max_user_namespaces: Some(0), ..usual() }, "sysctl -w user.max_user_namespaces="; "limit")]
    #[test_case(Surroundings { debian_switch: Some(0), ..usual() }, "kernel.unprivileged_userns_clone=1"; "Debian")]
    #[test_case(Surroundings { ubuntu_switch: Some(1), ..usual() }, "/etc/apparmor.d/exec-server"; "Ubuntu")]
    #[test_case(Surroundings { has_user_namespaces: false, ..usual() }, "CONFIG_USER_NS"; "kernel")]
    #[test_case(Surroundings { container: Some(Container::Docker), is_filtered: true, ..usual() }, "docker run"; "Docker")]
    #[test_case(Surroundings { container: Some(Container::Podman), ..usual() }, "podman run"; "Podman")]
    #[test_case(Surroundings { container: Some(Container::Kubernetes), ..usual() }, "procMount"; "Kubernetes")]
    #[test_case(Surroundings { is_service: true, is_filtered: true, ..usual() }, "RestrictNamespaces=no"; "hardened unit")]
    #[test_case(Surroundings { is_filtered: true, ..usual() }, "seccomp filter"; "some filter")]
    #[test_case(usual(), "CAP_SYS_ADMIN"; "unknown")]
    fn every_obstacle_has_its_fix(place: Surroundings, fix: &str) {
        let check = check(Some("namespaces cannot be made: Operation not permitted"), &place);
        assert_eq!(check.status, Status::Missing);
        assert!(check.fixes.iter().any(|text| text.contains(fix)), "{:?}", check.fixes);
    }

    #[test]
    fn where_they_work_switches_do_not_matter() {
        let place = Surroundings { ubuntu_switch: Some(1), is_filtered: true, ..usual() };
        assert_eq!(check(None, &place).status, Status::Ok);
        assert!(check(None, &place).fixes.is_empty());
    }
}
