//! A cgroup of the test's own, for a server to divide.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::LIMIT;

/// Killed and removed with the value.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes one that can hand on these controllers; says why it cannot, where there is none to be had.
    pub(crate) fn with(controllers: &[&str]) -> Option<Self> {
        Self::try_with(controllers).inspect_err(|reason| eprintln!("SKIPPED: {reason}")).ok()
    }

    fn try_with(controllers: &[&str]) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let top = mount().ok_or("there is no cgroup v2 here")?;
        for controller in controllers {
            // The top may have them handed on already; whether it has is seen below.
            fs::write(top.join("cgroup.subtree_control"), format!("+{controller}")).ok();
        }
        let name =
            format!("exec-server-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = top.join(name);
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let made = Self(dir);
        let has = fs::read_to_string(made.0.join("cgroup.controllers")).unwrap_or_default();
        match controllers.iter().find(|wanted| !has.split_whitespace().any(|known| known == **wanted)) {
            Some(missing) => Err(format!("cgroups have no {missing} controller here")),
            None => Ok(made),
        }
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a name of its own")
    }

    /// The cgroups of runs in it.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        let servers = below(&self.0).into_iter().filter(|dir| name(dir).starts_with("runs-"));
        servers.flat_map(|server| below(&server)).flat_map(|session| below(&session)).collect()
    }

    /// What servers have made in it and not removed.
    pub(crate) fn servers(&self) -> Vec<PathBuf> {
        below(&self.0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        fs::write(self.0.join("cgroup.kill"), "1").ok();
        let deadline = Instant::now() + LIMIT;
        while !remove(&self.0) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(mount.split(' ').nth(4)?.into())
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

fn name(dir: &Path) -> &str {
    dir.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn remove(dir: &Path) -> bool {
    for dir in below(dir) {
        remove(&dir);
    }
    fs::remove_dir(dir).is_ok() || !dir.exists()
}
