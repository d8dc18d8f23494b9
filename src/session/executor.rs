//! What all sessions of one server share.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::LimitPolicy;
use crate::memory::MemoryBudget;
use crate::network::proxy::site::Site;
use crate::process::{OutputBudget, OutputUsage, SpoolSettings, StartFailure, StartFailureKind};
use crate::sandbox::Sandboxes;
use crate::snapshot::{SnapshotCache, SnapshotSettings};
use crate::spawn::mark::ServerMark;
use crate::telemetry::Telemetry;

/// Output that all processes together keep in memory.
const MEMORY_FOR_OUTPUT: usize = 64 << 20;

/// Settings of an [`Executor`].
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Life of the record of a closed process.
    pub record_lifetime: Duration,
    /// Where output goes that leaves memory.
    pub spool: SpoolSettings,
    /// Live processes of all sessions.
    pub max_processes: NonZeroUsize,
    /// Live processes of one session.
    pub max_processes_per_session: NonZeroUsize,
    /// What all buffers may hold together.
    pub memory: Arc<MemoryBudget>,
    /// Limits of runs, and what holds them to these.
    pub limits: LimitPolicy,
    /// How much sooner processes are killed than this one when memory runs out, 0 to 1000.
    pub child_oom_score_adj: u16,
    /// Remembered states of shells.
    pub snapshots: SnapshotSettings,
    /// The proxies of runs without a sandbox serve these runs only.
    pub checks_peers: bool,
    /// Where it is counted.
    pub telemetry: Arc<Telemetry>,
}

impl Default for ExecutorSettings {
    fn default() -> Self {
        let count = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        Self {
            grace: Duration::from_secs(2),
            record_lifetime: Duration::from_secs(80),
            spool: SpoolSettings {
                per_process: 32 << 20,
                total: 1 << 30,
                directories: vec![std::env::temp_dir()],
            },
            max_processes: count(8192),
            max_processes_per_session: count(4096),
            memory: MemoryBudget::new(None),
            limits: LimitPolicy::default(),
            child_oom_score_adj: 500,
            snapshots: SnapshotSettings::default(),
            checks_peers: false,
            telemetry: Arc::default(),
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Executor {
    settings: ExecutorSettings,
    mark: ServerMark,
    output: Arc<OutputBudget>,
    snapshots: Arc<SnapshotCache>,
    live: AtomicUsize,
    /// The server's own environment, as policies see it.
    environment: Vec<(OsString, OsString)>,
    sandboxes: Arc<Sandboxes>,
    network: Arc<Site>,
}

impl Executor {
    /// An executor whose processes carry this mark and inherit from this environment.
    #[must_use]
    pub fn new(
        settings: ExecutorSettings,
        mark: ServerMark,
        environment: Vec<(OsString, OsString)>,
        sandboxes: Arc<Sandboxes>,
        network: Arc<Site>,
    ) -> Arc<Self> {
        let output =
            OutputBudget::new(MEMORY_FOR_OUTPUT, Arc::clone(&settings.memory), settings.spool.clone());
        let snapshots = SnapshotCache::new(settings.snapshots.cache_bytes);
        Arc::new(Self {
            settings,
            mark,
            output,
            snapshots,
            live: AtomicUsize::new(0),
            environment,
            sandboxes,
            network,
        })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &ExecutorSettings {
        &self.settings
    }

    /// The mark of everything that it starts.
    #[must_use]
    pub fn mark(&self) -> ServerMark {
        self.mark
    }

    /// What its sandboxes share.
    #[must_use]
    pub fn sandboxes(&self) -> &Arc<Sandboxes> {
        &self.sandboxes
    }

    /// What its proxies share.
    #[must_use]
    pub fn network(&self) -> &Arc<Site> {
        &self.network
    }

    /// Where what it does is counted.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.settings.telemetry
    }

    /// What became of the output of its processes.
    #[must_use]
    pub fn output_usage(&self) -> OutputUsage {
        self.output.usage()
    }

    /// A start failed; what it says of this machine is remembered.
    pub(super) fn hear_of(&self, failure: &StartFailure) {
        if failure.kind == StartFailureKind::SandboxUnavailable {
            self.sandboxes.doubt_host();
        }
    }

    pub(super) fn output(&self) -> Arc<OutputBudget> {
        Arc::clone(&self.output)
    }

    /// Lets output leave memory if all of it is used up.
    pub(super) async fn relieve(&self) {
        let output = self.output();
        if output.under_pressure() {
            let _ = tokio::task::spawn_blocking(move || output.relieve()).await;
        }
    }

    pub(super) fn snapshots(&self) -> &Arc<SnapshotCache> {
        &self.snapshots
    }

    pub(super) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.environment.iter().cloned()
    }

    /// Counts a process that is about to start; `None` if there are too many.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Live> {
        let limit = self.settings.max_processes.get();
        let below = |live: usize| (live < limit).then_some(live + 1);
        self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).ok()?;
        Some(Live(Arc::clone(self)))
    }
}

/// A live process, as long as it is held.
#[derive(Debug)]
pub(super) struct Live(Arc<Executor>);

impl Live {
    pub(super) fn executor(&self) -> &Executor {
        &self.0
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Unix milliseconds.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
