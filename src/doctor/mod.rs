//! What this machine can do for the server, what it cannot, why, and what would change that.
//!
//! Looking and judging are apart: `surroundings` collects facts, everything else turns them into words, so that the
//! advice for hosts of every kind can be tested on one.

mod kernel;
mod limits;
mod namespaces;
mod resources;
mod surroundings;

use std::path::Path;

use serde::Serialize;

pub use self::surroundings::Surroundings;
use crate::protocol::sandbox::{SandboxBackend, SandboxGap, SandboxReport};
use crate::sandbox::Sandboxes;
use crate::spawn::cgroup::Home;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about.
    pub name: &'static str,
    /// What came out.
    pub status: Status,
    /// The same in a sentence.
    pub message: String,
    /// What would make it better; each is a way of its own.
    pub fixes: Vec<String>,
}

/// What came out of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It works.
    Ok,
    /// It works, with a limit that may matter.
    Warning,
    /// It does not work.
    Missing,
    /// Nothing depends on it.
    Info,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Where this is, in words.
    pub place: String,
    /// What a policy goes to first; null if nothing can enforce one.
    pub backend: Option<SandboxBackend>,
    /// What that may leave open.
    pub gaps: Vec<SandboxGap>,
    /// What was looked at.
    pub checks: Vec<Check>,
}

impl Check {
    fn new(name: &'static str, status: Status, message: impl Into<String>) -> Self {
        Self { name, status, message: message.into(), fixes: Vec::new() }
    }

    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, message)
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fixes.push(fix.into());
        self
    }
}

impl Diagnosis {
    /// Looks at this machine, as a server would use it that keeps its state in this directory and divides this cgroup, or
    /// none for this reason. Blocks for some
    /// milliseconds.
    #[must_use]
    pub fn make(sandboxes: &Sandboxes, state_dir: Option<&Path>, cgroup: Result<&Home, &str>) -> Self {
        let surroundings = Surroundings::look();
        let report = sandboxes.report();
        let mut checks = vec![
            namespaces::check(reason(&report, SandboxBackend::Namespaces), &surroundings),
            kernel::landlock(reason(&report, SandboxBackend::Landlock), &surroundings),
            kernel::seccomp(&surroundings),
            kernel::pidfd(),
            kernel::socket_owners(),
        ];
        checks.extend(resources::checks(state_dir));
        checks.push(limits::check(cgroup, &surroundings));
        checks.push(kernel::bubblewrap());
        Self { place: surroundings.in_words(), gaps: gaps(report.default), backend: report.default, checks }
    }

    /// 0: policies are enforced without gaps; 1: with some; 3: not at all.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.backend {
            None => 3,
            Some(_) if self.gaps.is_empty() => 0,
            Some(_) => 1,
        }
    }
}

/// Why a backend cannot be had; `None` if it can.
fn reason(report: &SandboxReport, name: SandboxBackend) -> Option<&str> {
    let backend = report.backends.iter().find(|backend| backend.name == name && !backend.available)?;
    Some(backend.reason.as_deref().unwrap_or("it is not available"))
}

fn gaps(backend: Option<SandboxBackend>) -> Vec<SandboxGap> {
    match backend {
        Some(SandboxBackend::Landlock) => SandboxGap::ALL.to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(backend: Option<SandboxBackend>) -> Diagnosis {
        Diagnosis { place: String::new(), backend, gaps: gaps(backend), checks: Vec::new() }
    }

    #[test]
    fn scripts_can_tell_by_the_exit_code() {
        assert_eq!(diagnosis(Some(SandboxBackend::Namespaces)).exit_code(), 0);
        assert_eq!(diagnosis(Some(SandboxBackend::Landlock)).exit_code(), 1);
        assert_eq!(diagnosis(None).exit_code(), 3);
    }
}
