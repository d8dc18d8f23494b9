//! The processes of one session by their names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::ConnectionId;
use crate::path_uri::PathUri;
use crate::process::Process;
use crate::protocol::process::{ProcessId, SandboxType, ShellSnapshotReport, StartParams};
use crate::protocol::sandbox::{SandboxBackend, SandboxGap};
use crate::sandbox::Prepared;

/// What a start asked for, as far as it is remembered: enough to know it again, and to list it.
#[derive(Debug)]
pub(super) struct Request {
    origin: ConnectionId,
    /// Of all params that count. The params themselves can be many times as large.
    digest: [u8; 32],
    argv: Vec<String>,
    cwd: PathUri,
}

impl Request {
    pub(super) fn of(params: &StartParams, origin: ConnectionId) -> Self {
        let exec = &params.exec;
        Self { origin, digest: digest(params), argv: exec.argv.clone(), cwd: exec.cwd.clone() }
    }

    /// Whether another one is the same on a later connection.
    pub(super) fn is_repeated_by(&self, other: &Self) -> bool {
        self.origin != other.origin && self.digest == other.digest
    }
}

/// Equal for starts whose params are equal once decoded; metadata does not count, nor do limits that limit nothing.
fn digest(params: &StartParams) -> [u8; 32] {
    let mut params = params.clone();
    params.exec.metadata = Default::default();
    params.options.limits = params.options.limits.filter(|limits| !limits.is_empty());
    // As a value, so that maps are in order.
    let text = serde_json::to_value(&params).map(|value| value.to_string()).unwrap_or_default();
    Sha256::digest(text).into()
}

/// What a start was given, as its answer says.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) sandbox: Enforced,
    pub(super) shell_snapshot: Option<ShellSnapshotReport>,
}

/// How the policy of a process is enforced.
#[derive(Debug, Clone)]
pub(super) struct Enforced {
    pub(super) kind: SandboxType,
    pub(super) backend: Option<SandboxBackend>,
    pub(super) gaps: Vec<SandboxGap>,
}

impl Enforced {
    pub(super) fn by(sandbox: Option<&Prepared>) -> Self {
        Self {
            kind: super::sandbox_type(sandbox.is_some()),
            backend: sandbox.and_then(|sandbox| sandbox.backend),
            gaps: sandbox.map(|sandbox| sandbox.gaps.clone()).unwrap_or_default(),
        }
    }
}

/// A name that is taken.
#[derive(Debug)]
pub(super) enum Entry {
    /// By a start in progress; `end` is the grace if its end was asked for meanwhile.
    Starting { request: Arc<Request>, end: Option<Duration> },
    /// By a process, running or ended.
    Present { process: Arc<Process>, request: Arc<Request>, given: Given, order: u64 },
}

impl Entry {
    pub(super) fn request(&self) -> &Request {
        match self {
            Self::Starting { request, .. } | Self::Present { request, .. } => request,
        }
    }
}

/// One process, for listing.
pub(super) struct Row<'a> {
    pub(super) process: &'a Process,
    pub(super) argv: &'a [String],
    pub(super) cwd: &'a PathUri,
    pub(super) sandbox_type: SandboxType,
    pub(super) order: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<ProcessId, Entry>,
    started: u64,
    ended: bool,
}

impl Table {
    pub(super) fn get(&self, id: &ProcessId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ProcessId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn ever_started(&self) -> bool {
        self.started > 0
    }

    /// Processes that have not ended, and starts in progress.
    pub(super) fn live(&self) -> usize {
        let live = |entry: &&Entry| match entry {
            Entry::Starting { .. } => true,
            Entry::Present { process, .. } => !process.log().status().closed,
        };
        self.entries.values().filter(live).count()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn starting(&self) -> usize {
        self.entries.values().filter(|entry| matches!(entry, Entry::Starting { .. })).count()
    }

    pub(super) fn reserve(&mut self, id: ProcessId, request: Arc<Request>) {
        self.entries.insert(id, Entry::Starting { request, end: None });
    }

    /// Frees a name that a start has not filled.
    pub(super) fn release(&mut self, id: &ProcessId) {
        if matches!(self.entries.get(id), Some(Entry::Starting { .. })) {
            self.entries.remove(id);
        }
    }

    /// The reserved name now means this process. Returns the grace if its end was asked for already.
    pub(super) fn fill(&mut self, process: &Arc<Process>, given: Given) -> Option<Duration> {
        self.started += 1;
        let order = self.started;
        if let Some(entry) = self.entries.get_mut(process.id())
            && let Entry::Starting { request, end } = entry
        {
            let (request, end) = (Arc::clone(request), *end);
            *entry = Entry::Present { process: Arc::clone(process), request, given, order };
            return end;
        }
        None
    }

    /// Forgets a record, unless the name has been taken by another process since.
    pub(super) fn forget(&mut self, process: &Arc<Process>) {
        let same = |entry: &Entry| matches!(entry, Entry::Present { process: kept, .. } if Arc::ptr_eq(kept, process));
        if self.entries.get(process.id()).is_some_and(same) {
            self.entries.remove(process.id());
        }
    }

    pub(super) fn processes(&self) -> Vec<Arc<Process>> {
        let present = |entry: &Entry| match entry {
            Entry::Present { process, .. } => Some(Arc::clone(process)),
            Entry::Starting { .. } => None,
        };
        self.entries.values().filter_map(present).collect()
    }

    pub(super) fn present(&self) -> impl Iterator<Item = Row<'_>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Starting { .. } => None,
            Entry::Present { process, request, given, order } => Some(Row {
                process,
                argv: &request.argv,
                cwd: &request.cwd,
                sandbox_type: given.sandbox.kind,
                order: *order,
            }),
        })
    }

    /// Lets nothing be started any more; returns what there is to end.
    pub(super) fn end(&mut self) -> Vec<Arc<Process>> {
        self.ended = true;
        self.processes()
    }
}
