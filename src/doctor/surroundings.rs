//! Facts about the place where this program runs.

use std::fs;
use std::path::Path;

use rustix::process::geteuid;
use rustix::system::uname;

/// What other programs have made of this place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub(super) release: String,
    pub(super) is_root: bool,
    pub(super) container: Option<Container>,
    /// Started by systemd as a service.
    pub(super) is_service: bool,
    /// A filter of system calls is in force already.
    pub(super) is_filtered: bool,
    /// The AppArmor profile of this process, if there is one that confines it.
    pub(super) apparmor: Option<String>,
    pub(super) lsm: Option<String>,
    pub(super) seccomp_actions: Option<String>,
    pub(super) has_user_namespaces: bool,
    pub(super) max_user_namespaces: Option<u64>,
    pub(super) debian_switch: Option<u64>,
    pub(super) ubuntu_switch: Option<u64>,
}

/// What kind of container this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Docker,
    Podman,
    Kubernetes,
    Other,
}

impl Surroundings {
    /// Looks.
    #[must_use]
    pub fn look() -> Self {
        Self {
            release: uname().release().to_string_lossy().into_owned(),
            is_root: geteuid().is_root(),
            container: container(),
            is_service: std::env::var_os("INVOCATION_ID").is_some(),
            is_filtered: is_filtered(),
            apparmor: apparmor(),
            lsm: text("/sys/kernel/security/lsm"),
            seccomp_actions: text("/proc/sys/kernel/seccomp/actions_avail"),
            has_user_namespaces: Path::new("/proc/self/ns/user").exists(),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            debian_switch: number("/proc/sys/kernel/unprivileged_userns_clone"),
            ubuntu_switch: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        }
    }

    /// In a line.
    pub(super) fn in_words(&self) -> String {
        let user = if self.is_root { "root" } else { "an ordinary user" };
        let container = match self.container {
            None => "",
            Some(Container::Docker) => ", in a Docker container",
            Some(Container::Podman) => ", in a Podman container",
            Some(Container::Kubernetes) => ", in a Kubernetes pod",
            Some(Container::Other) => ", in a container",
        };
        format!("Linux {}, as {user}{container}", self.release)
    }
}

pub(super) fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

pub(super) fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

fn container() -> Option<Container> {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some(Container::Kubernetes);
    }
    if Path::new("/run/.containerenv").exists() {
        return Some(Container::Podman);
    }
    if Path::new("/.dockerenv").exists() {
        return Some(Container::Docker);
    }
    std::env::var_os("container").map(|_| Container::Other)
}

fn is_filtered() -> bool {
    let status = text("/proc/self/status").unwrap_or_default();
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() == "2")
}

fn apparmor() -> Option<String> {
    let label = text("/proc/self/attr/apparmor/current")?;
    let label = label.trim_end_matches('\0');
    (!label.is_empty() && label != "unconfined").then(|| label.to_owned())
}
