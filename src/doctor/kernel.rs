//! What the kernel offers.

use std::path::Path;

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::surroundings::{Container, Surroundings};
use super::{Check, Status};
use crate::sandbox::{landlock, origin};

/// What later versions of Landlock add to the one that is needed.
const ADDED: [(i32, &str); 3] =
    [(4, "ports"), (5, "device controls"), (6, "abstract sockets and signals to other programs")];

pub(super) fn landlock(reason: Option<&str>, place: &Surroundings) -> Check {
    const NAME: &str = "landlock";
    let Some(reason) = reason else { return Check::ok(NAME, landlock_in_words(landlock::version())) };
    let check = Check::new(NAME, Status::Missing, format!("Landlock cannot be used: {reason}."));
    let is_listed = place.lsm.as_ref().is_some_and(|list| list.split(',').any(|name| name == "landlock"));
    match (place.container, place.is_filtered) {
        (Some(Container::Docker | Container::Podman | Container::Other), true) if is_listed => check.fix(
            "Use a container engine whose seccomp profile knows Landlock (Docker 23, Podman 4 or later), or \
             --security-opt seccomp=unconfined.",
        ),
        (_, true) if is_listed => {
            check.fix("Let the seccomp filter pass the system calls 444 to 446 (landlock_*).")
        }
        _ if is_listed => check.fix("Use Linux 6.2 or later."),
        _ => {
            let others = place.lsm.as_deref().unwrap_or("yama,integrity,apparmor,bpf");
            check.fix(format!(
                "Use Linux 6.2 or later, built with Landlock, and boot it with lsm=landlock,{others}"
            ))
        }
    }
}

fn landlock_in_words(version: i32) -> String {
    let later: Vec<&str> =
        ADDED.iter().filter(|(since, _)| *since > version).map(|(_, what)| *what).collect();
    let without = match later.as_slice() {
        [] => String::new(),
        later => format!(", which does not cover {}", later.join(", ")),
    };
    format!("Landlock is of version {version}{without}.")
}

pub(super) fn seccomp(place: &Surroundings) -> Check {
    const NAME: &str = "seccomp";
    let Some(actions) = &place.seccomp_actions else {
        return Check::new(
            NAME,
            Status::Missing,
            "The kernel filters no system calls (/proc/sys/kernel/seccomp).",
        )
        .fix("Use a kernel with CONFIG_SECCOMP_FILTER=y.");
    };
    let needed = ["kill_process", "errno", "user_notif"];
    let has = |action: &&str| actions.split_ascii_whitespace().any(|known| known == *action);
    match needed.iter().find(|action| !has(action)) {
        None => Check::ok(NAME, "System calls can be filtered and supervised."),
        Some(action) => {
            Check::new(NAME, Status::Missing, format!("The kernel's filters lack the action {action}."))
                .fix("Use Linux 5.5 or later.")
        }
    }
}

pub(super) fn pidfd() -> Check {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Check::ok("pidfd", "Processes can be held by descriptors."),
        Err(error) => Check::new(
            "pidfd",
            Status::Missing,
            format!("Processes cannot be held by descriptors: {error}."),
        )
        .fix("Use Linux 5.4 or later, and a seccomp filter that lets pidfd_open and pidfd_send_signal pass."),
    }
}

pub(super) fn socket_owners() -> Check {
    const NAME: &str = "socket owners";
    match origin::can_tell() {
        Ok(()) => Check::ok(NAME, "The process at the other end of a local connection can be found."),
        Err(error) => Check::new(
            NAME,
            Status::Warning,
            format!(
                "The kernel does not say who owns a TCP socket ({error}): while a sandboxed program has a network, TCP \
                 clients are refused."
            ),
        )
        .fix("Load the kernel module tcp_diag on the host, or let clients use a unix socket."),
    }
}

pub(super) fn bubblewrap() -> Check {
    let found = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];
    let found = found.into_iter().find(|path| Path::new(path).exists());
    let what = found.map_or_else(|| "not installed".to_owned(), |path| format!("installed as {path}"));
    Check::new("bubblewrap", Status::Info, format!("bubblewrap is {what}; this server does not use it."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_was_booted_without_landlock_is_told_from_one_that_hides_it() {
        let booted = Surroundings { lsm: Some("capability,yama".into()), ..Surroundings::default() };
        let check = landlock(Some("the kernel has no Landlock"), &booted);
        assert!(check.fixes[0].contains("lsm=landlock,capability,yama"), "{:?}", check.fixes);
        let hidden =
            Surroundings { lsm: Some("landlock,yama".into()), is_filtered: true, ..Surroundings::default() };
        assert!(landlock(Some("no"), &hidden).fixes[0].contains("444 to 446"));
        let docker = Surroundings { container: Some(Container::Docker), ..hidden };
        assert!(landlock(Some("no"), &docker).fixes[0].contains("Docker 23"));
    }

    #[test]
    fn old_versions_of_landlock_say_what_they_lack() {
        assert_eq!(landlock_in_words(7), "Landlock is of version 7.");
        let words = landlock_in_words(4);
        assert!(words.contains("device controls") && !words.contains("ports"), "{words}");
    }

    #[test]
    fn each_action_of_filters_is_needed() {
        let with =
            |actions: &str| Surroundings { seccomp_actions: Some(actions.into()), ..Surroundings::default() };
        assert_eq!(seccomp(&with("kill_process kill_thread trap errno user_notif allow")).status, Status::Ok);
        assert_eq!(seccomp(&with("kill_process errno allow")).status, Status::Missing);
        assert_eq!(seccomp(&Surroundings::default()).status, Status::Missing);
    }
}
