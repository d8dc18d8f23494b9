//! What the tree of a run may use, and how it is noticed that it used it up.
//!
//! The kernel holds memory, processes and open files by itself. Memory it ends with a kill, which is seen at the exit;
//! a fork that it refuses is an event of the cgroup. Processor time has no event, so it is looked at when it can be used
//! up at the earliest. Output is counted by the log.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, sleep_until};

use crate::protocol::limits::{ProcessLimit, ProcessLimits};
use crate::spawn::Tree;
use crate::spawn::cgroup::{Group, SessionGroups};
use crate::spawn::mark::RunMark;
use crate::spawn::watched::watched;

/// Processor time is looked at no more often than this.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a run is known by, and what it may use.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Its mark.
    pub mark: RunMark,
    /// Where its cgroup is made.
    pub groups: Option<Arc<SessionGroups>>,
    /// Its limits. Those of memory, processes and processor time need a cgroup.
    pub limits: ProcessLimits,
    /// How much sooner it is killed when the machine's memory runs out, 0 to 1000.
    pub oom_score_adj: u16,
}

impl Terms {
    /// Makes the cgroup of the run, with its limits. An init of its own is allowed beside its processes. For blocking
    /// threads.
    ///
    /// # Errors
    /// The system's, with the setting; nothing is left then.
    pub(super) fn tree(&self, has_init: bool) -> io::Result<Tree> {
        let tree = Tree {
            mark: self.mark,
            group: self.groups.as_ref().map(|groups| groups.create_run()).transpose()?,
            open_files: self.limits.open_files,
            oom_score_adj: self.oom_score_adj,
        };
        if let Some(group) = &tree.group {
            self.limit(group, has_init).inspect_err(|_| self.retire(&tree))?;
        }
        Ok(tree)
    }

    fn limit(&self, group: &Group, has_init: bool) -> io::Result<()> {
        if let Some(bytes) = self.limits.memory_bytes {
            group.set("memory.max", &bytes.to_string())?;
            // A kernel without swap has no such file.
            if group.has("memory.swap.max") {
                group.set("memory.swap.max", "0")?;
            }
            group.set("memory.oom.group", "1")?;
        }
        if let Some(count) = self.limits.processes {
            let count = count.saturating_add(u64::from(has_init)).min(i32::MAX.unsigned_abs().into());
            group.set("pids.max", &count.to_string())?;
        }
        Ok(())
    }

    /// Gives back the cgroup of a tree that is over. For blocking threads.
    pub(super) fn retire(&self, tree: &Tree) {
        if let (Some(groups), Some(group)) = (&self.groups, &tree.group) {
            groups.retire(group.clone());
        }
    }

    /// [`Self::retire`] on a blocking thread.
    pub(super) async fn retire_later(&self, tree: &Tree) {
        if tree.group.is_some() {
            let (terms, tree) = (self.clone(), tree.clone());
            let _ = tokio::task::spawn_blocking(move || terms.retire(&tree)).await;
        }
    }
}

/// Waits for a limit to be used up.
#[derive(Debug)]
pub(super) struct Watch {
    deadline: Option<Instant>,
    processor: Option<(Group, Duration)>,
    refused_forks: Option<(Group, AsyncFd<OwnedFd>)>,
}

impl Watch {
    /// A watch of these limits from now on.
    ///
    /// # Errors
    /// When the events of the cgroup cannot be watched.
    pub(super) fn new(limits: &ProcessLimits, group: Option<&Group>) -> io::Result<Self> {
        let milliseconds = |limit: Option<u64>| limit.map(Duration::from_millis);
        let of_group = |limit: Option<u64>| limit.and(group).cloned();
        let watch = |group: Group| {
            let events = watched(group.open_events(FORKS)?, Interest::PRIORITY)?;
            Ok::<_, io::Error>((group, events))
        };
        Ok(Self {
            // A time beyond what the clock can hold is no limit.
            deadline: milliseconds(limits.wall_ms).and_then(|limit| Instant::now().checked_add(limit)),
            processor: of_group(limits.cpu_ms).zip(milliseconds(limits.cpu_ms)),
            refused_forks: of_group(limits.processes).map(watch).transpose()?,
        })
    }

    /// Whether there is nothing to wait for.
    pub(super) fn is_idle(&self) -> bool {
        self.deadline.is_none() && self.processor.is_none() && self.refused_forks.is_none()
    }

    /// The first limit that is used up.
    pub(super) async fn breached(self) -> ProcessLimit {
        tokio::select! {
            () = passed(self.deadline) => ProcessLimit::WallMs,
            () = used_up(self.processor) => ProcessLimit::CpuMs,
            () = refused(self.refused_forks) => ProcessLimit::Processes,
        }
    }
}

/// Where the kernel counts what it refused.
const FORKS: &str = "pids.events";

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn used_up(limit: Option<(Group, Duration)>) {
    let Some((group, limit)) = limit else { return std::future::pending().await };
    let processors =
        std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    loop {
        let group = group.clone();
        // What cannot be looked at any more counts as used up.
        let used = tokio::task::spawn_blocking(move || group.cpu_time()).await.ok().flatten();
        let left = used.map_or(Duration::ZERO, |used| limit.saturating_sub(used));
        if left.is_zero() {
            return;
        }
        sleep((left / processors).max(LOOK_AGAIN)).await;
    }
}

async fn refused(forks: Option<(Group, AsyncFd<OwnedFd>)>) {
    let Some((group, events)) = forks else { return std::future::pending().await };
    loop {
        // Read through the watched descriptor: only that makes the next event one.
        let mut text = [0; 128];
        let _ = rustix::io::pread(&events, &mut text, 0);
        if has_refused_forks(&group) {
            return;
        }
        match events.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => return,
        }
    }
}

/// Whether a fork was refused for the limit of this cgroup: some kernels count here, too, what one further up has refused.
fn has_refused_forks(group: &Group) -> bool {
    group.count(FORKS, "max").is_some_and(|count| count > 0) && group.was_at_max("pids") != Some(false)
}

/// Whether the kernel has killed processes of a cgroup because its memory was used up.
pub(super) fn is_out_of_memory(group: &Group) -> bool {
    // Kills for want of memory anywhere above are counted too, but are no use of this limit.
    let happened = |event| group.count("memory.events", event).is_some_and(|count| count > 0);
    happened("oom") && happened("oom_kill")
}
